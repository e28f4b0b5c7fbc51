"""Settings of attribution, shared by every method."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cockpithat.analysis.rules import RuleSet, load_rules
from cockpithat.calibration.method import CalibrationSettings
from cockpithat.consensus import ConsensusSettings
from cockpithat.panel.settings import PanelSettings
from cockpithat.screening.model import ScreeningSettings


class ReviewSettings(BaseModel):
    """When a person must look at a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_confidence: float = Field(
        0.5, ge=0, le=1, description="a report of less confidence (the weakest marginal) needs a person"
    )
    doubtful_asil: bool = Field(
        True,
        description="a hazard of ASIL C or D that can't be excluded, because signals are missing, stale or "
        "invalid, needs a person",
    )


class AttributionSettings(BaseModel):
    """What every attribution method takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules_file: Path | None = Field(
        None,
        description="hazard rules of the operator, in place of the product's own (docs/rules.md); a relative "
        "path is taken from the working directory, not from the settings file",
    )
    ranker_file: Path | None = Field(
        None, description="weights of the ranker, in place of the product's own (docs/local-analyst.md)"
    )
    ranker: bool = Field(True, description="whether the trained ranker votes; without it nothing is trained")
    ranker_rates: bool = Field(
        False,
        description="whether the ranker may rate a failed session higher than the hazard rules do, by the "
        "situation: finds more of ASIL C and D in the simulator, and rates harmless sessions high outside of "
        "it (docs/local-analyst.md). An alert that rests on it alone has severity `warning`, not `critical`",
    )
    consensus: ConsensusSettings = Field(
        default_factory=ConsensusSettings, description="parameters of the panel's vote"
    )
    review: ReviewSettings = Field(default_factory=ReviewSettings, description="when a person must look")
    screening: ScreeningSettings = Field(
        default_factory=ScreeningSettings, description="which passed sessions become suspicions"
    )
    max_evidence: int = Field(40, ge=1, le=1_000, description="evidence items in a report, the heaviest")
    max_candidates: int = Field(100, ge=1, le=10_000, description="ranked steps in a report")
    alert_url: str = Field(
        "",
        description="generatorURL of alerts; {report_id}, {trace_id}, {vehicle_id}, {session_id} are set",
    )

    calibration: CalibrationSettings | None = Field(
        None,
        description="gives each report of a worker the range of steps that holds the decisive one "
        "(docs/benchmark.md); none: no range",
    )
    panel: PanelSettings | None = Field(
        None, description="endpoints of the LLM panel, for analysts 'llm'; none: only local analysts"
    )

    @model_validator(mode="after")
    def _ranker_can_rate(self) -> Self:
        if self.ranker_rates and not self.ranker:
            raise ValueError("ranker_rates needs ranker: true")
        return self

    def rules(self) -> RuleSet:
        """The rules in force. Raises ``RulesError``."""
        return load_rules(self.rules_file)


def config_digest(settings: AttributionSettings, rules: RuleSet, **more: Any) -> str:
    """SHA-256 (hex) of everything that may change a verdict, as canonical JSON.

    The rules count by content and not by file name. Where alerts point to does not count, nor does the
    screening of sessions that get no verdict, nor the panel: the method that runs it passes what of it
    matters in ``more``. A calibration names the digest it is for.
    """
    content = {
        "settings": settings.model_dump(
            mode="json",
            exclude={"rules_file", "ranker_file", "screening", "alert_url", "calibration", "panel"},
        ),
        "rules": rules.model_dump(mode="json", by_alias=True, exclude_none=True),
        **more,
    }
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
