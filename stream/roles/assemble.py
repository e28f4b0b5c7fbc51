"""The role ``assemble``: session events and vehicle snapshots become traces.

One session engine a partition. What it holds is kept by offset alone: a new owner reads the events of open
sessions again, and what earlier owners have written tells which sessions are closed already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.events import SESSION_EVENT, SessionEnd, SessionStart, StepEvent
from cockpithat.contract.framing import unframed
from cockpithat.contract.trace import SourceRef, Trace
from cockpithat.session.budget import OpenSessionBudget
from cockpithat.session.closed import ClosedSession
from cockpithat.session.effects import (
    DeadLettered,
    DuplicateIgnored,
    Effect,
    SessionQuarantined,
    TraceClosed,
)
from cockpithat.session.engine import SessionEngine
from cockpithat.vehicle.log import SnapshotLog
from stream.context import WorkerContext
from stream.cutting import fit
from stream.decoding import Decoder, UndecodableError
from stream.ledger import ClosedMark, Ledger, Mark, closed_sessions, find_trace
from stream.partitioning import KeyCheck
from stream.records import Headers, Output, Record
from stream.roles.base import PartitionedRole, Unit
from stream.snapshots import Refused, SharedStates, SnapshotReader, fetch

log = logging.getLogger(__name__)

NAME = "assemble"
SNAPSHOT_LOOKBACK_MS = 15 * 60_000
_STALE_MS = 5_000
_FETCH_MS = 3_000  # twice Faust's fetch wait: a healthy consumer of a silent partition hears no oftener
_PRIME_TIMEOUT_S = 60.0
_MAX_EVENT_BYTES = 16 * 1024 * 1024
_RECALLED = 5_000  # summaries of a partition read back for what is over
_UNJUDGED = 500  # traces read back for those whose summary is not out yet
_SOUGHT = 20_000  # traces looked through for one that a late failure flag reopens
_SEEK_MARGIN_MS = 60_000  # between the clocks of worker and broker
_NO_TICKET = -1  # the snapshot topic has no committed offset to hold

Pair = tuple[Output, Mark]


class AssembleUnit(Unit):
    """One partition of session events: its engine, and what of it is out already."""

    stage = "session"

    def __init__(self, role: Assemble, partition: int) -> None:
        self._role = role
        self._engine = role.engine()
        self._recent: Record | None = None
        self._primed = False
        self._prime_deadline = 0.0
        self._in_touch_since: int | None = None
        self._snapshot_ledger = Ledger(role.context.settings.topics.vehicle_snapshots, partition)
        self._snapshots_ready = False
        self._refused: list[Refused] = []
        self._recalled: set[bytes | None] = set()  # keys of vehicles with sessions that earlier owners closed
        self._sought: int | None = None  # offset of the flag whose session's trace is looked for
        self._found = False
        super().__init__(role.context, role.topic, partition)

    def floor(self) -> int | None:
        """The first event of the oldest open session."""
        return self._engine.hold_offset

    def read_back_from(self) -> Sequence[str]:
        """Traces, summaries of quarantined sessions, and dead letters."""
        topics = self.context.settings.topics
        return (topics.traces, topics.sessions, topics.dlq(topics.session_events))

    @property
    def open_sessions(self) -> int:
        """Sessions that are open in this partition."""
        return self._engine.open_sessions

    async def prepare(self, offset: int, timestamp_ms: int) -> None:
        """Recall closed sessions; read snapshots from where the oldest held session needs them."""
        await self._recall()
        reader = self._role.reader
        reader.assign(self.partition, timestamp_ms)
        while (start := reader.start_offset(self.partition)) is None:
            await asyncio.sleep(0.02)  # as long as brokers are away; without them no event comes either
        self._prime_deadline = time.monotonic() + _PRIME_TIMEOUT_S
        topics = self.context.settings.topics
        source = (topics.vehicle_snapshots, self.partition)
        marks = await self.read_back(topics.dlq(topics.vehicle_snapshots), source, start)
        self._snapshot_ledger.restore(marks)
        self._snapshots_ready = True
        refused, self._refused = self._refused, []
        self.refuse(refused)

    async def _recall(self) -> None:
        """What earlier owners closed: the engine must know, or a late event opens a fragment."""
        settings = self.context.settings
        topic = settings.topics.sessions
        marks = await asyncio.get_running_loop().run_in_executor(
            self.context.executor,
            lambda: closed_sessions(
                self.context.reading(),
                topic,
                self.context.partitions.beside(topic, self.partition),
                since_ms=self.context.now_ms() - settings.engine.remember_closed_ms,
                limit=min(settings.engine.remember_closed, _RECALLED),
            ),
        )
        known = {(mark.vehicle_id, mark.session_id): mark for mark in marks}
        # Traces that are not judged yet have no summary: their own marks say the rest.
        known.update(((mark.vehicle_id, mark.session_id), mark) for mark in await self._closed_in_traces())
        self._recalled = {_key(vehicle_id) for vehicle_id, _ in known}
        for mark in sorted(known.values(), key=lambda mark: mark.at_ms):
            self._engine.recall(
                mark.vehicle_id,
                mark.session_id,
                ClosedSession(
                    trace=None,
                    event_ids=None,
                    highest_seq=mark.highest_seq,
                    missing=mark.missing,
                    wall_ms=mark.at_ms,
                    is_quarantined=mark.quarantined,
                ),
            )

    async def _closed_in_traces(self) -> list[ClosedMark]:
        topic = self.context.settings.topics.traces
        return await asyncio.get_running_loop().run_in_executor(
            self.context.executor,
            lambda: closed_sessions(
                self.context.reading(),
                topic,
                self.context.partitions.beside(topic, self.partition),
                since_ms=0,
                limit=_UNJUDGED,
            ),
        )

    def may_process(self, record: Record) -> bool:
        """While catching up, an event waits for the snapshots of its time: they say who sends any.

        A failure flag that may be late waits for the trace of its session, if that is not in memory.
        """
        may_lack_trace = self._engine.has_shrunk or record.key in self._recalled
        if may_lack_trace and b"session_end" in (record.value or b""):
            return self._snapshots_are_in(record) and self._trace_is_at_hand(record)
        return self._snapshots_are_in(record)

    def _snapshots_are_in(self, record: Record) -> bool:
        if self._primed:
            return True
        if self._role.reader.reached(self.partition, record.timestamp):
            if self._role.reader.at_end(self.partition) and self.lag() <= 1:
                self._caught_up()
            return True
        if time.monotonic() > self._prime_deadline:
            log.warning(
                "snapshots lag behind events; going on without",
                extra={"topic": self.topic, "partition": self.partition},
            )
            self._caught_up()
            return True
        return False

    def _trace_is_at_hand(self, record: Record) -> bool:
        """Whether the engine has what it needs to reopen a session that it has no trace of in memory."""
        if self._sought is not None:
            return self._sought == record.offset and self._found
        try:
            event = self._role.decoder.decode(record.value)
        except UndecodableError:
            return True
        session = (event.vehicle_id, event.session_id)
        closed = self._engine.closed(*session)
        if closed is None or not closed.lacks_trace:
            return True
        if not (isinstance(event, SessionEnd) and event.is_failure):
            return True
        if self.ledger.accounts_for(session, record.offset):
            return True
        self._sought, self._found = record.offset, False
        self._role.keep(asyncio.create_task(self._seek_trace(session, closed)))
        return False

    async def _seek_trace(self, session: tuple[str, str], closed: ClosedSession) -> None:
        context = self.context
        topic = context.settings.topics.traces

        def seek() -> Trace | None:
            value = find_trace(
                context.reading(),
                topic,
                context.partitions.beside(topic, self.partition),
                session=session,
                since_ms=closed.wall_ms - _SEEK_MARGIN_MS,
                limit=_SOUGHT,
            )
            return None if value is None else Trace.model_validate_json(unframed(value))

        trace = await asyncio.get_running_loop().run_in_executor(context.executor, seek)
        if trace is not None:
            closed.keep(trace)
        self._found = True
        self._drain()

    def _caught_up(self) -> None:
        self._primed = True
        self._role.reader.caught_up(self.partition)

    def process(self, record: Record) -> None:
        """Decode one event, give it to the engine, publish what comes of it."""
        held = self._engine.hold_offset
        held = record.offset if held is None else min(held, record.offset)
        self._recent = record
        self._sought = None
        self._prime_deadline = time.monotonic() + _PRIME_TIMEOUT_S
        self.hold.passed(record.offset, record.timestamp)
        try:
            event = self._decode(record)
        except UndecodableError as error:
            self._count("dead_lettered")
            self.put_aside(record, error.reason, error.detail, stage="decode", held=self.hold.acquire(held))
            return
        if self.ledger.accounts_for((event.vehicle_id, event.session_id), record.offset):
            return  # read again; the session's trace is out and this event went into it
        now = self.context.now_ms()
        effects = self._engine.apply(
            event, record.source(), size=record.size, broker_ts=record.timestamp, wall_ms=now
        )
        self._judge_intake(effects)
        self._emit(effects, held)

    def tick(self, now_ms: int) -> None:
        """Close what silence, grace and bounds close, also when nothing arrives."""
        super().tick(now_ms)
        if not self.ready or not self.idle:
            return
        if not self._primed and self.lag() == 0:
            self._caught_up()
        held = self._engine.hold_offset
        effects = self._engine.advance(
            now_ms,
            catching_up=self._catching_up(now_ms),
            snapshots_until=self._role.reader.read_until(self.partition),
        )
        if effects:
            self._emit(effects, held if held is not None else (self.hold.position or 0))
        self.ledger.forget_before(self.hold.committable or 0)

    def close(self) -> None:
        """The partition goes: its vehicles too."""
        super().close()
        self._engine.discard()
        self._role.reader.unassign(self.partition)

    def _catching_up(self, now_ms: int) -> bool:
        """Whether silence would be ours and not the vehicle's.

        Old events are still waiting, or the broker has not answered all the time: what was sent meanwhile,
        if it could be sent, comes only now.
        """
        heard = self.context.last_contact_ms(self.topic, self.partition)
        silence_ms = self.context.settings.engine.silence_ms
        if heard is None or now_ms - heard > max(_FETCH_MS, min(_STALE_MS, silence_ms // 2)):
            self._in_touch_since = None
            return True
        if self._in_touch_since is None:
            self._in_touch_since = now_ms
        if now_ms - self._in_touch_since < silence_ms:
            return True
        if self.lag() > 0 and self.last_timestamp < now_ms - _STALE_MS:
            return True
        return not self._primed

    def _decode(self, record: Record) -> SessionStart | StepEvent | SessionEnd:
        event = self._role.decoder.decode(record.value)
        if record.key != event.vehicle_id.encode("utf-8", "surrogatepass"):
            raise UndecodableError(
                DeadLetterReason.WRONG_KEY, "the record's key is not the event's vehicle_id"
            )
        self._role.keys.check(record)
        return event

    def _judge_intake(self, effects: Iterable[Effect]) -> None:
        result = "accepted"
        for effect in effects:
            if isinstance(effect, DuplicateIgnored):
                result = "duplicate"
            elif isinstance(effect, DeadLettered):
                result = "dead_lettered"
        self._count(result)
        if result == "dead_lettered":
            self.context.guard.bad()
        else:
            self.context.guard.good()

    def _count(self, result: str) -> None:
        self.context.metrics.events.labels(result).inc()

    def _emit(self, effects: Sequence[Effect], held: int) -> None:
        """Publish effects in their order. What needs bytes that are gone from memory reads them again."""
        missing = {
            source.offset
            for effect in effects
            for source in _sources(effect)
            if self._recent is None or source.offset != self._recent.offset
        }
        records = {} if self._recent is None else {self._recent.offset: self._recent}
        ticket = self.hold.acquire(held)
        if missing:
            task = asyncio.create_task(self._emit_later(list(effects), missing, records, ticket))
            self._role.keep(task)
        else:
            self._publish(effects, records, ticket)

    async def _emit_later(
        self, effects: Sequence[Effect], missing: set[int], records: dict[int, Record], ticket: int
    ) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self.context.executor,
            lambda: fetch(self.context.reading(), self.topic, self.partition, missing),
        )
        if len(found) < len(missing):
            log.error(
                "records to dead-letter are gone from their topic; is its retention too short?",
                extra={"topic": self.topic, "partition": self.partition, "count": len(missing) - len(found)},
            )
        self._publish(effects, {**found, **records}, ticket)

    def _publish(self, effects: Sequence[Effect], records: dict[int, Record], ticket: int) -> None:
        pairs: list[Pair] = []
        for effect in effects:
            if isinstance(effect, TraceClosed):
                pairs.extend(self._trace(effect.trace))
            elif isinstance(effect, DeadLettered):
                pairs.extend(self._late(effect, records))
            elif isinstance(effect, SessionQuarantined):
                pairs.extend(self._quarantine(effect, records))
        if pairs:
            self.submit(pairs, held=ticket)
        else:
            self.hold.release(ticket)

    def _trace(self, trace: Trace) -> Iterable[Pair]:
        metrics = self.context.metrics
        if self.ledger.has(trace.trace_id, trace.revision):
            return
        topic = self.context.settings.topics.traces
        # Headroom for the headers and for what the broker counts beside the value.
        whole, value = fit(trace, self.context.settings.kafka.max_message_bytes - 16_384)
        if whole is not trace:
            metrics.traces_cut.inc()
            log.warning(
                "trace cut to fit a record",
                extra={"trace_id": trace.trace_id, "topic": topic, "bytes": len(value)},
            )
        metrics.sessions_closed.labels(trace.close_reason.value).inc()
        if trace.revision > 1:
            metrics.sessions_reopened.inc()
        mark = self.ledger.mark(
            trace.trace_id,
            (self.hold.position or 1) - 1,
            revision=trace.revision,
            session=(trace.vehicle_id, trace.session_id),
        )
        partition = self.context.partitions.beside(topic, self.partition)
        closed = self._closed_headers(trace.vehicle_id, trace.session_id, mark.offset)
        yield Output(topic, partition, _key(trace.vehicle_id), value, closed), mark

    def _late(self, effect: DeadLettered, records: dict[int, Record]) -> Iterable[Pair]:
        record = records.get(effect.source.offset)
        if record is None:
            return
        pair = self.dead_letter(
            record,
            effect.reason,
            effect.detail,
            vehicle_id=effect.vehicle_id,
            session_id=effect.session_id,
        )
        if pair is not None:
            yield pair

    def _quarantine(self, effect: SessionQuarantined, records: dict[int, Record]) -> Iterable[Pair]:
        self.context.metrics.sessions_quarantined.inc()
        log.error(
            "session quarantined; its events are dead letters",
            extra={"partition": self.partition, "topic": self.topic, "detail": effect.error[:200]},
        )
        for source in effect.sources:
            record = records.get(source.offset)
            if record is None:
                continue
            pair = self.dead_letter(
                record,
                DeadLetterReason.QUARANTINED,
                effect.error,
                vehicle_id=effect.vehicle_id,
                session_id=effect.session_id,
            )
            if pair is not None:
                yield pair
        topic = self.context.settings.topics.sessions
        summary = effect.summary
        if self.ledger.has(summary.summary_id, summary.revision):
            return
        self.context.metrics.summaries.inc()
        mark = self.ledger.mark(
            summary.summary_id,
            (self.hold.position or 1) - 1,
            revision=summary.revision,
            session=(effect.vehicle_id, effect.session_id),
        )
        partition = self.context.partitions.beside(topic, self.partition)
        value = summary.model_dump_json().encode("utf-8", "surrogatepass")
        closed = self._closed_headers(effect.vehicle_id, effect.session_id, mark.offset)
        yield Output(topic, partition, _key(effect.vehicle_id), value, closed), mark

    def _closed_headers(self, vehicle_id: str, session_id: str, offset: int) -> Headers:
        closed = self._engine.closed(vehicle_id, session_id)
        if closed is None:
            return ()
        mark = ClosedMark(
            vehicle_id,
            session_id,
            offset,
            closed.wall_ms,
            closed.highest_seq,
            closed.missing,
            closed.is_quarantined,
        )
        return mark.headers()

    def refuse(self, refused: Iterable[Refused]) -> None:
        """Dead-letter snapshots of this partition, once it is known which are out already."""
        if not self._snapshots_ready:
            self._refused.extend(refused)
            return
        for item in refused:
            self.context.guard.bad()
            self.context.metrics.snapshots.labels("dead_lettered").inc()
            pair = self.dead_letter(
                item.record, item.reason, item.detail, stage="snapshot", ledger=self._snapshot_ledger
            )
            if pair is not None:
                self.submit([pair], held=_NO_TICKET)


def _sources(effect: Effect) -> Sequence[SourceRef]:
    if isinstance(effect, DeadLettered):
        return (effect.source,)
    return effect.sources if isinstance(effect, SessionQuarantined) else ()


def _key(vehicle_id: str) -> bytes:
    return vehicle_id.encode("utf-8", "surrogatepass")


class Assemble(PartitionedRole[AssembleUnit]):
    """See the module."""

    name = NAME

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings
        self.topic = settings.topics.session_events
        guard = threading.Lock()
        self.snapshots = SnapshotLog(settings.snapshots)
        self._states = SharedStates(self.snapshots, guard)
        self.budget = OpenSessionBudget(settings.engine.max_open_sessions)
        self.decoder: Decoder[SessionStart | StepEvent | SessionEnd] = Decoder(
            SESSION_EVENT, max_bytes=_MAX_EVENT_BYTES
        )
        self.keys = KeyCheck(context.partitions, context.metrics, context.health)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.reader = SnapshotReader(
            context.reading(),
            settings.topics.vehicle_snapshots,
            self.snapshots,
            guard=guard,
            refused=lambda refused: self._from_reader(self._refused, refused),
            accepted=lambda count: self._from_reader(self._accepted, count),
            new_key=lambda record: self._from_reader(self._look_at_key, record),
            failed=lambda error: self._from_reader(context.fatal, error),
            lookback_ms=SNAPSHOT_LOOKBACK_MS,
        )

    def engine(self) -> SessionEngine:
        """A fresh engine for a partition."""
        settings = self.context.settings
        return SessionEngine(settings.engine, self._states, graph=settings.graph, budget=self.budget)

    def unit(self, partition: int) -> AssembleUnit:
        """See :class:`PartitionedRole`."""
        return AssembleUnit(self, partition)

    async def start(self) -> None:
        """Start the snapshot reader."""
        self.reader.start()

    def tick(self, now_ms: int) -> None:
        """Also reports what the engines and the log hold."""
        super().tick(now_ms)
        metrics = self.context.metrics
        metrics.open_sessions.set(sum(unit.open_sessions for unit in self.units.values()))
        metrics.snapshot_log_bytes.set(self.snapshots.memory_bytes)
        metrics.snapshot_log_vehicles.set(self.snapshots.vehicles)

    async def stop(self) -> None:
        """Let out what is under way, then stop reading snapshots."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().stop()
        await asyncio.get_running_loop().run_in_executor(self.context.executor, self.reader.stop)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference to a task until it is done; what it raises ends the process."""
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.context.fatal(error)

    def _from_reader(self, call: Callable[[Any], None], argument: Any) -> None:
        """From the reader's thread to the event loop, which may be closed already."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, argument)

    def _look_at_key(self, record: Record) -> None:
        self.keys.check(record)

    def _refused(self, refused: list[Refused]) -> None:
        for item in refused:
            unit = self.units.get(item.record.partition)
            if unit is not None:
                unit.refuse([item])

    def _accepted(self, count: int) -> None:
        self.context.metrics.snapshots.labels("accepted").inc(count)
        self.context.guard.good(count)
        self.context.health.progress()
