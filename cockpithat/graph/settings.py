"""Bounds and stop rules of the dependency graph. The paper publishes none of these values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GraphSettings(BaseModel):
    """How far back an edge may reach, how much of a step is read, and what does not link.

    Every bound is per step or per session, so that the work for a step does not grow with the trace.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lookback: int = Field(
        default=256,
        ge=1,
        description="Longest span of an edge in steps (the paper's L); longer ones are counted",
    )
    max_text_chars: int = Field(
        default=32_768,
        ge=256,
        description="Characters read of one text: three quarters head, one quarter tail",
    )
    max_entities_per_step: int = Field(default=256, ge=1, description="Distinct entities read from one step")
    max_edges_per_step: int = Field(
        default=12, ge=1, description="Edges into one step; the weakest references go first and are counted"
    )
    max_evidence_per_edge: int = Field(default=4, ge=1, description="Reasons kept with one edge")
    max_index_entries: int = Field(
        default=50_000, ge=100, description="Entities remembered in a session; the oldest is forgotten first"
    )
    max_plan_items: int = Field(
        default=64, ge=1, description="Textual plan items and commitments remembered; the oldest goes first"
    )
    min_reference_weight: int = Field(
        default=2,
        ge=1,
        description="Summed weight (1 weak to 3 strong) that shared entities need to make an edge",
    )
    common_after: int = Field(
        default=3, ge=1, description="Mentions after which an entity, or a step, can count as common ground"
    )
    common_limit: int = Field(
        default=8,
        ge=1,
        description="Mentions after which an entity is common ground whatever its share, unless it is strong "
        "(an address, an id, a path)",
    )
    common_share: float = Field(
        default=0.4,
        gt=0,
        le=1,
        description="Share of the steps since its introduction above which it is common ground",
    )
