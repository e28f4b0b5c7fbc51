"""The one list of evidence detectors."""

from __future__ import annotations

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.detectors.base import Detector
from cockpithat.analysis.detectors.claims import Claims
from cockpithat.analysis.detectors.environment import EnvironmentContradictions
from cockpithat.analysis.detectors.hazard import HazardClues
from cockpithat.analysis.detectors.interaction import Corrections, OrdersFromContent
from cockpithat.analysis.detectors.invention import Inventions
from cockpithat.analysis.detectors.looks import Readings
from cockpithat.analysis.detectors.memory import ForeignMemory
from cockpithat.analysis.detectors.people import Speakers
from cockpithat.analysis.detectors.plans import PlanAdherence
from cockpithat.analysis.detectors.safeguards import Safeguards
from cockpithat.analysis.detectors.safety import SafetyChecks
from cockpithat.analysis.detectors.state import StateMismatch
from cockpithat.analysis.detectors.statements import StatementsAgainstOutput
from cockpithat.analysis.detectors.tools import Loops, ToolErrors
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView

MAX_CLUES_OF_A_KIND = 200
"""A trace of ten thousand bad steps stays a report of bounded size."""

_ALL: tuple[Detector, ...] = (
    HazardClues(),
    StateMismatch(),
    SafetyChecks(),
    ToolErrors(),
    Loops(),
    StatementsAgainstOutput(),
    Inventions(),
    PlanAdherence(),
    ForeignMemory(),
    EnvironmentContradictions(),
    Corrections(),
    OrdersFromContent(),
    Readings(),
    Claims(),
    Speakers(),
    Safeguards(),
)
DETECTORS: dict[str, Detector] = {detector.name: detector for detector in _ALL}


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
