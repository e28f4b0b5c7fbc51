"""Settings of the panel."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.llm.settings import LlmSettings
from cockpithat.panel.ladder import Rung
from cockpithat.panel.personas import PANEL_SIZE
from cockpithat.slicing.settings import SlicingSettings


class PanelSettings(BaseModel):
    """Endpoints, rung of the ladder and bounds of one panel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm: LlmSettings = Field(description="Endpoints of analysts, scanner and linker")
    rung: Rung = Field(
        default=Rung.CHANNEL_ADAPTER, description="Rung of the ablation ladder; I6 is the method"
    )
    size: int = Field(default=PANEL_SIZE, ge=1, le=7, description="Analysts on the panel, K; paper: 4")
    quorum: int = Field(
        default=2, ge=1, description="Fewest answers that make a panel; with fewer the local report goes out"
    )
    seconds: float = Field(default=180.0, gt=0.0, description="Deadline of a whole panel with its resolution")
    resolution: bool = Field(default=True, description="Run the disagreement resolution round")
    slicing: SlicingSettings = SlicingSettings()
    refine_links: bool = Field(
        default=True, description="Refine entity links by the linker, if one is configured"
    )
    graph_prompt: bool = Field(
        default=False, description="Let the linker build the graph by the paper's prompt"
    )
