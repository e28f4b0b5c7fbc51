"""What must hold for any sessions in any order of arrival."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cockpithat.contract.trace import Trace
from cockpithat.session.effects import SessionQuarantined, TraceClosed
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.log import SnapshotLog
from tests.session.support import T0, Bench, Event, delta, end, full, session, start, step, traces


def without_sources(trace: Trace) -> dict[str, object]:
    """A trace apart from where its records lay, which is all that the order of arrival may change."""
    dumped = trace.model_dump(exclude={"first_source", "last_source"})
    for item in dumped["steps"]:
        del item["source"]
    return dumped


def displaced(events: list[Event], bound: int, rng: random.Random) -> list[Event]:
    """A random order of arrival in which no event is overtaken by more than ``bound`` others."""
    keys = [place + rng.uniform(0, bound) for place in range(len(events))]
    return [event for _, event in sorted(zip(keys, events, strict=True), key=lambda pair: pair[0])]


@settings(max_examples=150, deadline=None)
@given(steps=st.integers(0, 60), bound=st.sampled_from([2, 5, 20, 64]), seed=st.integers(0, 2**32))
def test_any_order_of_arrival_within_the_bound_gives_the_same_trace(
    steps: int, bound: int, seed: int
) -> None:
    events = session(steps, failed=bool(seed % 2))
    log = SnapshotLog()
    rng = random.Random(seed)
    log.add(full(T0, speed=0.0, beam=True))
    for tick in range(1, 10 * (steps + 2)):
        log.add(delta(T0 + 100 * tick, speed=float(rng.randrange(130))))
    expected = Bench(EngineSettings(reorder_events=64), log)
    expected.feed(*events)
    shuffled = Bench(EngineSettings(reorder_events=64), log)
    arrival = displaced(events, bound, rng)
    again = rng.sample(arrival, k=min(3, len(arrival)))
    shuffled.feed(*arrival, *again)
    (want,) = traces(expected.effects)
    (got,) = traces(shuffled.effects)
    assert without_sources(got) == without_sources(want)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sessions_interleaved_in_any_way_come_out_as_if_alone(seed: int) -> None:
    rng = random.Random(seed)
    names = [(f"s{number}", f"v{number % 3}") for number in range(rng.randint(2, 6))]
    lanes = [displaced(session(rng.randint(1, 12), *name), 8, rng) for name in names]
    alone = {}
    for name, lane in zip(names, lanes, strict=True):
        bench = Bench()
        bench.feed(*lane)
        (trace,) = traces(bench.effects)
        alone[name[0]] = without_sources(trace)
    mixed = Bench(EngineSettings(grace_ms=60_000))  # longer than any event here is overtaken
    while any(lanes):
        mixed.feed(rng.choice([lane for lane in lanes if lane]).pop(0))
        mixed.wait(rng.choice([0, 0, 250]))
    assert {trace.session_id: without_sources(trace) for trace in traces(mixed.effects)} == alone


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_hold_never_passes_the_first_event_of_an_unfinished_session(seed: int) -> None:
    """Against a plain model: every session's offsets, and which sessions came out."""
    rng = random.Random(seed)
    bench = Bench(
        EngineSettings(
            reorder_events=4, silence_ms=3_000, max_events=9, max_open_sessions=4, end_wait_ms=500
        ),
        SnapshotLog() if rng.random() < 0.5 else None,
    )
    lanes = []
    for number in range(8):
        events = session(rng.randint(0, 12), f"s{number}", f"v{number % 3}", failed=rng.random() < 0.3)
        if rng.random() < 0.5:
            events[0] = start(f"s{number}", f"v{number % 3}", sends_snapshots=True)
        events = [event for event in events if rng.random() < 0.9] or events
        lanes.append(displaced(events, 6, rng))
    first: dict[str, int] = {}
    done: set[str] = set()
    while any(lanes):
        lane = rng.choice([lane for lane in lanes if lane])
        event = lane.pop(0)
        before = len(bench.effects)
        bench.feed(event)
        if event.session_id not in done:
            first.setdefault(event.session_id, bench.offset)
        bench.wait(rng.choice([0, 100, 1_000]), catching_up=rng.random() < 0.2)
        for effect in bench.effects[before:]:
            if isinstance(effect, TraceClosed):
                done.add(effect.trace.session_id)
            assert not isinstance(effect, SessionQuarantined)
        unfinished = [offset for name, offset in first.items() if name not in done]
        assert bench.engine.hold_offset == min(unfinished, default=None)
        assert bench.engine.open_sessions == len(unfinished)
    bench.engine.flush(bench.wall)
    assert bench.engine.hold_offset is None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), cut=st.integers(1, 30))
def test_a_new_owner_that_reads_from_the_hold_loses_no_session(seed: int, cut: int) -> None:
    rng = random.Random(seed)
    lanes = [session(rng.randint(1, 8), f"s{number}", f"v{number % 2}") for number in range(5)]
    record: list[Event] = []
    while any(lanes):
        record.append(rng.choice([lane for lane in lanes if lane]).pop(0))
    first = Bench()
    first.feed(*record[:cut])
    hold = first.engine.hold_offset
    second = Bench()
    second.offset = (min(cut, len(record)) if hold is None else hold) - 1
    second.feed(*record[second.offset + 1 :])
    closed = [*traces(first.effects), *traces(second.effects)]
    whole = Bench()
    whole.feed(*record)
    by_id = {trace.trace_id: without_sources(trace) for trace in closed if not trace.missing_seqs}
    assert by_id == {trace.trace_id: without_sources(trace) for trace in traces(whole.effects)}


def test_work_per_event_does_not_grow_with_the_number_of_open_sessions() -> None:
    """Counted, not timed: silence is looked at only where it is due."""

    def pops(sessions: int) -> int:
        bench = Bench(EngineSettings(silence_ms=10_000))
        for number in range(sessions):
            bench.feed(start(f"s{number}", f"v{number}"))
        seen = 0
        original = bench.engine._silence_deadline

        def counted(item: object) -> int:
            nonlocal seen
            seen += 1
            return original(item)  # type: ignore[arg-type]

        bench.engine._silence_deadline = counted  # type: ignore[method-assign,assignment]
        for tick in range(20):
            bench.feed(step(1 + tick, "s0", "v0"))
            bench.wait(250)
        return seen

    assert pops(2_000) == pops(10)


def test_an_end_alone_then_silence_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.feed(end(5))
    (trace,) = traces(bench.wait(10_000))
    assert trace.missing_seqs == ((0, 4),)
    assert bench.engine.open_sessions == 0
