"""Bounds of a context. The paper gives no token bounds; these are ours (see docs/cockpithat.md)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class SliceMode(StrEnum):
    """How a step's layer is found: the ladder I1, I2, and I3 onwards."""

    FIXED = "fixed"  # I1: the step and its neighbours
    POSITIONAL = "positional"  # I2: ECHO's hierarchy by offset
    DEPENDENCY = "dependency"  # I3: CockpitHAT's by dependency distance


class SlicingSettings(BaseModel):
    """Which layering, and how many tokens (by ``approx-1``) each decision may see."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: SliceMode = Field(default=SliceMode.DEPENDENCY, description="Layering of the contexts")
    agent_tokens: int = Field(
        default=1_650,
        ge=200,
        description="Context of the agent decision when agent and step are decided apart",
    )
    step_tokens: int = Field(
        default=3_800,
        ge=200,
        description="Context of the step decision when agent and step are decided apart",
    )
    joint_tokens: int = Field(
        default=5_400, ge=200, description="Context of the one decision when they are decided together"
    )
