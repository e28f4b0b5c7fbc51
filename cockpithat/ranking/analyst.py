"""The ranker as an analyst of the local panel."""

from __future__ import annotations

from cockpithat.analysis.analysts.base import RANKER, Opinion, nothing
from cockpithat.analysis.examination import Examination
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Hypothesis

_NOTHING = "no feature in particular"
_UNSURE = 0.15  # simulated habits without a concrete clue: less than any hint from evidence
_CONFIDENCE = 0.9
"""More than mass, length and hints from words together: these are features of the ranker already."""


class RankerAnalyst:
    """Votes for the step of the highest score; its rationale names the features that raised it."""

    name = RANKER

    def analyse(self, examination: Examination) -> Opinion:
        """Without an opinion where no weights apply."""
        ranking = examination.ranking
        if ranking is None or examination.ranker is None:
            return nothing(self.name, "no weights apply")
        step = ranking.step
        agent = examination.trace.steps[step].agent
        known = examination.ranker.category(ranking.features, step)
        # Rules give the floor, this may raise it: a rule that speaks of one hazard says nothing of another.
        rating = examination.ranker.rating(examination) if examination.rated_by_ranker else None
        trusted = not examination.view.embodied or examination.sure_step is not None
        moved = ", ".join(f"{m.feature} {m.by:+.1f}" for m in ranking.moved(step))
        return Opinion(
            Hypothesis(
                analyst=self.name,
                step=step,
                agent=agent,
                category=known[0] if known is not None else examination.category_at(step, agent),
                asil=rating[0] if rating is not None else Asil.UNRATED,
                confidence=_CONFIDENCE if trusted else _UNSURE,
                rationale=f"share {ranking.by_step[step]:.2f}; raised by {moved or _NOTHING}",
                evidence=examination.evidence_at(step),
            ),
            ranking.by_step,
        )
