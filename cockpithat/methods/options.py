"""Options that every method with a model takes; each method adds its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class MethodOptions(BaseModel):
    """Base of all options; a method's name and its options decide what a report's digest covers."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelOptions(MethodOptions):
    """Bounds of one trace's calls. They cannot change an answer, only whether there is one."""

    seconds: float | None = Field(
        None, gt=0, description="Deadline of a whole trace; none: the panel's, times ten where calls queue up"
    )
    trace_tokens: int | None = Field(
        None, ge=1, description="Input and output tokens one trace may use; none: unbounded"
    )


BOUNDS = frozenset(ModelOptions.model_fields)
"""Options that are not part of a report's identity."""
