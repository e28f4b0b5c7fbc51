"""What goes in: session events, keyed by vehicle, on ``cockpit.session.events.v1``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from cockpithat.contract.base import (
    CONTRACT_VERSION,
    Identifier,
    Outcome,
    SchemaVersion,
    TimestampMs,
    WireModel,
)

JsonScalar = bool | int | float | str | None


class AgentInfo(WireModel):
    """One member of the session's roster."""

    name: Identifier
    role: str = ""
    description: str = ""
    version: str | None = None
    model: str | None = None
    prompt_version: str | None = None


class PlanItem(WireModel):
    """One item of a plan that a step proposes; later steps answer it by ``plan_item``."""

    id: Identifier
    text: str = ""
    agent: str | None = None


class ToolCall(WireModel):
    """A tool call made by a step. ``arguments`` is the decoded object, or the raw text if it is none."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    call_id: str | None = None


class ToolOutput(WireModel):
    """What a tool returned. Untrusted content, as every text in a trace."""

    name: str | None = None
    call_id: str | None = None
    content: Any = None
    is_error: bool = False


class MemoryRef(WireModel):
    """A cross-session memory item that a step read or wrote (the paper's m)."""

    key: str
    value: Any = None
    owner: str | None = None
    domain: str | None = None
    session_id: str | None = None
    access: Literal["read", "write"] = "read"


class IntendedChange(WireModel):
    """A vehicle state change that a step sets out to make."""

    path: str
    value: JsonScalar | list[JsonScalar] = None


class EventBase(WireModel):
    """Fields of every session event.

    ``seq`` counts all events of the session from 0 in the order they happened; the session engine
    orders by it, whatever order they arrive in. ``event_id`` makes duplicates recognisable.
    """

    schema_version: SchemaVersion = CONTRACT_VERSION
    event_id: Identifier
    vehicle_id: Identifier
    session_id: Identifier
    seq: Annotated[int, Field(ge=0, le=2**53)]
    ts: TimestampMs


class SessionStart(EventBase):
    """Opens a session: the task, who takes part, and which versions of everything are running."""

    type: Literal["session_start"] = "session_start"
    task: str = ""
    roster: tuple[AgentInfo, ...] = ()
    market: str | None = None
    locale: str | None = None
    software_version: str | None = None
    models: dict[str, str] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    vss_version: str | None = None
    sends_snapshots: bool | None = None
    timestamps_synthetic: bool = False  # the source had no times; order is real, spacing is not


class StepEvent(EventBase):
    """One step of one agent: what it said, called, got back, saw and remembered.

    Paper, section 3.1: ``s_i = (r_i, c_i)`` with side channels ``(e_i, sigma_i, m_i)``; sigma, the
    vehicle state, is joined from snapshots by the product.
    """

    type: Literal["step"] = "step"
    agent: Identifier
    mode: str = "message"  # message, thought, plan, tool_call, tool_output, observation, action, ...
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_outputs: tuple[ToolOutput, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    memory: tuple[MemoryRef, ...] = ()
    in_reply_to: str | None = None  # event_id of the step this one answers
    plan: tuple[PlanItem, ...] = ()  # items this step proposes
    plan_item: str | None = None  # item this step carries out
    target: str | None = None  # agent this step dispatches or delegates to
    intended: tuple[IntendedChange, ...] = ()


class SessionEnd(EventBase):
    """Closes a session. ``failed`` is the flag that asks for attribution."""

    type: Literal["session_end"] = "session_end"
    outcome: Outcome = Outcome.UNKNOWN
    failed: bool | None = None
    failure_reason: str | None = None
    final_answer: str = ""

    @property
    def is_failure(self) -> bool:
        """The explicit flag if given, else whether the outcome says failure."""
        return self.failed if self.failed is not None else self.outcome == Outcome.FAILURE


SessionEvent = Annotated[SessionStart | StepEvent | SessionEnd, Field(discriminator="type")]
SESSION_EVENT: TypeAdapter[SessionStart | StepEvent | SessionEnd] = TypeAdapter(SessionEvent)
