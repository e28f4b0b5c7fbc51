"""The role ``attribute``: traces become reports, alerts, review requests, suspicions and summaries.

Judging is computation, so it runs in processes beside the worker's: a thread would keep the interpreter's
lock, and heartbeats with it. The offset of a trace is held until everything of its session is out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from cockpithat.contract.deadletter import DeadLetterReason
from stream import judging
from stream.context import WorkerContext
from stream.judging import ALERT, REPORT, REVIEW, SUMMARY, SUSPICION, Facts, Judged
from stream.ledger import ClosedMark, Mark
from stream.pool import BoundedPool
from stream.records import Output, Record
from stream.roles.base import PartitionedRole, Unit

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
        """Outputs for the job's trace. What cannot be judged comes back as refused, never as an error.

        A process that dies takes those beside it down: each is tried again, alone, and the one that kills
        its process again is the one to blame.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            async with self._alone if attempt > 1 else contextlib.nullcontext():
                pool = self._running()
                now = self._context.now_ms()
                running = asyncio.get_running_loop().run_in_executor(
                    pool, judging.judge, job.record.value, now
                )
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


class AttributeUnit(Unit):
    """One partition of traces."""

    stage = "attribute"

    def __init__(self, role: Attribute, partition: int) -> None:
        self._role = role
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
        if judged.refused is not None:
            self.context.guard.bad()
            pair = self.dead_letter(record, *judged.refused)
            if pair is None:
                self.hold.release(ticket)
            else:
                self.submit([pair], held=ticket)
            return
        self.context.guard.good()
        if judged.facts is not None and judged.facts.method:
            self.context.metrics.attribution_seconds.labels(judged.facts.method).observe(
                time.monotonic() - job.taken_at
            )
        pairs = []
        key = judged.vehicle_id.encode("utf-8", "surrogatepass")
        for made in judged.made:
            if self.ledger.has(made.identity, made.revision):
                continue  # the same trace came twice
            topic = getattr(self.context.settings.topics, made.topic)
            mark = self.ledger.mark(
                made.identity, record.offset, revision=made.revision, last=made.topic == SUMMARY
            )
            partition = self.context.partitions.beside(topic, self.partition)
            # The summary says for the role that assembled it that the session is over.
            closed = ClosedMark.read(record.headers) if made.topic == SUMMARY else None
            headers = closed.headers() if closed is not None else ()
            pairs.append((Output(topic, partition, key, made.value, headers), mark))
        self.submit(pairs, held=ticket, committed=(judged.facts, [made.topic for made in judged.made]))

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

    @property
    def in_flight(self) -> int:
        """Sessions that wait for the pool or are in it."""
        return self.pool.waiting + self.pool.active

    def unit(self, partition: int) -> AttributeUnit:
        """See :class:`PartitionedRole`."""
        return AttributeUnit(self, partition)

    async def start(self) -> None:
        """Bring up the judging processes."""
        await self.judges.start()

    def tick(self, now_ms: int) -> None:
        """Also reports the pool."""
        super().tick(now_ms)
        self.context.metrics.pool_queue.set(self.pool.waiting)
        self.context.metrics.pool_active.set(self.pool.active)

    async def stop(self) -> None:
        """Cancel what is in the pool; its offsets are held, so the next worker judges it."""
        await self.pool.close()
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
                self._latency(facts, metrics.session_end_to_report_seconds.observe)
            elif topic == ALERT and facts.asil is not None:
                metrics.alerts.labels(facts.asil.value).inc()
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
