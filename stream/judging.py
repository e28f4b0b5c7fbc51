"""From a trace's bytes to the outputs of its session. Runs in a process of the pool, not in the worker's.

Nothing here touches Kafka: the result is bytes, identities and the few facts that metrics need.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import parent_process
from multiprocessing.connection import wait as wait_for_connection
from typing import Any

from pydantic import TypeAdapter

from cockpithat.attribution import (
    AttributionSettings,
    LocalAttribution,
    alert_for,
    review_for,
    summary_for,
    withdrawn_review_for,
)
from cockpithat.calibration.method import Ranges
from cockpithat.calibration.model import read_calibration
from cockpithat.contract.base import Asil, Category, WireModel
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.methods import registry
from cockpithat.methods.registry import Method
from cockpithat.panel.refining import Refiner, Shortfall
from stream.decoding import TRACE_DEPTH, Decoder, UndecodableError

REPORT, ALERT, REVIEW, SUSPICION, SUMMARY = "reports", "alerts", "reviews", "suspicions", "sessions"

_NO_REVIEW = "the panel's verdict needs no review"


class Stage(StrEnum):
    """Which word on a session a revision is."""

    ONLY = "only"  # local analysts, and nothing follows
    FIRST = "first"  # local analysts; the panel's verdict follows
    LAST = "last"  # the panel's verdict, or why there is none

    def revision(self, trace_revision: int) -> int:
        """Number of the revision: one a trace's revision, or two where a panel follows.

        It depends on nothing but the trace, so a worker that starts anew numbers as the one before.
        """
        if self is Stage.ONLY:
            return trace_revision
        return 2 * trace_revision - (self is Stage.FIRST)


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
    stage: Stage = Stage.ONLY


@dataclass(frozen=True, slots=True)
class Judged:
    """The outputs of one session in the order they are written, or why its trace cannot be used."""

    vehicle_id: str = ""
    made: tuple[Made, ...] = ()
    facts: Facts | None = None
    refused: tuple[DeadLetterReason, str] | None = None

    @property
    def panel_follows(self) -> bool:
        """Whether the panel's verdict on this session is still to come."""
        return self.facts is not None and self.facts.stage is Stage.FIRST

    @property
    def asks_for_review(self) -> bool:
        """Whether a person is asked to look."""
        return any(made.topic == REVIEW for made in self.made)


def chosen(
    settings: AttributionSettings, method: str, analysts: str, options: Mapping[str, Any] | None = None
) -> Method:
    """The method that judges failed sessions.

    Raises what :func:`cockpithat.methods.registry.create` raises, and ``ValueError`` for a method that asks a
    model and has no local report to go first.
    """
    found = registry.create(method, analysts, settings, options)
    if analysts != LocalAttribution.analysts and not isinstance(found, Refiner):
        raise ValueError(f"method {method!r} does not run in a worker, which needs a local report first")
    return found


def refiner(settings: AttributionSettings, method: str, analysts: str) -> Refiner | None:
    """The method whose verdict follows the local one; ``None`` where no model is asked. As :func:`chosen`."""
    found = chosen(settings, method, analysts)
    return found if isinstance(found, Refiner) else None


def ranges(settings: AttributionSettings, method: Method) -> Ranges | None:
    """What gives a method's reports their ranges, where a calibration is set. Raises ``CalibrationError``."""
    calibration = settings.calibration
    return None if calibration is None else Ranges(method, read_calibration(calibration.file), calibration)


class Issuer:
    """From a report to the records that go out with it."""

    def __init__(
        self, settings: AttributionSettings, *, page_max_age_ms: int, ranges: Ranges | None = None
    ) -> None:
        self._settings = settings
        self._page_max_age_ms = page_max_age_ms
        self._ranges = ranges

    def issue(
        self, trace: Trace, report: Report, now_ms: int, stage: Stage, *, reviewed: bool = False
    ) -> Judged:
        """Report, alert, review request and summary, each in the stage's revision.

        ``now_ms`` decides whether the session is too old to page; ``reviewed``: the revision before asked for
        a review, which is withdrawn when this one needs none.
        """
        report = report.model_copy(update={"revision": stage.revision(trace.revision)})
        if self._ranges is not None:
            report = self._ranges(report, len(trace.steps))
        made = [_made(REPORT, report.report_id, report)]
        alert = alert_for(report, self._settings)
        # A backfill or a redrive must not wake anyone. A clock that is wrong says nothing about age.
        is_old = not trace.clock_suspect and now_ms - trace.ended_ts > self._page_max_age_ms
        if alert is not None and not is_old:
            made.append(_made(ALERT, alert.alert_id, alert))
        review = review_for(report) or (withdrawn_review_for(report, _NO_REVIEW) if reviewed else None)
        if review is not None:
            made.append(_made(REVIEW, review.review_id, review))
        summary = summary_for(trace, report).model_copy(
            update={"revision": report.revision, "final": stage is not Stage.FIRST}
        )
        made.append(_made(SUMMARY, summary.summary_id, summary))
        facts = Facts(
            trace.trace_id,
            method=report.method,
            asil=report.asil,
            category=report.category,
            ended_ts=trace.ended_ts,
            clock_suspect=trace.clock_suspect,
            withheld=alert is not None and is_old,
            stage=stage,
        )
        return Judged(trace.vehicle_id, tuple(made), facts)


