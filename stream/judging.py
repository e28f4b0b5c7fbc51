"""From a trace's bytes to the outputs of its session. Runs in a process of the pool, not in the worker's.

Nothing here touches Kafka: the result is bytes, identities and the few facts that metrics need.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import wait as wait_for_connection

from pydantic import TypeAdapter

from cockpithat.attribution import (
    AttributionSettings,
    LocalAttribution,
    alert_for,
    review_for,
    summary_for,
)
from cockpithat.contract.base import Asil, Category, WireModel
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from stream.decoding import Decoder, UndecodableError

REPORT, ALERT, REVIEW, SUSPICION, SUMMARY = "reports", "alerts", "reviews", "suspicions", "sessions"


@dataclass(frozen=True, slots=True)
class Made:
    """One output: the topic's role in :class:`stream.settings.TopicSettings`, identity and JSON."""

    topic: str
    identity: str
    revision: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What metrics and logs say of a judged session; no vehicle, no session, no text."""

    trace_id: str
    method: str = ""
    asil: Asil | None = None
    category: Category | None = None
    ended_ts: int = 0
    clock_suspect: bool = False
    withheld: bool = False
    suspicion: Asil | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The outputs of one session in the order they are written, or why its trace cannot be used."""

    vehicle_id: str = ""
    made: tuple[Made, ...] = ()
    facts: Facts | None = None
    refused: tuple[DeadLetterReason, str] | None = None


class Judge:
    """Judges traces with the local analysts."""

    def __init__(self, settings: AttributionSettings, *, page_max_age_ms: int, max_bytes: int) -> None:
        self._settings = settings
        self._local = LocalAttribution(settings)
        self._page_max_age_ms = page_max_age_ms
        self._decoder: Decoder[Trace] = Decoder(TypeAdapter(Trace), max_bytes=max_bytes)

    def judge(self, value: bytes | None, now_ms: int) -> Judged:
        """Outputs for the trace in ``value``; ``now_ms`` decides whether it is too old to page."""
        try:
            trace = self._decoder.decode(value)
        except UndecodableError as error:
            return Judged(refused=(error.reason, error.detail))
        return self._failed(trace, now_ms) if trace.is_judged and trace.steps else self._passed(trace)

    def _failed(self, trace: Trace, now_ms: int) -> Judged:
        report = self._local.judge(trace).model_copy(update={"revision": trace.revision})
        made = [_made(REPORT, report.report_id, report)]
        alert = alert_for(report, self._settings)
        # A backfill or a redrive must not wake anyone. A clock that is wrong says nothing about age.
        is_old = not trace.clock_suspect and now_ms - trace.ended_ts > self._page_max_age_ms
        if alert is not None and not is_old:
            made.append(_made(ALERT, alert.alert_id, alert))
        review = review_for(report)
        if review is not None:
            made.append(_made(REVIEW, review.review_id, review))
        summary = summary_for(trace, report)
        made.append(_made(SUMMARY, summary.summary_id, summary))
        return Judged(trace.vehicle_id, tuple(made), _facts(trace, report, withheld=bool(alert) and is_old))

    def _passed(self, trace: Trace) -> Judged:
        made: list[Made] = []
        suspicion = self._local.screen(trace) if trace.steps else None
        if suspicion is not None:
            made.append(_made(SUSPICION, suspicion.suspicion_id, suspicion))
        summary = summary_for(trace, None)
        made.append(_made(SUMMARY, summary.summary_id, summary))
        facts = Facts(
            trace.trace_id,
            ended_ts=trace.ended_ts,
            clock_suspect=trace.clock_suspect,
            suspicion=suspicion.asil if suspicion is not None else None,
        )
        return Judged(trace.vehicle_id, tuple(made), facts)


def _made(topic: str, identity: str, record: WireModel) -> Made:
    revision = int(getattr(record, "revision", 1))
    return Made(topic, identity, revision, record.model_dump_json().encode("utf-8", "surrogatepass"))


def _facts(trace: Trace, report: Report, *, withheld: bool) -> Facts:
    return Facts(
        trace.trace_id,
        method=report.method,
        asil=report.asil,
        category=report.category,
        ended_ts=trace.ended_ts,
        clock_suspect=trace.clock_suspect,
        withheld=withheld,
    )


_judge: Judge | None = None


def start_process(settings: AttributionSettings, page_max_age_ms: int, max_bytes: int) -> None:
    """Set up a process of the pool. It ends with its parent, however that ends."""
    global _judge
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    _judge = Judge(settings, page_max_age_ms=page_max_age_ms, max_bytes=max_bytes)


def judge(value: bytes | None, now_ms: int) -> Judged:
    """:meth:`Judge.judge` in a process of the pool."""
    if _judge is None:
        raise RuntimeError("start_process has not run in this process")
    return _judge.judge(value, now_ms)


def ready() -> bool:
    """Answers once the process is set up."""
    return _judge is not None


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is None:
        return
    sentinels: Sequence[int] = [parent.sentinel]
    wait_for_connection(sentinels)
    os._exit(0)
