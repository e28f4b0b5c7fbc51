"""A finished trace: steps in session order, joined with vehicle state and the dependency graph."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from cockpithat.contract.base import (
    CONTRACT_VERSION,
    CloseReason,
    Outcome,
    SchemaVersion,
    VehicleStateCoverage,
    WireModel,
)
from cockpithat.contract.events import AgentInfo, IntendedChange, MemoryRef, PlanItem, ToolCall, ToolOutput
from cockpithat.contract.vehicle import SignalQuality, VssValue


class SourceRef(WireModel):
    """Where a record came from: enough to find its bytes again and to check them."""

    topic: str
    partition: int = 0
    offset: int = 0
    digest: str = ""  # SHA-256 of the record's value, hex


class StateChange(WireModel):
    """One transition of one signal, seen between a step and the next."""

    path: str
    before: VssValue = None
    after: VssValue = None
    before_quality: SignalQuality = SignalQuality.VALID
    ts: int  # epoch ms, on the 100 ms grid


class StepState(WireModel):
    """Vehicle state around a step, on a 100 ms grid (paper, DP4).

    ``before`` is the state at the step's time, ``after`` the state at the next step's (for the last
    step: at the end of the window). Both hold the signals worth carrying: watched by a rule, intended by a
    step, or changed in the session. A value that cannot be used is ``None``; ``quality`` says why for
    ``before``, ``after_quality`` for ``after``, and both list only signals that are not valid.
    """

    before_ts: int
    after_ts: int
    before: dict[str, VssValue] = Field(default_factory=dict)
    after: dict[str, VssValue] = Field(default_factory=dict)
    changes: tuple[StateChange, ...] = ()
    quality: dict[str, SignalQuality] = Field(default_factory=dict)
    after_quality: dict[str, SignalQuality] = Field(default_factory=dict)


class Step(WireModel):
    """One step. ``index`` is the 0-based position in the trace and what a report's ``step`` means."""

    index: int
    seq: int
    event_id: str
    ts: int
    agent: str
    mode: str = "message"
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_outputs: tuple[ToolOutput, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    memory: tuple[MemoryRef, ...] = ()
    in_reply_to: str | None = None
    plan: tuple[PlanItem, ...] = ()
    plan_item: str | None = None
    target: str | None = None
    intended: tuple[IntendedChange, ...] = ()
    state: StepState | None = None
    source: SourceRef | None = None


class Signal(StrEnum):
    """The four operational signals that induce an edge (paper, section 3.1)."""

    REFERENCE = "reference"
    PLAN = "plan"
    TOOL = "tool"
    CONTROL = "control"


class EdgeEvidence(WireModel):
    """Why an edge exists: the signal and the thing that matched."""

    signal: Signal
    what: str


class Edge(WireModel):
    """``target`` depends on ``source`` (``source < target``, both step indices)."""

    source: int
    target: int
    evidence: tuple[EdgeEvidence, ...]


class TraceGraph(WireModel):
    """The dependency graph in wire form.

    ``lost_to_lookback`` counts edges longer than the look-back cap, ``lost_to_cap`` those beyond the cap
    on edges into one step.
    """

    edges: tuple[Edge, ...] = ()
    lookback: int = 0
    lost_to_lookback: int = 0
    lost_to_cap: int = 0


class Trace(WireModel):
    """One finished session, on ``cockpit.traces.v1``, keyed by vehicle."""

    type: Literal["trace"] = "trace"
    schema_version: SchemaVersion = CONTRACT_VERSION
    trace_id: str
    revision: int = 1
    vehicle_id: str
    session_id: str
    task: str = ""
    roster: tuple[AgentInfo, ...] = ()
    market: str | None = None
    locale: str | None = None
    software_version: str | None = None
    models: dict[str, str] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    vss_version: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    failed: bool = True
    failure_reason: str | None = None
    final_answer: str = ""
    close_reason: CloseReason = CloseReason.IMPORTED
    truncated: bool = False
    clock_suspect: bool = False
    timestamps_synthetic: bool = False
    vehicle_state: VehicleStateCoverage = VehicleStateCoverage.NONE
    started_ts: int = 0
    ended_ts: int = 0
    missing_seqs: tuple[tuple[int, int], ...] = ()  # inclusive ranges of seq that never arrived
    steps: tuple[Step, ...] = ()
    graph: TraceGraph | None = None
    first_source: SourceRef | None = None
    last_source: SourceRef | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the roster, then of those that spoke without being on it, in order of appearance."""
        names = dict.fromkeys(agent.name for agent in self.roster)
        names.update(dict.fromkeys(step.agent for step in self.steps))
        return tuple(names)

    @property
    def is_judged(self) -> bool:
        """Failed, ended without an end event, or cut short: attribution is due."""
        return self.failed or self.outcome == Outcome.UNKNOWN or self.truncated
