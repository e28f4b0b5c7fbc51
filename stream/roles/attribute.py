"""The role ``attribute``: traces become reports, alerts, review requests, suspicions and summaries.

Judging is computation, so it runs in processes beside the worker's: a thread would keep the interpreter's
lock, and heartbeats with it. The offset of a trace is held until everything of its session is out.

With analysts ``llm`` a failed session comes out twice under the same ids: the local report at once, which
carries the alert of the hazard rules, and the panel's verdict as the next revision (:mod:`stream.panels`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from pydantic import TypeAdapter

from cockpithat.analysis.rules import RulesError
from cockpithat.analysis.watching import unknown_signals
from cockpithat.attribution import AttributionSettings
from cockpithat.calibration.model import CalibrationError
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.panel.refining import Refiner, Shortfall
from stream import judging
from stream.context import WorkerContext
from stream.decoding import TRACE_DEPTH, Decoder
from stream.judging import ALERT, REPORT, REVIEW, SUMMARY, SUSPICION, Facts, Issuer, Judged, Stage
from stream.ledger import ClosedMark, Mark
from stream.panels import PanelBounds, PanelJob, Panels
from stream.pool import BoundedPool
from stream.ratelimit import HourlyLimit
from stream.records import Output, Record
from stream.roles.base import PartitionedRole, Unit
from stream.settings import ConfigurationError

log = logging.getLogger(__name__)

NAME = "attribute"
_ATTEMPTS = 3
_POOL_FULL = "pool"


@dataclass(frozen=True, slots=True)
class Job:
    """One trace to judge."""

    record: Record
    taken_at: float  # monotonic seconds


class Judges:
    """The processes that judge, replaced when one dies or does not answer in time."""

    def __init__(self, context: WorkerContext, processes: int) -> None:
        self._context = context
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None
        self._alone = asyncio.Lock()

    async def start(self) -> None:
        """Bring the processes up; waits for the first, so that no session pays for it."""
        await asyncio.get_running_loop().run_in_executor(self._running(), judging.ready)

    async def judge(self, job: Job, deadline_s: float) -> Judged:
        """Outputs for the job's trace. What cannot be judged comes back as refused, never as an error."""
        return await self._run(partial(judging.judge, job.record.value), deadline_s)

    async def give_up(self, job: PanelJob, shortfall: Shortfall, deadline_s: float) -> Judged:
        """Outputs for a session that gets no verdict of the panel; refused as in :meth:`judge`."""
        call = partial(_give_up, job.record.value, shortfall=shortfall, reviewed=job.reviewed)
        return await self._run(call, deadline_s)

    async def _run(self, call: Callable[[int], Judged], deadline_s: float) -> Judged:
        """``call`` with the time, in a process.

        A process that dies takes those beside it down: each is tried again, alone, and the one that kills
        its process again is the one to blame.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            async with self._alone if attempt > 1 else contextlib.nullcontext():
                pool, running = self._submit(call)
                try:
                    return await asyncio.wait_for(running, deadline_s)
                except TimeoutError:
                    self._context.metrics.attribution_failures.labels("deadline").inc()
                    self._replace(pool)
                    return Judged(
                        refused=(DeadLetterReason.QUARANTINED, f"not judged within {deadline_s:g} s")
                    )
                except BrokenProcessPool:
                    log.warning("a judging process died", extra={"attempt": attempt})
                    self._replace(pool)
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    self._context.metrics.attribution_failures.labels("error").inc()
                    log.exception("judging failed")
                    return Judged(refused=(DeadLetterReason.QUARANTINED, type(error).__name__))
        self._context.metrics.attribution_failures.labels("error").inc()
        return Judged(refused=(DeadLetterReason.CRASHED, f"ended its process {_ATTEMPTS} times"))

    def _submit(self, call: Callable[[int], Judged]) -> tuple[ProcessPoolExecutor, asyncio.Future[Judged]]:
        loop, now = asyncio.get_running_loop(), self._context.now_ms()
        pool = self._running()
        try:
            return pool, loop.run_in_executor(pool, call, now)
        except (BrokenProcessPool, OSError):  # it died, and this trace had no part in it
            log.warning("the judging processes died between two traces")
            self._replace(pool)
        pool = self._running()
        return pool, loop.run_in_executor(pool, call, now)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._replace(self._pool)

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            settings = self._context.settings
            self._pool = ProcessPoolExecutor(
                self._processes,
                # A fork would copy the locks that the Kafka clients' threads hold, but not the threads.
                mp_context=get_context("spawn"),
                initializer=partial(
                    judging.start_process,
                    settings.attribution,
                    settings.worker.page_max_age_ms,
                    settings.kafka.max_message_bytes,
                    settings.worker.method,
                    settings.worker.analysts,
                    settings.worker.method_options,
                ),
            )
        return self._pool

    def _replace(self, pool: ProcessPoolExecutor) -> None:
        if self._pool is not pool:
            return
        self._pool = None
        # There is no public way to end a process that does not return.
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def tell_unknown_signals(attribution: AttributionSettings) -> None:
    """A rule of the operator's that watches what nothing knows may wait for ever: it is logged once.

    Raises :class:`ConfigurationError` for rules that cannot be used.
    """
    if attribution.rules_file is None:
        return
    try:
        rules = attribution.rules()
    except RulesError as error:
        raise ConfigurationError(str(error)) from None
    for line in unknown_signals(rules):
        log.warning("a hazard rule watches an unknown signal", extra={"detail": line})


def _give_up(value: bytes | None, now_ms: int, *, shortfall: Shortfall, reviewed: bool) -> Judged:
    return judging.give_up(value, now_ms, shortfall, reviewed)


class AttributeUnit(Unit):
    """One partition of traces."""

    stage = "attribute"
    takes_in_process = False  # judging has processes of its own, which are watched

    def __init__(self, role: Attribute, partition: int) -> None:
        self._role = role
        self._suspicions = HourlyLimit(role.context.settings.worker.suspicions_per_hour)
        super().__init__(role.context, role.topic, partition)

    def read_back_from(self) -> Sequence[str]:
        """Summaries, each the mark that its session's outputs are out; and dead letters."""
        topics = self.context.settings.topics
        return (topics.sessions, topics.dlq(topics.traces))

    def process(self, record: Record) -> None:
        """Give a trace to the pool unless its summary is out."""
        self.hold.passed(record.offset, record.timestamp)
        if self.ledger.is_done(record.offset):
            return
        ticket = self.hold.acquire(record.offset)
        job = Job(record, time.monotonic())
        self._role.pool.offer(self.partition, job, lambda judged: self._judged(job, judged, ticket))
        if self._role.pool.full:
            self._role.pause()

    def _judged(self, job: Job, judged: Judged, ticket: int) -> None:
        record = job.record
        if judged.refused is None and record.key != judged.vehicle_id.encode("utf-8", "surrogatepass"):
            detail = "the record's key is not the trace's vehicle_id"
            judged = Judged(refused=(DeadLetterReason.WRONG_KEY, detail))
        if judged.refused is not None:
            self.put_aside(record, *judged.refused, held=ticket)
            return
        self.context.guard.good()
        if judged.facts is not None and judged.facts.method:
            self.context.metrics.attribution_seconds.labels(judged.facts.method).observe(
                time.monotonic() - job.taken_at
            )
        if judged.panel_follows:
            self._ask_panel(job, judged)
        self._publish(record, judged, ticket)

    def _ask_panel(self, job: Job, judged: Judged) -> None:
        """The panel's verdict comes later; until it is out, the trace is held for it."""
        assert self._role.panels is not None
        record, held = job.record, self.hold.acquire(job.record.offset)

        def done(revised: Judged) -> None:
            if revised.refused is None:
                self._publish(record, revised, held)
            else:  # the processes cannot judge any more what they judged before: the first report stands
                log.error("no last revision", extra={"reason": revised.refused[0]})
                self.hold.release(held)

        self._role.panels.offer(
            PanelJob(self.partition, record, time.monotonic(), judged.asks_for_review, done)
        )

    def _publish(self, record: Record, judged: Judged, ticket: int) -> None:
        pairs = []
        key = judged.vehicle_id.encode("utf-8", "surrogatepass")
        # A summary is written with everything of its revision or not at all, and is what a new owner knows.
        is_out = any(m.topic == SUMMARY and self.ledger.has(m.identity, m.revision) for m in judged.made)
        written: list[str] = []
        for made in judged.made:
            if is_out or self.ledger.has(made.identity, made.revision):
                continue  # the same trace came twice, or its panel was still to come when the owner changed
            # A producer whose clock is ahead must not use up the hours to come.
            at_ms = min(record.timestamp, self.context.now_ms())
            if made.topic == SUSPICION and not self._suspicions.allows(at_ms):
                self._withhold(judged.facts)
                continue
            written.append(made.topic)
            is_last = made.topic == SUMMARY and not judged.panel_follows
            topic = getattr(self.context.settings.topics, made.topic)
            mark = self.ledger.mark(made.identity, record.offset, revision=made.revision, last=is_last)
            partition = self.context.partitions.beside(topic, self.partition)
            # The first summary says for the role that assembled it that the session is over.
            is_first = made.topic == SUMMARY and (
                judged.facts is None or judged.facts.stage is not Stage.LAST
            )
            closed = ClosedMark.read(record.headers) if is_first else None
            headers = closed.headers() if closed is not None else ()
            pairs.append((Output(topic, partition, key, made.value, headers), mark))
        self.submit(pairs, held=ticket, committed=None if is_out else (judged.facts, written))

    def _withhold(self, facts: Facts | None) -> None:
        """The summary says that there was a suspicion; its record does not go out."""
        self.context.metrics.suspicions_withheld.inc()
        if facts is not None:
            log.warning(
                "suspicion withheld: more than worker.suspicions_per_hour",
                extra={"trace_id": facts.trace_id, "asil": facts.suspicion},
            )

    def published(self, marks: Sequence[Mark], tag: object) -> None:
        """Count what is out."""
        if not isinstance(tag, tuple):
            return
        facts, topics = tag
        if isinstance(facts, Facts):
            self._role.count(facts, topics)

    def tick(self, now_ms: int) -> None:
        """Forget what cannot be read again."""
        super().tick(now_ms)
        self.ledger.forget_before(self.hold.committable or 0)

    def close(self) -> None:
        """Give up what is in flight: the next owner judges it."""
        cancelled = self._role.pool.cancel(self.partition)
        if self._role.panels is not None:
            self._role.panels.cancel(self.partition)
        if cancelled:
            self.context.metrics.attribution_failures.labels("cancelled").inc(cancelled)
        super().close()


