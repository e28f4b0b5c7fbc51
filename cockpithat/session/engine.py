"""The session engine: events in, effects out; no clock, no I/O, one engine per input partition.

Cost. An event touches its own session, its vehicle's clock and the tops of three heaps: look-ups in
dictionaries plus O(log open sessions). Nothing ever walks over all open sessions: deadlines lie in
heaps whose entries are checked when they come up (a session that heard from its vehicle in between is
put back), and :meth:`SessionEngine.advance` looks only at those that are due and at those that wait
for snapshots.

Time. Three clocks are told apart. The vehicle's (``event.ts``) orders nothing and closes only a session
of the same vehicle whose end has passed by the grace; it is clamped to the broker's plus the skew, so
that one clock in 2099 closes nothing. The broker's bounds a session's age. The wall clock measures
silence, and is not used for that while a partition catches up: there silence is only our own delay.
"""

from __future__ import annotations

import heapq
import traceback
from collections.abc import Collection, Iterator
from pathlib import PurePath

from cockpithat.contract.base import CloseReason, Outcome
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.events import SessionEnd
from cockpithat.contract.trace import SourceRef, Trace
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.assembly import TRUNCATING, build_trace, quarantine_summary
from cockpithat.session.budget import OpenSessionBudget
from cockpithat.session.closed import ClosedMemory, ClosedSession, Key
from cockpithat.session.effects import (
    DeadLettered,
    DuplicateIgnored,
    Effect,
    SessionQuarantined,
    TraceClosed,
)
from cockpithat.session.settings import EngineSettings
from cockpithat.session.state import Event, OpenSession, Verdict
from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.states import NoVehicleStates, VehicleStates


class _VehicleClock:
    """Event time of one vehicle, and its sessions that have ended but still miss events."""

    __slots__ = ("ending", "open_sessions", "watermark")

    def __init__(self) -> None:
        self.watermark = 0
        self.open_sessions = 0
        self.ending: list[tuple[int, int, OpenSession]] = []


