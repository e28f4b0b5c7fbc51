"""Reasons for a person to look that only a panel gives."""

from __future__ import annotations

from collections.abc import Sequence

from cockpithat.consensus import Decision
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Report, ReviewDecision

_SEVERE = frozenset({Asil.C, Asil.D})


def panel_reasons(decision: Decision) -> list[str]:
    """A vote against the floor, and a verdict of ASIL C or D that the panel is not of one mind about."""
    answered = [h for h in decision.hypotheses_with_weight if h.answered]
    reasons = [
        f"{h.analyst} rated {h.asil.value}, below the rules' floor {decision.floor.value}"
        for h in answered
        if h.asil.rank < decision.floor.rank
    ]
    views = {(h.step, h.agent, h.category, h.asil) for h in answered}
    if decision.asil in _SEVERE and len(views) > 1:
        reasons.append(f"the analysts disagree on a verdict of ASIL {decision.asil.value}")
    return reasons


def with_reasons(report: Report, reasons: Sequence[str]) -> Report:
    """The report with further reasons for review."""
    if not reasons:
        return report
    every = tuple(dict.fromkeys((*report.review.reasons, *reasons)))
    return report.model_copy(update={"review": ReviewDecision(required=True, reasons=every)})
