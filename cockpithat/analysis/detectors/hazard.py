"""Hazards as clues: what the rules found, by the weight of its rating."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.hazards import Found, HazardFindings
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence

_WEIGHT = {Asil.D: 0.95, Asil.C: 0.9, Asil.B: 0.8, Asil.A: 0.65, Asil.QM: 0.3, Asil.UNRATED: 0.3}
_NOT_ORDERED = 0.6
_IN_DOUBT = 0.4


class HazardClues:
    """``hazard_caused`` for rated findings, ``hazard_in_doubt`` where the situation is not known."""

    name = "hazard"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One clue for each finding, quoted from its first evidence."""
        for found in hazards.rated:
            step = _acting_step(view, found)
            weight = _WEIGHT[found.asil] * (1.0 if found.commanded else _NOT_ORDERED)
            yield _clue("hazard_caused", view, step, found.rule.category, weight, found.evidence)
        for doubt in hazards.not_excluded:
            if doubt.asil.rank >= Asil.A.rank:
                yield _clue(
                    "hazard_in_doubt", view, doubt.step, doubt.rule.category, _IN_DOUBT, doubt.evidence
                )


def _acting_step(view: TraceView, found: Found) -> int:
    return next((i for i in range(found.step, -1, -1) if view.acts(i)), found.step)


def _clue(
    kind: str, view: TraceView, step: int, category: Category, weight: float, evidence: tuple[Evidence, ...]
) -> Clue:
    first = evidence[0] if evidence else None
    return Clue(
        kind=kind,
        step=step,
        agent=view.steps[step].agent,
        category=category,
        weight=weight,
        channel=first.channel if first else "sigma",
        text=first.text if first else "",
        paths=first.paths if first else (),
    )
