"""What is known about a simulated session and kept apart from its events: the labels file's records."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.contract.base import Asil, Category


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gold(_Record):
    """The computed label. ``step`` is the 0-based index among the session's steps."""

    step: int
    seq: int
    event_id: str
    ts: int
    agent: str
    category: Category
    asil: Asil
    severity: int
    exposure: int
    controllability: int
    rationale: str
    hazardous_event: str
    hazard_ts: int
    channel: Literal["c", "e", "sigma", "m"] = Field(description="where the decisive evidence lies")


class Marker(_Record):
    """One piece of evidence in one channel (DP1): a step, or signals at a time."""

    channel: Literal["c", "e", "sigma", "m"]
    step: int | None = None
    event_id: str | None = None
    ts: int | None = None
    keys: tuple[str, ...] = ()


class ReplayProof(_Record):
    """How the label was computed: replays up to the first correction that keeps the outcome safe."""

    replayed_steps: int
    earliest_helpful: int
    uninjected_run_is_safe: bool


class AnnotatorLabel(_Record):
    """One simulated annotator's record (appendix A.1.3). ``role``: dialogue, vehicle or safety."""

    role: Literal["dialogue", "vehicle", "safety"]
    simulated: Literal[True] = True
    agent: str
    step: int
    ts: int
    category: Category
    asil: Asil
    confidence: float
    evidence: tuple[Marker, ...] = ()


class ConsensusLabel(_Record):
    """What the rules make of three records; empty fields where a contested trace has no majority."""

    agent: str | None = None
    step: int | None = None
    category: Category | None = None
    asil: Asil
    unanimous: bool
    contested: bool
    method: Literal["unanimous", "majority", "contested"]


class AuditRecord(_Record):
    """The safety audit of one trace: the auditor's own rating, and whether the consensus was corrected."""

    simulated: Literal[True] = True
    selected_as: Literal["high_severity", "sample"]
    asil: Asil
    agrees: bool
    corrected_to: Asil | None = None


class Annotation(_Record):
    """Everything the annotation protocol left about one trace."""

    originals: tuple[AnnotatorLabel, ...]
    consensus: ConsensusLabel
    reannotation: tuple[AnnotatorLabel, ...] = ()
    audit: AuditRecord | None = None


class ScenarioRecord(_Record):
    """The scenario's metadata: initial state, goal, fault parameters, safe outcome."""

    family: str
    shape: str
    held_out: bool
    source: Literal["adapted_style", "telemetry_style", "adversarial"]
    language: str
    roster: str
    situation: str
    story: str
    goal: str
    safe_outcome: str
    initial_state: dict[str, Any]
    initial_scene: dict[str, Any]
    fault: dict[str, Any]
    side_conversations: tuple[str, ...]
    turns: int
    steps: int
    active_agents: int
    seconds: float


class SessionLabel(_Record):
    """One line of ``labels.jsonl``. ``kind``: failed, passed, or a hazard nobody flagged."""

    session_id: str
    vehicle_id: str
    kind: Literal["failed", "passed", "silent_hazard"]
    gold: Gold | None = None
    markers: tuple[Marker, ...] = ()
    scenario: ScenarioRecord
    proof: ReplayProof | None = None
    annotation: Annotation | None = None
