"""The one list of evidence detectors."""

from __future__ import annotations

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.detectors.base import Detector
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView

MAX_CLUES_OF_A_KIND = 200
"""A trace of ten thousand bad steps stays a report of bounded size."""

DETECTORS: dict[str, Detector] = {}


def find_clues(view: TraceView, hazards: HazardFindings) -> tuple[Clue, ...]:
    """Clues of all detectors, by step, then by weight; at most 200 of a kind, the heaviest."""
    by_kind: dict[str, list[Clue]] = {}
    if view.steps:
        for detector in DETECTORS.values():
            for clue in detector.find(view, hazards):
                by_kind.setdefault(clue.kind, []).append(clue)
    kept = [
        clue
        for clues in by_kind.values()
        for clue in sorted(clues, key=lambda c: (-c.weight, c.step))[:MAX_CLUES_OF_A_KIND]
    ]
    return tuple(sorted(kept, key=lambda c: (c.step, -c.weight, c.kind, c.agent)))
