"""The evidence analyst: speaks for the step that the clues weigh heaviest on."""

from __future__ import annotations

from cockpithat.analysis.analysts.base import Opinion, nothing
from cockpithat.analysis.examination import Examination
from cockpithat.contract.reports import Hypothesis

_CEILING = 0.95
_TEXT_ONLY = 0.14
"""Without e, sigma and m, clues from words alone are hints: together with the weaker of the two rankers they
stay below the stronger one (0.3 + 0.14 < 0.45), so they name the category and lend evidence, no more."""

_EARLIER = 0.02
"""Scores this close are a tie, and of tied steps the earliest is the decisive one."""


class EvidenceAnalyst:
    """Confidence is the score of its step, so weak clues make a weak vote."""

    name = "evidence"

    def analyse(self, examination: Examination) -> Opinion:
        """Without clues, an answer without an opinion."""
        scores = examination.step_scores
        if not scores:
            return nothing(self.name, "no clue found")
        best = max(scores.values())
        step = min(i for i, score in scores.items() if best - score <= _EARLIER)
        clue = max(examination.clues_by_step[step], key=lambda c: c.weight)
        return Opinion(
            Hypothesis(
                analyst=self.name,
                step=step,
                agent=clue.agent,
                category=examination.category_at(step, clue.agent),
                confidence=min(scores[step], _CEILING if examination.view.embodied else _TEXT_ONLY),
                rationale=f"{clue.kind.replace('_', ' ')} at step {step}",
                evidence=examination.evidence_at(step),
            ),
            scores,
        )
