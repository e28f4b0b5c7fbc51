"""Panels in flight: sessions whose local report is out get the panel's verdict as a revision.

A panel waits for a network, so it runs on the event loop, off the way of intake and of local reports. What
waits is bounded in number, bytes and time; a session beyond a bound keeps its local report, and a revision
says why. While the endpoint does not answer, one session at a time is tried, ever more rarely; the others
wait, their offsets held, and follow when it is back. Nothing is kept outside memory: a new owner reads held
traces again, and answers that were paid for come from the response cache.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.llm import Ledger
from cockpithat.panel.refining import NoVerdictError, Refiner, Shortfall
from stream.judging import Judged
from stream.logs import describe
from stream.metrics import Metrics
from stream.records import Record

log = logging.getLogger(__name__)

_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 60.0

NO_ROOM = "more sessions wait for the panel than its backlog holds"


@dataclass(slots=True, eq=False)
class PanelJob:
    """One session that waits for its panel. ``done`` gets the outputs of the revision."""

    partition: int
    record: Record
    taken_at: float  # monotonic seconds
    reviewed: bool  # the local report asked for a review
    done: Callable[[Judged], None]
    ledger: Ledger = field(default_factory=Ledger)
    last: Shortfall | None = None

    @property
    def size(self) -> int:
        """Bytes that the job keeps in memory."""
        return len(self.record.value or b"")


@dataclass(frozen=True, slots=True)
class PanelBounds:
    """See ``worker.panel_*`` in :mod:`stream.settings`."""

    size: int
    backlog: int
    backlog_bytes: int
    deadline_s: float
    max_tokens: int


class Panels:
    """Runs a :class:`Refiner` over jobs; used on one event loop.

    ``decode`` and ``issue`` are computation and run in a thread. ``give_up`` makes the outputs of a session
    that gets no verdict; it answers whatever happens.
    """

    def __init__(
        self,
        refiner: Refiner,
        bounds: PanelBounds,
        metrics: Metrics,
        *,
        decode: Callable[[bytes | None], Trace],
        issue: Callable[[Trace, Report, PanelJob], Judged],
        give_up: Callable[[PanelJob, Shortfall], Awaitable[Judged]],
        now_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        first_wait_s: float = _FIRST_WAIT_S,
    ) -> None:
        self._refiner = refiner
        self._bounds = bounds
        self._metrics = metrics
        self._decode = decode
        self._issue = issue
        self._give_up = give_up
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._first_wait_s = first_wait_s
        self._backlog: deque[PanelJob] = deque()
        self._bytes = 0
        self._running: dict[asyncio.Task[None], PanelJob] = {}
        self._closing: dict[asyncio.Task[None], PanelJob] = {}
        self._failures = 0
        self._not_before = 0.0

    @property
    def waiting(self) -> int:
        """Sessions that wait for a panel."""
        return len(self._backlog)

    @property
    def active(self) -> int:
        """Panels that are running."""
        return len(self._running)

    def offer(self, job: PanelJob) -> None:
        """Take a job; beyond the backlog's bounds, the session that has waited longest is given up."""
        self._wait(job)
        self._start()

    def cancel(self, partition: int) -> int:
        """Give back all work of a partition; nothing of it will be reported. Returns how many panels ran."""
        self._backlog = deque(job for job in self._backlog if job.partition != partition)
        self._bytes = sum(job.size for job in self._backlog)
        cancelled = 0
        for tasks in (self._running, self._closing):
            for task, job in list(tasks.items()):
                if job.partition == partition:
                    task.cancel()
                    cancelled += tasks is self._running
        if cancelled:
            self._metrics.panels.labels("cancelled").inc(cancelled)
        return cancelled

    async def close(self) -> None:
        """Cancel everything and close the refiner's connections."""
        self._backlog.clear()
        self._bytes = 0
        tasks = [*self._running, *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._refiner.close()

    def tick(self) -> None:
        """Time passes: what is overdue is given up, and what may run is started."""
        self._drop_overdue()
        self._start()
        self._metrics.panel_backlog.set(self.waiting)
        self._metrics.panels_active.set(self.active)
        for role, is_open in self._refiner.circuits().items():
            self._metrics.llm_circuit_open.labels(role.value).set(is_open)

    def _wait(self, job: PanelJob) -> None:
        self._backlog.append(job)
        self._bytes += job.size
        while len(self._backlog) > self._bounds.backlog or self._bytes > self._bounds.backlog_bytes:
            self._finish_without(self._take(), NO_ROOM)

    def _take(self) -> PanelJob:
        job = self._backlog.popleft()
        self._bytes -= job.size
        return job

    def _start(self) -> None:
        # After a failure one session tries whether the endpoint is back; the others must not pay for that.
        allowed = 1 if self._failures else self._bounds.size
        while self._backlog and len(self._running) < allowed and self._monotonic() >= self._not_before:
            job = self._take()
            task = asyncio.create_task(self._run(job), name="panel")
            self._running[task] = job
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a panel failed", extra={"error": describe(error)}, exc_info=error)
            self._finish_without(job, f"the panel failed ({type(error).__name__})")
        self._start()

    async def _run(self, job: PanelJob) -> None:
        started, failures = self._monotonic(), self._failures
        was_shut = any(self._refiner.circuits().values())
        trace = await asyncio.to_thread(self._decode, job.record.value)
        try:
            report = await self._refiner.verdict(trace, ledger=job.ledger)
        except NoVerdictError as error:
            self._without_verdict(job, error)
            if error.may_pass:
                self._hold_off(failures, came_back=was_shut and not any(self._refiner.circuits().values()))
            return
        self._failures, self._not_before = 0, 0.0
        judged = await asyncio.to_thread(self._issue, trace, report, job)
        self._metrics.panels.labels("verdict").inc()
        self._metrics.panel_seconds.observe(self._monotonic() - started)
        job.done(judged)

    def _without_verdict(self, job: PanelJob, error: NoVerdictError) -> None:
        job.last = error.shortfall
        if not error.may_pass:
            self._finish_without(job, error.shortfall.reason)
            return
        self._metrics.panels.labels("postponed").inc()
        log.warning(
            "the panel does not answer; local reports stand until it does",
            # Only kinds of failure: an endpoint's own words may quote the trace.
            extra={"detail": ", ".join(sorted(job.ledger.outcomes())), "waiting": len(self._backlog) + 1},
        )
        spent = error.shortfall.tokens.input + error.shortfall.tokens.output
        if spent > self._bounds.max_tokens:
            self._finish_without(job, f"{error.shortfall.reason}; {spent} tokens were spent on it")
        else:
            # Behind the others: what is too slow for one session need not be for the next.
            self._wait(job)

    def _hold_off(self, failures: int, *, came_back: bool) -> None:
        """Wait before the next try, longer each time. ``failures``: how many there were when this one began.

        Panels that fail side by side are one failure. An endpoint whose circuit let a first call through, as
        it does after an outage, has turned the panel's other calls away: it is back, and asked at once.
        """
        if came_back:
            self._failures, self._not_before = 1, self._monotonic()
        elif failures == self._failures:
            self._failures += 1
            longest = min(_LONGEST_WAIT_S, self._first_wait_s * 2.0 ** min(failures, 10))
            self._not_before = self._monotonic() + longest * random.uniform(0.5, 1.0)
        self._drop_overdue()

    def _drop_overdue(self) -> None:
        now_ms, now = self._now_ms(), self._monotonic()
        limit = self._bounds.deadline_s

        def overdue(job: PanelJob) -> bool:
            # A worker that was down for long tries each session before it gives one up.
            since_written = (now_ms - job.record.timestamp) / 1000
            return now - job.taken_at > limit or (self._failures > 0 and since_written > limit)

        late = [job for job in self._backlog if overdue(job)]
        if not late:
            return
        dropped = set(map(id, late))
        self._backlog = deque(job for job in self._backlog if id(job) not in dropped)
        self._bytes = sum(job.size for job in self._backlog)
        for job in late:
            why = job.last.reason if job.last is not None else "it has not been asked"
            self._finish_without(job, f"no verdict within {limit:g} s: {why}")

    def _finish_without(self, job: PanelJob, reason: str) -> None:
        """Let the local report stand, and say why."""
        last = job.last
        shortfall = Shortfall(
            reason,
            last.hypotheses if last is not None else (),
            job.ledger.tokens,
            job.ledger.cost,
            round(self._monotonic() - job.taken_at, 6),
        )
        self._metrics.panels.labels("given_up").inc()
        task = asyncio.create_task(self._settle(job, shortfall), name="panel given up")
        self._closing[task] = job
        task.add_done_callback(lambda ended: self._closing.pop(ended, None))

    async def _settle(self, job: PanelJob, shortfall: Shortfall) -> None:
        job.done(await self._give_up(job, shortfall))
