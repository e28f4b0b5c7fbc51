"""One open session: its events in order, its graph as far as it has grown, and its deadlines."""

from __future__ import annotations

from enum import Enum, auto

from cockpithat.contract.base import CloseReason
from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import SourceRef
from cockpithat.graph.builder import IncrementalGraph
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.reorder import ReorderBuffer

Event = SessionStart | StepEvent | SessionEnd


class Verdict(Enum):
    """What an event is to its session."""

    NEW = auto()
    DUPLICATE = auto()
    CONFLICT = auto()
    LATE = auto()


class OpenSession:
    """State of one session. An event costs a few dictionary look-ups, the reorder buffer's
    O(log limit), and one step's share of the graph, whatever the session's length."""

    __slots__ = (
        "broker_opened",
        "byte_count",
        "clock_suspect",
        "close_reason",
        "ends",
        "event_ids",
        "events",
        "first_source",
        "graph",
        "graph_settings",
        "is_done",
        "last_broker",
        "last_source",
        "last_wall",
        "max_step_ts",
        "reorder",
        "serial",
        "session_id",
        "snapshot_deadline",
        "start",
        "start_conflicts",
        "steps",
        "unordered",
        "vehicle_id",
    )

    def __init__(
        self,
        vehicle_id: str,
        session_id: str,
        *,
        source: SourceRef,
        serial: int,
        broker_ms: int,
        wall_ms: int,
        reorder_events: int,
        graph_settings: GraphSettings,
    ) -> None:
        self.vehicle_id = vehicle_id
        self.session_id = session_id
        self.serial = serial
        self.first_source = source
        self.last_source = source
        self.broker_opened = broker_ms
        self.last_wall = wall_ms
        self.last_broker = broker_ms  # newest broker time of its events
        self.byte_count = 0
        self.clock_suspect = False
        self.events: dict[int, tuple[Event, SourceRef]] = {}
        self.event_ids: dict[str, int] = {}
        self.reorder: ReorderBuffer[tuple[Event, SourceRef]] = ReorderBuffer(reorder_events)
        self.start: SessionStart | None = None
        self.start_conflicts: list[SourceRef] = []
        self.unordered: list[SourceRef] = []  # ends without a place of their own in the order
        self.steps: list[tuple[StepEvent, SourceRef]] = []
        self.ends: list[SessionEnd] = []
        self.max_step_ts = 0
        self.graph: IncrementalGraph | None = None
        self.graph_settings = graph_settings
        self.close_reason: CloseReason | None = None  # set once it only waits for snapshots
        self.snapshot_deadline: int | None = None
        self.is_done = False

    # ------------------------------------------------------------------ events

    def judge(self, event: Event) -> Verdict:
        """Whether an event is new here. Content is compared only when an id or a seq comes again."""
        seq = self.event_ids.get(event.event_id)
        if seq is not None:
            return Verdict.DUPLICATE if self._holds(seq, event) else Verdict.CONFLICT
        held = self.events.get(event.seq)
        if held is not None:
            if _is_failure_flag(event) and isinstance(held[0], SessionEnd) and not held[0].is_failure:
                return Verdict.NEW
            same = held[0].model_copy(update={"event_id": event.event_id})
            return Verdict.DUPLICATE if same == event else Verdict.CONFLICT
        if event.seq < self.reorder.next_seq and not isinstance(event, SessionEnd):
            return Verdict.LATE
        return Verdict.NEW

    def take(self, event: Event, source: SourceRef, size: int) -> None:
        """Keep a new event; steps whose turn it is join the graph."""
        self.last_source = source
        self.byte_count += size
        self.event_ids[event.event_id] = event.seq
        if isinstance(event, SessionEnd):
            self.ends.append(event)
        elif isinstance(event, StepEvent):
            self.max_step_ts = max(self.max_step_ts, event.ts)
        if event.seq in self.events or event.seq < self.reorder.next_seq:
            self.unordered.append(source)
            return  # an end that overrides another, or comes behind its turn: it has no place in the order
        self.events[event.seq] = (event, source)
        self._release(self.reorder.push(event.seq, (event, source)))

    def drain(self) -> None:
        """Give up all that is missing."""
        self._release(self.reorder.drain())

    def _release(self, released: list[tuple[Event, SourceRef]]) -> None:
        for event, source in released:
            if isinstance(event, StepEvent):
                if self.graph is None:
                    self.graph = self._new_graph()
                self.graph.add(event)
                self.steps.append((event, source))
            elif isinstance(event, SessionStart):
                if self.start is None:
                    self.start = event
                else:
                    self.start_conflicts.append(source)

    def _new_graph(self) -> IncrementalGraph:
        if self.start is None:
            return IncrementalGraph(self.graph_settings)
        return IncrementalGraph(
            self.graph_settings,
            task=self.start.task,
            roster=[agent.name for agent in self.start.roster],
        )

    def _holds(self, seq: int, event: Event) -> bool:
        held = self.events.get(seq)
        if held is not None and held[0].event_id == event.event_id:
            return held[0] == event
        return any(end == event for end in self.ends)

    def release(self) -> None:
        """Let go of all that a session which is over held: deadlines in heaps outlive it by minutes."""
        self.is_done = True
        self.events = {}
        self.event_ids = {}
        self.reorder = ReorderBuffer(0)
        self.start = None
        self.unordered = []
        self.steps = []
        self.ends = []
        self.graph = None

    # ------------------------------------------------------------------ what it amounts to

    @property
    def count(self) -> int:
        """Events taken."""
        return len(self.event_ids)

    @property
    def end(self) -> SessionEnd | None:
        """The end that counts: the last by ``seq`` that says failure, else the last by ``seq``."""
        failing = [end for end in self.ends if end.is_failure]
        return max(failing or self.ends, key=lambda end: end.seq, default=None)

    @property
    def is_complete(self) -> bool:
        """An end is here and all before it has come or was given up: no grace has to pass."""
        return bool(self.ends) and self.reorder.next_seq > max(end.seq for end in self.ends)

    @property
    def state_needed_until(self) -> int:
        """Time (vehicle's clock) up to which snapshots are needed: the last step, and the end."""
        return max([self.max_step_ts, *(end.ts for end in self.ends)])


def _is_failure_flag(event: Event) -> bool:
    return isinstance(event, SessionEnd) and event.is_failure