class Judge:
    """Judges traces without a network: by a local method, or by the local analysts ahead of a model."""

    def __init__(
        self,
        settings: AttributionSettings,
        *,
        page_max_age_ms: int,
        max_bytes: int,
        method: str = LocalAttribution.name,
        analysts: str = LocalAttribution.analysts,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        found = chosen(settings, method, analysts, options)
        self._refiner = found if isinstance(found, Refiner) else None
        self._local: Any = found  # without a refiner: local methods have ``judge``
        self._screening = found if isinstance(found, LocalAttribution) else LocalAttribution(settings)
        self._issuer = Issuer(settings, page_max_age_ms=page_max_age_ms, ranges=ranges(settings, found))
        self._decoder: Decoder[Trace] = Decoder(
            TypeAdapter(Trace), max_bytes=max_bytes, max_depth=TRACE_DEPTH
        )

    def judge(self, value: bytes | None, now_ms: int) -> Judged:
        """Outputs for the trace in ``value``; ``now_ms`` decides whether it is too old to page."""
        try:
            trace = self._decoder.decode(value)
        except UndecodableError as error:
            return Judged(refused=(error.reason, error.detail))
        if not (trace.is_judged and trace.steps):
            return self._passed(trace)
        if self._refiner is not None:
            return self._issuer.issue(trace, self._refiner.preliminary(trace), now_ms, Stage.FIRST)
        return self._issuer.issue(trace, self._local.judge(trace), now_ms, Stage.ONLY)

    def give_up(self, value: bytes | None, now_ms: int, shortfall: Shortfall, reviewed: bool) -> Judged:
        """Outputs for a session that gets no verdict of the panel: the local report, which says why."""
        try:
            trace = self._decoder.decode(value)
        except UndecodableError as error:
            return Judged(refused=(error.reason, error.detail))
        if self._refiner is None:
            raise RuntimeError("no panel is configured in this process")
        report = self._refiner.degraded(trace, shortfall)
        return self._issuer.issue(trace, report, now_ms, Stage.LAST, reviewed=reviewed)

    def _passed(self, trace: Trace) -> Judged:
        made: list[Made] = []
        suspicion = self._screening.screen(trace) if trace.steps else None
        if suspicion is not None:
            made.append(_made(SUSPICION, suspicion.suspicion_id, suspicion))
        stage = Stage.ONLY if self._refiner is None else Stage.FIRST
        summary = summary_for(trace, None, suspicion).model_copy(
            update={"revision": stage.revision(trace.revision)}
        )
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


_judge: Judge | None = None


def start_process(
    settings: AttributionSettings,
    page_max_age_ms: int,
    max_bytes: int,
    method: str,
    analysts: str,
    options: Mapping[str, Any],
) -> None:
    """Set up a process of the pool. It ends with its parent, however that ends."""
    global _judge
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    _judge = Judge(
        settings,
        page_max_age_ms=page_max_age_ms,
        max_bytes=max_bytes,
        method=method,
        analysts=analysts,
        options=options,
    )


def judge(value: bytes | None, now_ms: int) -> Judged:
    """:meth:`Judge.judge` in a process of the pool."""
    if _judge is None:
        raise RuntimeError("start_process has not run in this process")
    return _judge.judge(value, now_ms)


def give_up(value: bytes | None, now_ms: int, shortfall: Shortfall, reviewed: bool) -> Judged:
    """:meth:`Judge.give_up` in a process of the pool."""
    if _judge is None:
        raise RuntimeError("start_process has not run in this process")
    return _judge.give_up(value, now_ms, shortfall, reviewed)


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
