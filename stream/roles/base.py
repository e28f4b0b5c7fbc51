"""What all roles share: one unit of work an input partition, from assignment to revocation.

A unit is made when its partition is assigned and thrown away at the next rebalance, kept partitions too:
Faust seeks every one back to its committed offset, and whatever state there was is built again from there.
Its first record tells where that offset is. Only then does the unit fence earlier owners and read back what
they have written, while records wait in a backlog; a silent partition costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaException

from cockpithat.contract.deadletter import DeadLetterReason
from stream.context import WorkerContext
from stream.crashes import Watch
from stream.deadletters import dead_letter, identity
from stream.ledger import Ledger, Mark, marked, read_back
from stream.publish import FencedError, PartitionPublisher, PublicationError
from stream.records import Output, Record
from stream.snapshots import first_timestamp

log = logging.getLogger(__name__)

_BACKLOG_RECORDS = 2_000
_BACKLOG_BYTES = 32 * 1024 * 1024
_SLICE = 200
_FENCED_GRACE_S = 20.0
_SILENT_MS = 2_000


class Role(Protocol):
    """A role of the worker: what is done with the records of one input topic."""

    name: str
    topic: str

    @property
    def in_flight(self) -> int:
        """Sessions being worked on beyond the record in hand."""
        ...

    async def start(self) -> None:
        """Bring up what the role needs beside Faust."""
        ...

    def assigned(self, partitions: Iterable[int]) -> None:
        """The partitions that this worker has from now on; all state of earlier ones is void."""
        ...

    def revoked(self) -> None:
        """A rebalance begins: publish nothing more, give up work in flight."""
        ...

    def receive(self, record: Record) -> None:
        """Take a record; neither blocks nor raises for what is wrong with the record."""
        ...

    def tick(self, now_ms: int) -> None:
        """Time passes, about four times a second."""
        ...

    async def stop(self) -> None:
        """Give back everything within a few seconds."""
        ...


class Unit(ABC):
    """The state of one input partition under one role."""

    stage: str
    # Whether a record can end the process while it is taken, so that after a crash the culprit is looked for.
    takes_in_process = True

    def __init__(self, context: WorkerContext, topic: str, partition: int) -> None:
        self.context = context
        self.topic = topic
        self.partition = partition
        self.ledger = Ledger(topic, partition)
        self.hold = context.holds.open(topic, partition, self.floor)
        self.last_timestamp = 0
        self._publisher: PartitionPublisher | None = None
        self._backlog: deque[Record] = deque()
        self._backlog_bytes = 0
        self._next_offset: int | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._ready = False
        self._draining = False
        self._closed = False
        self._assigned_ms = context.now_ms()
        self._owned = False
        self._watch: Watch | None = None
        self._announced = (0, 0)
        self._announcing = False

    def floor(self) -> int | None:
        """The lowest offset that the unit's own state needs."""
        return None

    @abstractmethod
    def read_back_from(self) -> Sequence[str]:
        """Topics whose tail tells what is out already."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Take one record, in order. Sync, and bounded in time."""

    async def prepare(self, offset: int, timestamp_ms: int) -> None:
        """Whatever else must be in place before the record at the committed ``offset`` is taken.

        ``timestamp_ms`` is that record's, or the wall clock where there is no such record yet.
        """
        return

    def may_process(self, record: Record) -> bool:
        """Whether ``record`` can be taken now; it is asked again at every tick."""
        return True

    def tick(self, now_ms: int) -> None:
        """Time passes. A partition that stays silent is taken over after a moment, too."""
        if self._recovery is None and now_ms - self._assigned_ms > _SILENT_MS:
            offset = self.context.committed_offset(self.topic, self.partition)
            self._recovery = asyncio.create_task(self._recover_silent(offset or 0, now_ms))
        self._drain()

    @property
    def idle(self) -> bool:
        """Whether every record that arrived has been taken."""
        return not self._backlog

    @property
    def ready(self) -> bool:
        """Whether the unit takes records (it has recovered and is not closed)."""
        return self._ready and not self._closed

    def receive(self, record: Record) -> None:
        """Take a record, or keep it until the unit is ready."""
        if self._closed or (self._next_offset is not None and record.offset < self._next_offset):
            return  # Faust sought back within this ownership; it has been taken
        self._next_offset = record.offset + 1
        self._backlog.append(record)
        self._backlog_bytes += record.size
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._recover(record.offset, record.timestamp))
        if len(self._backlog) > _BACKLOG_RECORDS or self._backlog_bytes > _BACKLOG_BYTES:
            self.context.pauses.pause(self.topic, self.partition, "backlog")
        self._drain()

    def lag(self) -> int:
        """Records of the partition that have not been taken."""
        position = self.hold.position
        if position is None and self._backlog:
            position = self._backlog[0].offset
        waiting = None if position is None else self.context.waiting(self.topic, self.partition, position)
        return max(len(self._backlog), waiting or 0)

    def submit(self, outputs: Sequence[tuple[Output, Mark]], *, held: int, committed: object = None) -> None:
        """Publish ``outputs`` together, in order; the ticket ``held`` is released once they are out."""
        if self._publisher is None or self._closed:
            return

        def done() -> None:
            self.hold.release(held)
            self.published([mark for _, mark in outputs], committed)

        self._publisher.submit([marked(output, mark) for output, mark in outputs], done)

    def published(self, marks: Sequence[Mark], tag: object) -> None:
        """Outputs are out. Called on the event loop."""
        return

    def dead_letter(
        self,
        record: Record,
        reason: DeadLetterReason,
        detail: str,
        *,
        vehicle_id: str | None = None,
        session_id: str | None = None,
        stage: str | None = None,
        ledger: Ledger | None = None,
    ) -> tuple[Output, Mark] | None:
        """The dead letter of ``record``; ``None`` when it is out already, by the ledger of its topic."""
        name = identity(record.topic, record.partition, record.offset)
        ledger = self.ledger if ledger is None else ledger  # an empty one is false
        if ledger.has(name):
            return None
        topic = self.context.settings.topics.dlq(record.topic)
        output = dead_letter(
            record,
            reason,
            detail=detail,
            stage=stage or self.stage,
            topic=topic,
            partition=self.context.partitions.beside(topic, record.partition),
            vehicle_id=vehicle_id,
            session_id=session_id,
        )
        self.context.metrics.dead_letters.labels(record.topic, reason.value).inc()
        log.warning(
            "record dead-lettered",
            extra={
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "reason": reason.value,
                "detail": detail,
                "stage": stage or self.stage,
            },
        )
        return output, ledger.mark(name, record.offset, last=True)

    def put_aside(
        self, record: Record, reason: DeadLetterReason, detail: str, *, held: int, stage: str | None = None
    ) -> None:
        """Dead-letter a bad ``record``; the ticket ``held`` is released once that is out."""
        self.context.guard.bad()
        pair = self.dead_letter(record, reason, detail, stage=stage)
        if pair is None:
            self.hold.release(held)
        else:
            self.submit([pair], held=held)

    def close(self) -> None:
        """Publish nothing more. The hold goes with the partition."""
        self._closed = True
        self._backlog.clear()
        if self._recovery is not None:
            self._recovery.cancel()
        if self._publisher is not None:
            self._publisher.close()
        if self._owned:
            say_goodbye = partial(self.context.crashes.say_goodbye, self.topic, self.partition)
            self.context.executor.submit(say_goodbye)
        self.context.holds.close(self.topic, self.partition)
        self.context.metrics.forget_partition(self.topic, self.partition)

    async def drained(self) -> None:
        """Wait until what was submitted is out."""
        if self._publisher is not None:
            await self._publisher.drained()

    async def _recover_silent(self, offset: int, now_ms: int) -> None:
        """Nothing has come yet. That need not mean that nothing is there: a first fetch may take longer."""
        context = self.context
        look = partial(first_timestamp, context.reading(), self.topic, self.partition, offset)
        try:
            found = await asyncio.get_running_loop().run_in_executor(context.executor, look)
        except KafkaException as error:
            if not self._closed:
                self._publication_failed(PublicationError(str(error)))
            return
        await self._recover(offset, now_ms if found is None else found)

    async def _recover(self, offset: int, timestamp_ms: int) -> None:
        context = self.context
        loop = asyncio.get_running_loop()
        publisher = PartitionPublisher(
            context.writer(self.topic, self.partition),
            context.executor,
            failed=self._publication_failed,
            committed=lambda _: self._committed(),
            interval_s=context.settings.worker.transaction_interval_ms / 1000,
        )
        self._publisher = publisher
        try:
            await publisher.open()
            counts = context.partitions.count(context.settings.topics.crashes)
            if counts and self.takes_in_process:
                take_over = partial(context.crashes.take_over, self.topic, self.partition, counts)
                self._owned = True
                self._watch = await loop.run_in_executor(context.executor, take_over)
            for topic in self.read_back_from():
                self.ledger.restore(await self.read_back(topic, (self.topic, self.partition), offset))
            await self.prepare(offset, timestamp_ms)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not self._closed:
                self._publication_failed(error)
            return
        log.info(
            "partition taken over",
            extra={
                "topic": self.topic,
                "partition": self.partition,
                "offset": offset,
                "published": len(self.ledger),
            },
        )
        self._ready = True
        self._drain()

    async def read_back(self, topic: str, source: tuple[str, int], needed_from: int) -> list[Mark]:
        """See :func:`stream.ledger.read_back`, off the event loop."""
        context = self.context
        return await asyncio.get_running_loop().run_in_executor(
            context.executor,
            lambda: read_back(
                context.reading(),
                topic,
                context.partitions.beside(topic, self.partition),
                input=source,
                needed_from=needed_from,
            ),
        )

    def _drain(self) -> None:
        if self._draining or not self._ready:
            return
        taken = 0
        self._draining = True
        try:
            while self._backlog and not self._closed and taken < _SLICE:
                record = self._backlog[0]
                if not self.may_process(record) or not self._is_announced(record.offset):
                    return
                self._backlog.popleft()
                self._backlog_bytes -= record.size
                taken += 1
                self.last_timestamp = record.timestamp
                self._take(record)
                self.context.health.progress()
        finally:
            self._draining = False
        if self._closed:
            return
        if not self._backlog and self._announced != (0, 0):
            # What ends this process from now on is no record that was announced.
            self._announced = (0, 0)
            self._announce(None)
        if self._backlog:
            # The loop must get a turn between slices, for heartbeats and other partitions.
            asyncio.get_running_loop().call_soon(self._drain)
        if len(self._backlog) <= _BACKLOG_RECORDS // 2 and self._backlog_bytes <= _BACKLOG_BYTES // 2:
            self.context.pauses.resume(self.topic, self.partition, "backlog")

    def _is_announced(self, offset: int) -> bool:
        """Whether a record may be taken as far as the search for one that ends processes goes."""
        if self._announcing:
            return False
        if self._watch is None or self._announced[0] <= offset < self._announced[1]:
            return True
        if offset >= self._watch.until:
            self._watch = None
            self._announced = (0, 0)
            self._announce(None)
            return True
        self._announcing = True
        self._announce(self._watch.announce(offset))
        return False

    def _announce(self, span: tuple[int, int] | None) -> None:
        loop = asyncio.get_running_loop()

        def announced() -> None:
            if span is not None:
                self._announcing = False
                self._announced = span
                if not self._closed:
                    self._drain()

        leave_note = partial(self.context.crashes.leave_note, self.topic, self.partition, span)
        noted = self.context.executor.submit(leave_note)
        noted.add_done_callback(lambda _: _unless_closed(loop, announced))

    def _take(self, record: Record) -> None:
        crashes = self.context.crashes.exceeded(record)
        try:
            if crashes:
                self.hold.passed(record.offset, record.timestamp)
                detail = f"it ended the process {crashes} times"
                pair = self.dead_letter(record, DeadLetterReason.CRASHED, detail)
                if pair is not None:
                    self.submit([pair], held=self.hold.acquire(record.offset))
            else:
                self.process(record)
        except Exception as error:
            # What escapes here is a fault of ours. The record must neither be committed nor passed over.
            self.hold.acquire(record.offset)
            self._closed = True
            log.exception(
                "a record ends the process",
                extra={"topic": record.topic, "partition": record.partition, "offset": record.offset},
            )
            counted = self.context.executor.submit(self.context.crashes.note, record)
            end = partial(asyncio.get_running_loop().call_soon_threadsafe, self.context.fatal, error)
            counted.add_done_callback(lambda _: end())

    def _committed(self) -> None:
        self.context.metrics.transactions.labels("committed").inc()
        self.context.health.progress()

    def _publication_failed(self, error: Exception) -> None:
        self.context.metrics.transactions.labels("aborted").inc()
        if isinstance(error, FencedError):
            # Another worker has the partition: a rebalance that tells us so is on its way.
            log.warning(
                "fenced by the partition's new owner",
                extra={"topic": self.topic, "partition": self.partition},
            )
            asyncio.get_running_loop().call_later(_FENCED_GRACE_S, self._still_fenced)
            return
        self.context.metrics.delivery_failures.inc()
        self.context.fatal(error)

    def _still_fenced(self) -> None:
        if not self._closed:
            self.context.fatal(
                PublicationError(
                    f"{self.topic} partition {self.partition}: fenced, yet still assigned; is the "
                    "transactional id in use by another group? set kafka.transactional_id_prefix"
                )
            )


