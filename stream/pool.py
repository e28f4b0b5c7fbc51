"""A bounded pool for work that is slow: it never blocks intake, and says when it is full.

Work is offered with the partition it came from. When more waits than the pool will hold, ``full`` is true
and the caller pauses its partitions; what was fetched already is still taken. A revoked partition's work is
cancelled, waiting or running, and its result is thrown away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Item(Generic[Job, Result]):
    partition: int
    job: Job
    done: Callable[[Result], None]


class BoundedPool(Generic[Job, Result]):
    """Runs ``work`` for each job, at most ``size`` at a time, on the event loop that it was made in.

    ``work`` handles its own errors and deadlines and always answers; an exception that escapes it is a
    fault of the product and goes to ``failed``.
    """

    def __init__(
        self,
        work: Callable[[Job], Awaitable[Result]],
        *,
        size: int,
        queue_size: int,
        failed: Callable[[BaseException], None],
        has_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._size = size
        self._queue_size = queue_size
        self._failed = failed
        self._has_room = has_room
        self._queue: deque[_Item[Job, Result]] = deque()
        self._running: dict[asyncio.Task[None], int] = {}
        self._was_full = False

    @property
    def waiting(self) -> int:
        """Jobs that have not started."""
        return len(self._queue)

    @property
    def active(self) -> int:
        """Jobs that are running."""
        return len(self._running)

    @property
    def full(self) -> bool:
        """Whether the caller should offer no more for now."""
        return len(self._queue) >= self._queue_size

    def offer(self, partition: int, job: Job, done: Callable[[Result], None]) -> None:
        """Take a job; ``done`` gets its result on the event loop unless it is cancelled first."""
        self._queue.append(_Item(partition, job, done))
        self._start()
        self._was_full = self._was_full or self.full

    def cancel(self, partition: int) -> int:
        """Give up all work of ``partition``; nothing of it will be reported. Returns how many jobs."""
        kept = deque(item for item in self._queue if item.partition != partition)
        cancelled = len(self._queue) - len(kept)
        self._queue = kept
        for task, owner in list(self._running.items()):
            if owner == partition:
                task.cancel()
                cancelled += 1
        self._signal_room()
        return cancelled

    async def close(self) -> None:
        """Cancel everything and wait until it has stopped."""
        self._queue.clear()
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self) -> None:
        while self._queue and len(self._running) < self._size:
            item = self._queue.popleft()
            task = asyncio.create_task(self._run(item), name="attribution")
            self._running[task] = item.partition
            task.add_done_callback(self._finished)

    async def _run(self, item: _Item[Job, Result]) -> None:
        item.done(await self._work(item.job))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
        self._start()
        self._signal_room()

    def _signal_room(self) -> None:
        # Half empty before it asks for more: a partition is not paused and resumed for every job.
        if self._was_full and len(self._queue) <= self._queue_size // 2:
            self._was_full = False
            self._has_room()
