"""What comes out: reports, alerts, review requests, suspicions, session summaries and metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from cockpithat.contract.base import (
    CONTRACT_VERSION,
    Asil,
    Category,
    CloseReason,
    Outcome,
    SchemaVersion,
    VehicleStateCoverage,
    WireModel,
)
from cockpithat.contract.trace import SourceRef

INDICATIVE_NOTICE = (
    "Indicative rating from a heuristic hazard analysis after the fact. It supports human judgement "
    "and does not replace a hazard analysis and risk assessment according to ISO 26262."
)


class Evidence(WireModel):
    """One observable fact a verdict rests on, quoted from the trace and never from elsewhere.

    ``kind`` is the slug of the detector or analyst that found it, ``channel`` the paper's channel:
    ``c`` dialogue, ``e`` environment, ``sigma`` vehicle state, ``m`` memory.
    """

    kind: str
    step: int | None = None
    agent: str | None = None
    channel: Literal["c", "e", "sigma", "m"] = "c"
    text: str = ""
    paths: tuple[str, ...] = ()
    weight: float | None = None
    source: SourceRef | None = None


class Hazard(WireModel):
    """One hazardous event that a rule found, with its classification (ISO 26262-3, table 4)."""

    rule: str
    hazardous_event: str
    situation: str
    step: int | None = None
    severity: int = Field(ge=0, le=3)
    exposure: int = Field(ge=0, le=4)
    controllability: int = Field(ge=0, le=3)
    asil: Asil
    rationale: str = ""
    modifiers: tuple[str, ...] = ()  # circumstances that changed the rule's own classes
    active_at_end: bool = False
    evidence: tuple[Evidence, ...] = ()


class SeverityRating(WireModel):
    """The verdict's rating and where it comes from. ``asil`` is never below ``floor``."""

    asil: Asil = Asil.UNRATED
    floor: Asil = Asil.UNRATED
    paging: Asil = Asil.UNRATED  # the floor with the rules' own exposure: rare weather silences no page
    raised_by: str | None = None  # the analyst that raised it above the floor
    hazardous_event: str | None = None
    situation: str | None = None
    severity: int | None = None
    exposure: int | None = None
    controllability: int | None = None
    rule: str | None = None
    rationale: str = ""
    hazards: tuple[Hazard, ...] = ()
    indicative: Literal[True] = True
    notice: str = INDICATIVE_NOTICE


class Hypothesis(WireModel):
    """One analyst's vote: the paper's ``h_k = (s, a, tau, eta)`` with confidence ``c_k``."""

    analyst: str
    step: int | None = None
    agent: str | None = None
    category: Category | None = None
    asil: Asil = Asil.UNRATED
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    rationale: str = ""
    evidence: tuple[Evidence, ...] = ()
    answered: bool = True
    error: str | None = None
    weight: float | None = None  # c_k * Omega(k, eta*), filled by the consensus


class Marginals(WireModel):
    """Support of the chosen value in each dimension (equation 5)."""

    step: float = 0.0
    agent: float = 0.0
    category: float = 0.0


class Candidate(WireModel):
    """A step that may be decisive, with the score that ranked it."""

    step: int
    agent: str
    score: float


class StepRange(WireModel):
    """Steps among which the decisive one lies with a chosen coverage, by a calibration (conformal).

    ``coverage`` holds on average over runs like those of the calibration, not for each trace. ``first`` and
    ``last`` bound the steps, which lie between them without a gap if ``shape`` is ``range``.
    """

    coverage: float = Field(gt=0.0, lt=1.0)
    shape: Literal["range", "set"] = "range"
    first: int
    last: int
    steps: tuple[int, ...]  # the most suspect first
    calibration: str  # digest of the calibration
    calibrated_on: int  # labelled runs


class RootCause(WireModel):
    """One decisive step. Most reports have one; FALAT's minimal sets may have more."""

    step: int | None
    agent: str | None
    category: Category | None
    omission: bool = False  # the agent did not act at that step where it should have
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    evidence: tuple[Evidence, ...] = ()


class ReviewDecision(WireModel):
    """Whether a person must look at the report, and why."""

    required: bool = False
    reasons: tuple[str, ...] = ()


class TokenUsage(WireModel):
    """Tokens spent on LLM calls; both zero for local analysts."""

    input: int = 0
    output: int = 0


class Provenance(WireModel):
    """Everything needed to say how a report came about, and to make it again."""

    product_version: str
    rules_id: str
    rules_version: str
    prompts: dict[str, str] = Field(default_factory=dict)  # name to version
    models: dict[str, str] = Field(default_factory=dict)  # role to model
    config_digest: str = ""
    ground_truth_shown: bool = False  # a benchmark showed the method the reference answer