def _unless_closed(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """From another thread to the event loop, which may be closed already."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


U = TypeVar("U", bound=Unit)


class PartitionedRole(ABC, Generic[U]):
    """A role that keeps a unit for each of its partitions."""

    name: str
    topic: str

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        self.units: dict[int, U] = {}

    @abstractmethod
    def unit(self, partition: int) -> U:
        """A fresh unit for an assigned partition."""

    @property
    def in_flight(self) -> int:
        """Nothing is worked on beyond the record in hand."""
        return 0

    async def start(self) -> None:
        """Nothing to bring up."""

    def assigned(self, partitions: Iterable[int]) -> None:
        """See :class:`Role`."""
        self.revoked()
        self.units = {partition: self.unit(partition) for partition in sorted(partitions)}
        self.context.metrics.assigned_partitions.labels(self.topic).set(len(self.units))

    def revoked(self) -> None:
        """See :class:`Role`."""
        for unit in self.units.values():
            unit.close()
        self.units = {}

    def receive(self, record: Record) -> None:
        """See :class:`Role`."""
        unit = self.units.get(record.partition)
        if unit is not None:
            unit.receive(record)

    def tick(self, now_ms: int) -> None:
        """See :class:`Role`."""
        for unit in list(self.units.values()):
            unit.tick(now_ms)

    async def stop(self) -> None:
        """Let out what is submitted, then close."""
        await asyncio.gather(*(unit.drained() for unit in self.units.values()))
        self.revoked()
