"""Judging runs in processes of its own: what breaks or hangs there costs one trace, and no heartbeat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpithat.attribution import AttributionSettings
from cockpithat.contract.base import Outcome
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.trace import Step, Trace
from cockpithat.formats import load_recordings
from cockpithat.formats.assembly import assemble
from cockpithat.resources import resource
from stream import judging
from stream.context import WorkerContext
from stream.judging import Judge, Judged
from stream.metrics import Metrics
from stream.records import Record
from stream.roles.attribute import Job, Judges
from stream.settings import Settings
from tests.stream import misbehaving

NOW = 1_800_000_000_000


def context() -> WorkerContext:
    return cast(WorkerContext, SimpleNamespace(settings=Settings(), metrics=Metrics(), now_ms=lambda: NOW))


def job(text: str) -> Job:
    return Job(Record("traces", 0, 0, 0, b"k", text.encode()), 0.0)


@pytest.fixture
async def judges(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Judges]:
    monkeypatch.setattr(judging, "judge", misbehaving.judge)
    pool = Judges(context(), 2)
    await pool.start()
    yield pool
    pool.close()


async def test_a_trace_that_kills_its_process_is_blamed_and_its_neighbours_are_not(judges: Judges) -> None:
    answers = await asyncio.gather(*(judges.judge(job(text), 60) for text in ("a", "kill", "b", "c")))
    assert [answer.vehicle_id for answer in answers] == ["a", "", "b", "c"]
    assert answers[1].refused == (DeadLetterReason.CRASHED, "ended its process 3 times")


async def test_processes_that_died_between_two_traces_cost_none(judges: Judges) -> None:
    assert (await judges.judge(job("before"), 60.0)).refused is None
    pool = judges._running()
    for process in list(pool._processes.values()):
        process.kill()
    while not pool._broken:
        await asyncio.sleep(0.01)
    assert (await judges.judge(job("after"), 60.0)).refused is None


async def test_a_trace_that_hangs_is_given_up_at_its_deadline(judges: Judges) -> None:
    started = time.monotonic()
    hung = await judges.judge(job("hang"), 0.5)
    assert time.monotonic() - started < 5
    assert hung.refused == (DeadLetterReason.QUARANTINED, "not judged within 0.5 s")
    assert (await judges.judge(job("next"), 60)).vehicle_id == "next"


async def test_an_error_names_its_kind_and_quotes_nothing(judges: Judges) -> None:
    answer = await judges.judge(job("raise"), 60)
    assert answer.refused == (DeadLetterReason.QUARANTINED, "ValueError")


async def test_the_event_loop_stays_responsive_while_traces_are_judged() -> None:
    pool = Judges(context(), 2)
    await pool.start()
    trace = _trace(steps=400, text="the cabin is at 21 degrees and the window is open " * 40)
    work = asyncio.gather(*(pool.judge(Job(_record(trace), 0.0), 120) for _ in range(6)))
    longest = 0.0
    while not work.done():
        before = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - before)
    pool.close()
    assert all(answer.refused is None for answer in await work)
    assert longest < 1.0


# ---------------------------------------------------------------- what is made of a trace


def _trace(*, steps: int = 3, text: str = "hello", **fields: Any) -> Trace:
    body: dict[str, Any] = {
        "trace_id": "t",
        "vehicle_id": "v",
        "session_id": "s",
        "failed": True,
        "outcome": Outcome.FAILURE,
        "ended_ts": NOW - 1_000,
        "steps": tuple(
            Step(index=i, seq=i, event_id=str(i), ts=NOW - 10_000 + i, agent="Planner", text=text)
            for i in range(steps)
        ),
    }
    return Trace(**{**body, **fields})


def _record(trace: Trace) -> Record:
    return Record("traces", 0, 0, 0, b"v", trace.model_dump_json().encode())


def _judged(trace: Trace) -> Judged:
    judge = Judge(AttributionSettings(), page_max_age_ms=900_000, max_bytes=8 * 1024 * 1024)
    return judge.judge(_record(trace).value, NOW)


def topics(judged: Judged) -> list[str]:
    return [made.topic for made in judged.made]


def test_the_summary_is_written_last() -> None:
    made = topics(_judged(_trace()))
    assert (made[0], made[-1]) == ("reports", "sessions")
    assert made.count("sessions") == 1


def test_a_passed_session_has_a_summary_and_no_report() -> None:
    assert topics(_judged(_trace(failed=False, outcome=Outcome.SUCCESS))) == ["sessions"]


def test_a_session_without_steps_has_a_summary_and_no_report() -> None:
    judged = _judged(_trace(steps=0))
    assert topics(judged) == ["sessions"]
    assert b'"empty"' in judged.made[0].value


def test_a_session_that_vanished_is_judged_like_a_failed_one() -> None:
    assert topics(_judged(_trace(failed=False, outcome=Outcome.UNKNOWN)))[0] == "reports"


def test_a_later_revision_of_a_trace_is_a_later_revision_of_every_output() -> None:
    first, second = _judged(_trace()), _judged(_trace(revision=2))
    assert [made.identity for made in first.made] == [made.identity for made in second.made]
    assert {made.revision for made in second.made} == {2}


def test_bytes_that_are_no_trace_are_refused_with_a_reason() -> None:
    judge = Judge(AttributionSettings(), page_max_age_ms=900_000, max_bytes=1_000)
    assert (judge.judge(b"{", NOW).refused or ("",))[0] == DeadLetterReason.NOT_JSON
    assert (judge.judge(None, NOW).refused or ("",))[0] == DeadLetterReason.EMPTY
    assert (judge.judge(b'{"steps": []}', NOW).refused or ("",))[0] == DeadLetterReason.SCHEMA
    assert (judge.judge(b" " * 2_000, NOW).refused or ("",))[0] == DeadLetterReason.TOO_LARGE


def _dangerous() -> Trace:
    """The demo's session in which the headlights go out at night: ASIL D."""
    path = next(path for path in resource("data/demo").glob("01_*.yaml"))
    return next(iter(assemble(next(iter(load_recordings(path))))))


@pytest.mark.parametrize(
    ("age_ms", "clock_suspect", "pages"),
    [(1_000, False, True), (3_600_000, False, False), (3_600_000, True, True)],
)
def test_a_session_that_ended_long_ago_does_not_page(age_ms: int, clock_suspect: bool, pages: bool) -> None:
    judged = _judged(
        _dangerous().model_copy(update={"ended_ts": NOW - age_ms, "clock_suspect": clock_suspect})
    )
    assert ("alerts" in topics(judged)) is pages
    assert judged.facts is not None
    assert judged.facts.withheld is not pages
    assert "reports" in topics(judged)