class SessionEngine:
    """Assembles the sessions of one partition.

    ``vehicles`` gives vehicle state; ``watched`` are the VSS paths that rules look at (by default all
    that the shipped catalogue knows); ``budget`` is shared by the engines of one worker. Not
    thread-safe.
    """

    def __init__(
        self,
        settings: EngineSettings | None = None,
        vehicles: VehicleStates | None = None,
        *,
        graph: GraphSettings | None = None,
        budget: OpenSessionBudget | None = None,
        watched: Collection[str] | None = None,
    ) -> None:
        self._settings = settings or EngineSettings()
        self._vehicles: VehicleStates = vehicles or NoVehicleStates()
        self._graph = graph or GraphSettings()
        self._budget = budget or OpenSessionBudget(self._settings.max_open_sessions)
        self._watched = frozenset(SignalCatalogue.shipped().paths() if watched is None else watched)
        self._open: dict[Key, OpenSession] = {}  # in order of opening
        self._waiting: dict[Key, OpenSession] = {}  # over, but snapshots are due
        self._closed = ClosedMemory(
            self._settings.remember_closed,
            self._settings.remember_closed_ms,
            self._settings.remember_closed_bytes,
        )
        self._clocks: dict[str, _VehicleClock] = {}
        self._silence: list[tuple[int, int, OpenSession]] = []
        self._holds: list[tuple[int, int, OpenSession]] = []
        self._position = -1
        self._snapshots_until: int | None = None
        self._serial = 0

    # ------------------------------------------------------------------ what the host calls

    def apply(
        self, event: Event, source: SourceRef, *, size: int, broker_ts: int, wall_ms: int
    ) -> list[Effect]:
        """Take one event.

        ``source.offset`` must not fall as events come, except when a partition is read again: what
        lies before the position already reached is known, and ignored. ``size`` is the record's
        length in bytes, ``broker_ts`` its Kafka timestamp (0 or less: none), ``wall_ms`` the time now
        (0 for a file: there is no wall clock). Never raises for what an event contains.
        """
        if source.offset < self._position:
            return [DuplicateIgnored(source)]
        self._position = source.offset
        broker_ms = self._believed(broker_ts, wall_ms) or event.ts
        key = (event.vehicle_id, event.session_id)
        session = self._open.get(key)
        if session is None:
            closed = self._closed.get(key)
            if closed is not None:
                return [self._after_close(closed, event, source)]
            session = self._begin(key, source, broker_ms, wall_ms)
        effects: list[Effect] = []
        try:
            effects += self._take(session, event, source, size, broker_ms, wall_ms)
        except MemoryError:
            raise
        except Exception as error:
            effects.append(self._quarantine(session, error, wall_ms, source))
        effects += self._pass_event_time(event, broker_ms, wall_ms)
        while self._budget.is_exceeded and len(self._open) > 1:
            oldest = next(iter(self._open.values()))
            effects += self._finish(oldest, CloseReason.MAX_OPEN_SESSIONS, wall_ms)
        return effects

    def advance(
        self, wall_ms: int, *, catching_up: bool = False, snapshots_until: int | None = None
    ) -> list[Effect]:
        """Let wall-clock time pass: close what fell silent and what waited long enough for snapshots.

        Call it a few times a second, on a silent partition too. ``catching_up`` says that the
        partition's backlog is not read yet: then no silence is believed. ``snapshots_until`` is the broker
        time up to which snapshots were read, ``None`` when all that there are were: a snapshot that is there
        and was not read yet is not missing, so no session gives up on it because this worker is behind.
        """
        self._snapshots_until = snapshots_until
        effects: list[Effect] = []
        while not catching_up and self._silence and self._silence[0][0] <= wall_ms:
            _, serial, session = heapq.heappop(self._silence)
            if session.is_done or session.close_reason is not None:
                continue
            deadline = self._silence_deadline(session)
            if deadline > wall_ms:
                heapq.heappush(self._silence, (deadline, serial, session))
                continue
            reason = CloseReason.END_EVENT if session.ends else CloseReason.SILENCE
            effects += self._close(session, reason, wall_ms)
        for session in list(self._waiting.values()):
            if self._is_due(session, wall_ms) or not self._lacks_snapshots(session):
                effects += self._finish(session, session.close_reason or CloseReason.SILENCE, wall_ms)
        self._closed.expire(wall_ms)
        return effects

    def flush(self, wall_ms: int) -> list[Effect]:
        """Close every session, oldest first: a finite input is over and nothing more will come."""
        effects: list[Effect] = []
        for session in list(self._open.values()):
            default = CloseReason.END_EVENT if session.ends else CloseReason.SHUTDOWN
            effects += self._finish(session, session.close_reason or default, wall_ms)
        return effects

    def discard(self) -> None:
        """Drop everything unfinished: the partition went to another worker, who reads it again."""
        self._budget.release(len(self._open))
        for session in self._open.values():
            session.is_done = True
        self._open.clear()
        self._waiting.clear()
        self._clocks.clear()
        self._silence.clear()
        self._holds.clear()

    @property
    def open_sessions(self) -> int:
        """Sessions open or waiting for snapshots."""
        return len(self._open)

    @property
    def hold_offset(self) -> int | None:
        """Lowest offset that an unfinished session still needs; ``None`` when there is none."""
        session = self._holder()
        return None if session is None else session.first_source.offset

    def closed(self, vehicle_id: str, session_id: str) -> ClosedSession | None:
        """What is remembered of a session that is over; ``None`` if it is open, unknown or forgotten."""
        return self._closed.get((vehicle_id, session_id))

    @property
    def has_shrunk(self) -> bool:
        """Whether a closed session lost its trace for want of room (``remember_closed_bytes``)."""
        return self._closed.has_shrunk

    def recall(self, vehicle_id: str, session_id: str, closed: ClosedSession) -> None:
        """Remember a session that an earlier owner of the partition closed.

        What still comes of it is then late, and opens no fragment of it anew.
        """
        self._closed.remember((vehicle_id, session_id), closed)

    def sessions(self) -> Iterator[Key]:
        """Vehicle and session of each unfinished session, oldest first."""
        return iter(tuple(self._open))

    # ------------------------------------------------------------------ an event in its session

    def _begin(self, key: Key, source: SourceRef, broker_ms: int, wall_ms: int) -> OpenSession:
        self._serial += 1
        session = OpenSession(
            *key,
            source=source,
            serial=self._serial,
            broker_ms=broker_ms,
            wall_ms=wall_ms,
            reorder_events=self._settings.reorder_events,
            graph_settings=self._graph,
        )
        self._open[key] = session
        self._budget.acquire()
        clock = self._clocks.get(key[0])
        if clock is None:
            clock = self._clocks[key[0]] = _VehicleClock()
        clock.open_sessions += 1
        heapq.heappush(self._holds, (source.offset, session.serial, session))
        heapq.heappush(self._silence, (wall_ms + self._settings.silence_ms, session.serial, session))
        return session

    def _take(
        self,
        session: OpenSession,
        event: Event,
        source: SourceRef,
        size: int,
        broker_ms: int,
        wall_ms: int,
    ) -> list[Effect]:
        session.last_wall = max(session.last_wall, wall_ms)
        session.last_broker = max(session.last_broker, broker_ms)
        match session.judge(event):
            case Verdict.DUPLICATE:
                return [DuplicateIgnored(source)]
            case Verdict.CONFLICT:
                return [_conflict(event, source)]
            case Verdict.LATE:
                return [_late(event, source, "its place in the session was given up")]
            case Verdict.NEW:
                pass
        if session.close_reason in TRUNCATING and not isinstance(event, SessionEnd):
            return [_late(event, source, f"the session was cut short ({session.close_reason})")]
        if event.ts > broker_ms + self._settings.max_skew_ms:
            session.clock_suspect = True
        session.take(event, source, size)
        effects = self._start_conflicts(session)
        if session.close_reason in TRUNCATING:
            return effects
        if session.close_reason is not None:
            self._resume(session)
        return effects + self._settle(session, event, broker_ms, wall_ms)

    def _settle(self, session: OpenSession, event: Event, broker_ms: int, wall_ms: int) -> list[Effect]:
        """Close a session that is whole or at a bound; set the deadlines of one that ended with gaps."""
        settings = self._settings
        if session.is_complete:
            return self._close(session, CloseReason.END_EVENT, wall_ms)
        if session.count >= settings.max_events:
            return self._close(session, CloseReason.MAX_EVENTS, wall_ms)
        if session.byte_count >= settings.max_bytes:
            return self._close(session, CloseReason.MAX_BYTES, wall_ms)
        if broker_ms - session.broker_opened >= settings.max_age_ms:
            return self._close(session, CloseReason.MAX_AGE, wall_ms)
        if isinstance(event, SessionEnd):
            clock = self._clocks[session.vehicle_id]
            heapq.heappush(clock.ending, (event.ts + settings.grace_ms, session.serial, session))
            heapq.heappush(self._silence, (self._silence_deadline(session), session.serial, session))
        return []

    def _resume(self, session: OpenSession) -> None:
        """Something came after all while the session waited for snapshots."""
        if session.close_reason == CloseReason.SILENCE:
            session.snapshot_deadline = None
        session.close_reason = None
        self._waiting.pop((session.vehicle_id, session.session_id), None)
        heapq.heappush(self._silence, (self._silence_deadline(session), session.serial, session))

    def _start_conflicts(self, session: OpenSession) -> list[Effect]:
        effects: list[Effect] = [
            DeadLettered(
                source,
                DeadLetterReason.CONFLICT,
                "the session has a session_start with a lower seq; send one a session",
                session.vehicle_id,
                session.session_id,
            )
            for source in session.start_conflicts
        ]
        session.start_conflicts.clear()
        return effects

    # ------------------------------------------------------------------ time

    def _believed(self, broker_ts: int, wall_ms: int) -> int:
        """The broker's time, which a producer may have set: never far ahead of the wall clock."""
        if wall_ms <= 0:
            return max(0, broker_ts)
        return wall_ms if broker_ts <= 0 else min(broker_ts, wall_ms + self._settings.max_skew_ms)

    def _silence_deadline(self, session: OpenSession) -> int:
        wait = self._settings.silence_ms
        if session.ends:
            wait = min(wait, self._settings.end_wait_ms)
        return session.last_wall + wait

    def _pass_event_time(self, event: Event, broker_ms: int, wall_ms: int) -> list[Effect]:
        clock = self._clocks.get(event.vehicle_id)
        if clock is None:
            return []
        believed = min(event.ts, broker_ms + self._settings.max_skew_ms)
        clock.watermark = max(clock.watermark, believed)
        effects: list[Effect] = []
        while clock.ending and clock.ending[0][0] <= clock.watermark:
            _, _, session = heapq.heappop(clock.ending)
            if session.is_done or session.close_reason is not None:
                continue
            effects += self._close(session, CloseReason.END_EVENT, wall_ms)
        return effects

    # ------------------------------------------------------------------ closing

    def _close(self, session: OpenSession, reason: CloseReason, wall_ms: int) -> list[Effect]:
        """Finish a session, or let it wait for the snapshots its vehicle sends."""
        session.close_reason = reason
        if not self._lacks_snapshots(session):
            return self._finish(session, reason, wall_ms)
        if session.snapshot_deadline is None:
            session.snapshot_deadline = wall_ms + self._settings.snapshot_wait_ms
        if self._is_due(session, wall_ms):
            return self._finish(session, reason, wall_ms)
        self._waiting[session.vehicle_id, session.session_id] = session
        return []

    def _is_due(self, session: OpenSession, wall_ms: int) -> bool:
        """Whether a session has waited for snapshots as long as it may."""
        deadline, settings = session.snapshot_deadline, self._settings
        if deadline is None or wall_ms < deadline:
            return False
        read = self._snapshots_until
        is_read = read is None or read >= session.last_broker + settings.snapshot_wait_ms
        # A reader that does not come up at all holds nothing for ever.
        return is_read or wall_ms >= deadline + settings.silence_ms

    def _lacks_snapshots(self, session: OpenSession) -> bool:
        if not session.max_step_ts:
            return False
        announced = session.start.sends_snapshots if session.start else None
        if announced is False or (announced is None and not self._vehicles.sends(session.vehicle_id)):
            return False
        covered = self._vehicles.covered_until(session.vehicle_id)
        return covered is None or covered < session.state_needed_until

    def _finish(self, session: OpenSession, reason: CloseReason, wall_ms: int) -> list[Effect]:
        session.close_reason = reason
        try:
            trace = build_trace(session, reason, self._vehicles, self._watched, self._settings)
        except MemoryError:
            raise
        except Exception as error:
            return [self._quarantine(session, error, wall_ms)]
        effects = self._start_conflicts(session)
        self._retire(session, trace, wall_ms)
        return [*effects, TraceClosed(trace)]

    def _quarantine(
        self, session: OpenSession, error: Exception, wall_ms: int, current: SourceRef | None = None
    ) -> SessionQuarantined:
        described = _describe(error)
        sources = {source.offset: source for _, source in session.events.values()}
        sources.update((source.offset, source) for source in session.unordered)
        if current is not None:
            sources[current.offset] = current
        summary = quarantine_summary(session, described)
        self._retire(session, None, wall_ms)
        return SessionQuarantined(
            session.vehicle_id,
            session.session_id,
            tuple(sources[offset] for offset in sorted(sources)),
            described,
            summary,
        )

    def _retire(self, session: OpenSession, trace: Trace | None, wall_ms: int) -> None:
        key = (session.vehicle_id, session.session_id)
        self._open.pop(key, None)
        self._waiting.pop(key, None)
        self._budget.release()
        clock = self._clocks[session.vehicle_id]
        clock.open_sessions -= 1
        if not clock.open_sessions:
            del self._clocks[session.vehicle_id]
        self._closed.remember(
            key,
            ClosedSession(
                trace=trace,
                event_ids=session.event_ids,
                highest_seq=max(session.event_ids.values(), default=-1),
                missing=tuple(session.reorder.missing),
                wall_ms=wall_ms,
                is_quarantined=trace is None,
            ),
        )
        session.release()

    def _holder(self) -> OpenSession | None:
        while self._holds and self._holds[0][2].is_done:
            heapq.heappop(self._holds)
        return self._holds[0][2] if self._holds else None

    # ------------------------------------------------------------------ after the close

    def _after_close(self, closed: ClosedSession, event: Event, source: SourceRef) -> Effect:
        if closed.is_quarantined:
            return DeadLettered(
                source,
                DeadLetterReason.QUARANTINED,
                "its session is quarantined",
                event.vehicle_id,
                event.session_id,
            )
        is_flag = isinstance(event, SessionEnd) and event.is_failure
        # Without ids a seq tells what the session had; a trace that can be reopened had no failure flag.
        is_new_flag = is_flag and closed.event_ids is None and closed.can_reopen
        if closed.had(event) and not is_new_flag:
            return DuplicateIgnored(source)
        if isinstance(event, SessionEnd) and is_flag:
            return self._reopen(closed, event, source)
        if closed.had_seq(event.seq):
            return _conflict(event, source)
        return _late(event, source, "its session has closed")

    def _reopen(self, closed: ClosedSession, end: SessionEnd, source: SourceRef) -> Effect:
        """A failure flag came late: the same trace again, as the next revision, with that outcome."""
        if closed.is_flagged:
            return _late(end, source, "its session has closed as a failure already")
        trace = closed.trace()
        if trace is None:
            return _late(end, source, "its session closed too long ago to be judged anew")
        if closed.event_ids is not None:
            closed.event_ids.add(end.event_id)
        if end.seq > closed.highest_seq + 1:
            closed.missing = (*closed.missing, (closed.highest_seq + 1, end.seq - 1))
        closed.highest_seq = max(closed.highest_seq, end.seq)
        is_cut = trace.close_reason in TRUNCATING
        reopened = trace.model_copy(
            update={
                "revision": trace.revision + 1,
                "outcome": Outcome.FAILURE,
                "failed": True,
                "failure_reason": end.failure_reason or trace.failure_reason,
                "final_answer": end.final_answer or trace.final_answer,
                "close_reason": trace.close_reason if is_cut else CloseReason.END_EVENT,
                "ended_ts": max(trace.ended_ts, end.ts),
                "last_source": source,
            }
        )
        closed.keep(reopened)
        return TraceClosed(reopened)


def _late(event: Event, source: SourceRef, why: str) -> DeadLettered:
    detail = f"{event.type} with seq {event.seq} came late: {why}"
    return DeadLettered(source, DeadLetterReason.LATE, detail, event.vehicle_id, event.session_id)


def _conflict(event: Event, source: SourceRef) -> DeadLettered:
    detail = f"{event.type} with seq {event.seq}: the session has other content under this seq or event_id"
    return DeadLettered(source, DeadLetterReason.CONFLICT, detail, event.vehicle_id, event.session_id)


def _describe(error: Exception) -> str:
    """Kind and place of a failure; its message may quote a trace and is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    place = (
        f" in {frames[-1].name} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    )
    return f"{type(error).__name__}{place}"
