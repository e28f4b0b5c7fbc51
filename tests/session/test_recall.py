"""A session that an earlier owner of the partition closed, and a failure flag that comes for it."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import Trace
from cockpithat.graph import IncrementalGraph
from cockpithat.session.closed import ClosedSession
from cockpithat.session.effects import DeadLettered, DuplicateIgnored, TraceClosed
from tests.session.support import Bench, end, session, start, step, traces


def heir(trace: Trace | None, highest_seq: int = 3) -> Bench:
    """An engine that has been told of the session, and was given its trace or not."""
    bench = Bench()
    closed = ClosedSession(
        trace=trace,
        event_ids=None,
        highest_seq=highest_seq,
        missing=(),
        wall_ms=bench.wall,
        is_quarantined=False,
    )
    bench.engine.recall("v1", "s1", closed)
    return bench


def test_a_flag_reopens_a_session_whose_trace_was_fetched() -> None:
    (first,) = traces(Bench().feed(*session(2)))
    bench = heir(first)
    flag = end(4, failed=True, event_id="flag")
    (second,) = traces(bench.feed(flag))
    assert (second.trace_id, second.revision, second.failed) == (first.trace_id, 2, True)
    assert second.steps == first.steps
    assert isinstance(bench.feed(flag)[0], DuplicateIgnored)


def test_a_flag_with_the_seq_of_the_first_end_reopens_too() -> None:
    (first,) = traces(Bench().feed(*session(2)))
    (effect,) = heir(first).feed(end(3, failed=True, event_id="flag"))
    assert isinstance(effect, TraceClosed)


def test_a_session_that_fell_silent_is_reopened_too() -> None:
    calm = Bench()
    calm.feed(start(), step(1))
    (first,) = traces(calm.wait(120_000))
    (second,) = traces(heir(first, highest_seq=1).feed(end(2, failed=True)))
    assert (second.revision, second.outcome) == (2, Outcome.FAILURE)


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_what_it_had_is_a_duplicate(seq: int) -> None:
    (first,) = traces(Bench().feed(*session(2)))
    event = {0: start(), 1: step(1), 3: end(3)}[seq]
    assert isinstance(heir(first).feed(event)[0], DuplicateIgnored)


def test_the_same_end_of_a_failed_session_is_a_duplicate() -> None:
    (first,) = traces(Bench().feed(*session(2, outcome=Outcome.FAILURE)))
    assert isinstance(heir(first).feed(end(3, outcome=Outcome.FAILURE))[0], DuplicateIgnored)


def test_a_flag_without_a_trace_is_late() -> None:
    assert isinstance(heir(None).feed(end(4, failed=True))[0], DeadLettered)


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILURE])
def test_a_session_that_is_over_leaves_no_event_no_graph_and_no_trace_in_memory(outcome: Outcome) -> None:
    """Deadlines outlive it by minutes; on a backlog that was all events of the backlog."""
    kinds = (SessionStart, StepEvent, SessionEnd, IncrementalGraph, Trace)

    def alive() -> Counter[str]:
        gc.collect()
        return Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, kinds))

    before = alive()
    bench = Bench()
    bench.feed(*session(3, "open")[:-1])
    opened = alive() - before
    assert opened == Counter(SessionStart=1, StepEvent=3, IncrementalGraph=1)
    for number in range(20):
        assert traces(bench.feed(*session(3, f"s{number}", outcome=outcome)))
    bench.effects.clear()
    assert alive() - before == opened
    flag = end(5, "s7", failed=True, event_id="flag")
    assert bool(traces(bench.feed(flag))) is (outcome == Outcome.SUCCESS)
