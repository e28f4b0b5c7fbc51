"""Two analysts that only rank: they keep the panel from falling below the zero-training baselines."""

from __future__ import annotations

from cockpithat.analysis.analysts.base import Opinion
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.ranking import first_effect, heaviest_agent, longest_step
from cockpithat.contract.reports import Hypothesis

_EMBODIED = 0.4
"""Where e, sigma or m speak, position and length say little: their votes shrink to this share."""


class MassAnalyst:
    """The agent that carries most of the text, and the first step whose work took effect."""

    name = "mass"
    confidence = 0.45

    def analyse(self, examination: Examination) -> Opinion:
        """Always has an opinion on a trace with steps."""
        view = examination.view
        key = heaviest_agent(view, without_coordinators=True)
        step = first_effect(view, key)
        total = sum(view.characters.values()) or 1
        scores = {i: 0.5 * view.characters.get(view.keys[i], 0) / total for i in view.actors}
        scores[step] = 1.0
        return _ranked(self.name, self.confidence, examination, step, "carries most of the text", scores)


class LengthAnalyst:
    """The longest step."""

    name = "length"
    confidence = 0.3

    def analyse(self, examination: Examination) -> Opinion:
        """Always has an opinion on a trace with steps."""
        view = examination.view
        step = longest_step(view)
        most = view.lengths[step] or 1
        scores = {i: view.lengths[i] / most for i in view.actors}
        return _ranked(self.name, self.confidence, examination, step, "is the longest step", scores)


def _ranked(
    name: str, confidence: float, examination: Examination, step: int, why: str, scores: dict[int, float]
) -> Opinion:
    view = examination.view
    agent = view.steps[step].agent
    share = _EMBODIED if view.embodied else 1.0
    return Opinion(
        Hypothesis(
            analyst=name,
            step=step,
            agent=agent,
            category=examination.category_at(step, agent),
            confidence=round(confidence * share, 4),
            rationale=f"{agent} {why}" if name == "mass" else f"step {step} {why}",
        ),
        scores,
    )