class Report(WireModel):
    """One attribution, on ``cockpit.attribution.reports.v1``, keyed by vehicle."""

    type: Literal["report"] = "report"
    schema_version: SchemaVersion = CONTRACT_VERSION
    report_id: str
    revision: int = 1
    trace_id: str
    trace_revision: int = 1
    vehicle_id: str
    session_id: str
    outcome: Outcome
    method: str
    analysts: str
    step: int | None = None
    agent: str | None = None
    category: Category | None = None
    asil: Asil = Asil.UNRATED
    confidence: float = 0.0  # the weakest of the three marginals
    contested: bool = False
    review: ReviewDecision = ReviewDecision()
    root_causes: tuple[RootCause, ...] = ()
    severity: SeverityRating = SeverityRating()
    marginals: Marginals = Marginals()
    candidates: tuple[Candidate, ...] = ()
    step_range: StepRange | None = None
    evidence: tuple[Evidence, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    summary: str = ""
    degraded: str | None = None  # why this is not what was asked for, e.g. the panel did not answer
    decided_by: str | None = None  # the stage of a cascade that decided: local, judge or panel
    vehicle_state: VehicleStateCoverage = VehicleStateCoverage.NONE
    truncated: bool = False
    clock_suspect: bool = False
    tokens: TokenUsage = TokenUsage()
    cost: float | None = None
    seconds: float = 0.0
    started_ts: int = 0
    ended_ts: int = 0
    provenance: Provenance


class AlertSeverity(StrEnum):
    """Alertmanager's label: critical pages, warning is for ratings that rest on the ranker alone."""

    CRITICAL = "critical"
    WARNING = "warning"


class Alert(WireModel):
    """An Alertmanager v2 alert for ASIL C or D, on ``cockpit.attribution.alerts.v1``."""

    type: Literal["alert"] = "alert"
    schema_version: SchemaVersion = CONTRACT_VERSION
    alert_id: str
    revision: int = 1
    report_id: str
    trace_id: str
    vehicle_id: str
    session_id: str
    asil: Asil
    labels: dict[str, str]
    annotations: dict[str, str]
    startsAt: str  # noqa: N815 - Alertmanager's own field name
    endsAt: str | None = None  # noqa: N815
    generatorURL: str = ""  # noqa: N815


class ReviewRequest(WireModel):
    """Asks a person to look, on ``cockpit.attribution.reviews.v1``."""

    type: Literal["review_request"] = "review_request"
    schema_version: SchemaVersion = CONTRACT_VERSION
    review_id: str
    revision: int = 1
    report_id: str
    trace_id: str
    vehicle_id: str
    session_id: str
    asil: Asil
    confidence: float
    reasons: tuple[str, ...]
    withdrawn: bool = False  # an earlier revision asked for a look; this verdict needs none


class Suspicion(WireModel):
    """A session that ended as a success and left a hazard, on ``cockpit.suspicions.v1``; never an alert."""

    type: Literal["suspicion"] = "suspicion"
    schema_version: SchemaVersion = CONTRACT_VERSION
    suspicion_id: str
    revision: int = 1
    trace_id: str
    vehicle_id: str
    session_id: str
    asil: Asil
    hazards: tuple[Hazard, ...]
    score: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how often such a hazard was one indeed, on labelled sessions",
    )
    screening: str | None = Field(None, description="digest of the calibration behind the score")
    rules_version: str
    notice: str = INDICATIVE_NOTICE


class SessionStatus(StrEnum):
    """What became of a session."""

    PASSED = "passed"
    ATTRIBUTED = "attributed"
    QUARANTINED = "quarantined"
    EMPTY = "empty"  # it ended without one step: nothing to attribute


class SessionSummary(WireModel):
    """One record a session and revision, written last, on ``cockpit.sessions.v1``: the commit mark.

    Everything of the same revision is out when it is. ``final`` is false where a report of the local analysts
    went first and the verdict of another method follows under the same ids as the next revision.
    """

    type: Literal["session_summary"] = "session_summary"
    schema_version: SchemaVersion = CONTRACT_VERSION
    summary_id: str
    revision: int = 1
    trace_id: str | None = None
    vehicle_id: str
    session_id: str
    status: SessionStatus
    outcome: Outcome
    failed: bool
    close_reason: CloseReason
    started_ts: int
    ended_ts: int
    steps: int
    missing_events: int = 0
    truncated: bool = False
    clock_suspect: bool = False
    vehicle_state: VehicleStateCoverage = VehicleStateCoverage.NONE
    report_id: str | None = None
    asil: Asil | None = None
    suspicion: Asil | None = Field(
        None, description="rating of the suspicion, also where the limit on suspicions withheld its record"
    )
    final: bool = True
    error: str | None = None


class MetricsRecord(WireModel):
    """Counts of one worker over an interval, on ``cockpit.attribution.metrics.v1``.

    No vehicle and no session appears in it; ``values`` are counters and gauges by metric name with
    labels in Prometheus notation, the same names as ``/metrics``.
    """

    type: Literal["metrics"] = "metrics"
    schema_version: SchemaVersion = CONTRACT_VERSION
    worker: str
    ts: int
    interval_seconds: float
    values: dict[str, float]
    info: dict[str, Any] = Field(default_factory=dict)
