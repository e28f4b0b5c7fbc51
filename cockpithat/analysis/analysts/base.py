"""What a local analyst is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cockpithat.analysis.examination import Examination
from cockpithat.contract.reports import Hypothesis

RANKER = "ranker"  # the analyst whose ratings rest on what sessions in the simulator had in common


@dataclass(frozen=True, slots=True)
class Opinion:
    """A vote, and how this analyst ranks the steps (0 to 1; steps it leaves out are 0)."""

    hypothesis: Hypothesis
    scores: Mapping[int, float] = field(default_factory=dict)


class LocalAnalyst(Protocol):
    """Reads an examination, never the network."""

    name: str

    def analyse(self, examination: Examination) -> Opinion:
        """One hypothesis; an analyst with nothing to say answers without step, agent and category."""
        ...


SILENT = 0.3
"""Confidence of "I looked and found nothing": it votes for no one and so lowers every marginal."""


def nothing(name: str, why: str) -> Opinion:
    """The opinion of an analyst that found nothing."""
    return Opinion(Hypothesis(analyst=name, confidence=SILENT, rationale=why))