class Attribute(PartitionedRole[AttributeUnit]):
    """See the module."""

    name = NAME

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        worker = context.settings.worker
        self.topic = context.settings.topics.traces
        self.judges = Judges(context, min(worker.pool_size, os.cpu_count() or 1))
        self._deadline_s = worker.attribution_deadline_s
        self.pool: BoundedPool[Job, Judged] = BoundedPool(
            self._work,
            size=worker.pool_size,
            queue_size=worker.queue_size,
            failed=self._failed,
            has_room=self._resume,
        )
        self.panels = self._panels()

    def _panels(self) -> Panels | None:
        """The panels, where the settings ask for analysts that wait for a network."""
        settings, metrics = self.context.settings, self.context.metrics
        worker = settings.worker
        attribution = settings.attribution
        try:
            method = judging.chosen(attribution, worker.method, worker.analysts, worker.method_options)
            ranges = judging.ranges(attribution, method)
        except (ValueError, CalibrationError) as error:  # also of a local method, before its processes start
            raise ConfigurationError(str(error)) from None
        if not isinstance(method, Refiner):
            return None
        method.observe = metrics.count_call
        issuer = Issuer(attribution, page_max_age_ms=worker.page_max_age_ms, ranges=ranges)
        if (paid := attribution.panel) is not None and paid.llm.cache.directory is None:
            log.warning(
                "answers of models are kept in memory only and are paid for again after a restart; "
                "set attribution.panel.llm.cache.directory"
            )
        decoder: Decoder[Trace] = Decoder(
            TypeAdapter(Trace), max_bytes=settings.kafka.max_message_bytes, max_depth=TRACE_DEPTH
        )

        def issue(trace: Trace, report: Report, job: PanelJob) -> Judged:
            return issuer.issue(trace, report, self.context.now_ms(), Stage.LAST, reviewed=job.reviewed)

        async def give_up(job: PanelJob, shortfall: Shortfall) -> Judged:
            return await self.judges.give_up(job, shortfall, self._deadline_s)

        return Panels(
            method,
            PanelBounds(
                size=worker.panel_size,
                backlog=worker.panel_backlog,
                backlog_bytes=worker.panel_backlog_bytes,
                deadline_s=worker.panel_deadline_s,
                max_tokens=worker.panel_max_tokens,
            ),
            metrics,
            decode=decoder.decode,
            issue=issue,
            give_up=give_up,
            now_ms=self.context.now_ms,
        )

    @property
    def in_flight(self) -> int:
        """Sessions that wait for the pool or are in it."""
        return self.pool.waiting + self.pool.active

    def unit(self, partition: int) -> AttributeUnit:
        """See :class:`PartitionedRole`."""
        return AttributeUnit(self, partition)

    async def start(self) -> None:
        """Bring up the judging processes."""
        tell_unknown_signals(self.context.settings.attribution)
        await self.judges.start()

    def tick(self, now_ms: int) -> None:
        """Also reports the pool."""
        super().tick(now_ms)
        self.context.metrics.pool_queue.set(self.pool.waiting)
        self.context.metrics.pool_active.set(self.pool.active)
        if self.panels is not None:
            self.panels.tick()

    async def stop(self) -> None:
        """Cancel what is in the pool; its offsets are held, so the next worker judges it."""
        await self.pool.close()
        if self.panels is not None:
            await self.panels.close()
        await super().stop()
        self.judges.close()

    def pause(self) -> None:
        """The pool is full: fetch no more traces; session intake goes on."""
        for partition in self.units:
            self.context.pauses.pause(self.topic, partition, _POOL_FULL)

    def count(self, facts: Facts, topics: Iterable[str]) -> None:
        """Metrics and one log line for a session whose outputs are out."""
        metrics = self.context.metrics
        for topic in topics:
            if topic == REPORT and facts.asil is not None:
                metrics.count_report(facts.asil, facts.category)
                is_last = facts.stage is Stage.LAST
                since_end = (
                    metrics.session_end_to_verdict_seconds
                    if is_last
                    else metrics.session_end_to_report_seconds
                )
                self._latency(facts, since_end.observe)
            elif topic == ALERT and facts.asil is not None:
                metrics.alerts.labels(facts.asil.value).inc()
                if facts.stage is not Stage.LAST:
                    self._latency(facts, metrics.session_end_to_alert_seconds.observe)
            elif topic == REVIEW:
                metrics.reviews.inc()
            elif topic == SUSPICION and facts.suspicion is not None:
                metrics.suspicions.labels(facts.suspicion.value).inc()
            elif topic == SUMMARY:
                metrics.summaries.inc()
        if facts.withheld:
            metrics.alerts_withheld.labels("age").inc()
            log.warning(
                "alert withheld: the session ended too long ago to page",
                extra={"trace_id": facts.trace_id, "asil": facts.asil},
            )

    def _latency(self, facts: Facts, observe: object) -> None:
        if not facts.clock_suspect and callable(observe):
            observe(max(0.0, (self.context.now_ms() - facts.ended_ts) / 1000))

    def _resume(self) -> None:
        for partition in self.units:
            self.context.pauses.resume(self.topic, partition, _POOL_FULL)

    async def _work(self, job: Job) -> Judged:
        return await self.judges.judge(job, self._deadline_s)

    def _failed(self, error: BaseException) -> None:
        self.context.fatal(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
