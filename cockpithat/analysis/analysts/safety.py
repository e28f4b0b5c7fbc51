"""The safety analyst: speaks for the most severe hazard the rules found, and rates it."""

from __future__ import annotations

from cockpithat.analysis.analysts.base import Opinion, nothing
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.hazards import Found
from cockpithat.consensus import SAFETY_ANALYST
from cockpithat.contract.base import Category
from cockpithat.contract.reports import Hypothesis

_APPROVED = "safety_approved"
_CONSEQUENCES = frozenset({"hazard_caused", "hazard_in_doubt"})
_SAFETY_KINDS = frozenset({"safety_not_asked", "safety_warning_ignored", _APPROVED})


class SafetyAnalyst:
    """Votes for the step that ordered the hazard, or for the safety agent that let it pass."""

    name = SAFETY_ANALYST

    def analyse(self, examination: Examination) -> Opinion:
        """Unrated and without an opinion when no rule came true."""
        rated = examination.hazards.rated
        if not rated:
            return nothing(self.name, "no hazard rule came true")
        top = rated[0]
        step, agent, why = _blame(examination, top)
        scores = {f.step: max(0.2, f.asil.rank / 5) for f in reversed(rated)}
        scores[step] = 1.0
        checks = [c for c in examination.clues_by_step.get(step, ()) if c.kind in _SAFETY_KINDS]
        return Opinion(
            Hypothesis(
                analyst=self.name,
                step=step,
                agent=agent,
                category=_category(examination, top, step),
                asil=top.asil,
                confidence=_confidence(top),
                rationale=f"{top.rule.hazardous_event} ({top.rule.situation.lower()}): {why}",
                evidence=(*top.evidence, *(c.evidence(examination.trace) for c in checks)),
            ),
            scores,
        )


def _confidence(found: Found) -> float:
    if found.commanded:
        return 0.9
    return 0.75 if found.caused else 0.5


def _category(examination: Examination, found: Found, step: int) -> Category:
    """The rule's own category, unless stronger clues at the step say how it came to it."""
    if examination.view.embodied and step == examination.sure_step:
        return examination.category_at(step, examination.trace.steps[step].agent)
    causes: dict[Category, float] = {}
    for clue in examination.clues_by_step.get(step, ()):
        if clue.kind in _CONSEQUENCES:
            continue
        causes[clue.category] = max(causes.get(clue.category, 0.0), clue.weight)
    best = max(sorted(causes), key=lambda c: causes[c], default=None)
    if best is not None and causes[best] > causes.get(found.rule.category, 0.0) and causes[best] >= 0.75:
        return best
    return found.rule.category


def _blame(examination: Examination, found: Found) -> tuple[int, str, str]:
    """Step and agent behind a hazard: who approved it, else who ordered it, else who was acting."""
    view = examination.view
    sure = examination.sure_step
    if sure is not None and view.embodied and sure <= found.seen_at:
        return sure, view.steps[sure].agent, "the evidence leads back to this step"
    approval = next(
        (c for c in reversed(examination.clues) if c.kind == _APPROVED and c.step <= found.seen_at), None
    )
    if approval is not None:
        return approval.step, approval.agent, "the safety agent let it pass"
    if found.commanded and view.acts(found.step):
        return found.step, view.steps[found.step].agent, "this step ordered it"
    acting = next((i for i in range(found.step, -1, -1) if view.acts(i)), None)
    if acting is None:
        acting = next((i for i in range(found.step, len(view.steps)) if view.acts(i)), found.step)
    why = "it came about while this agent was acting, and no step declared it"
    if found.rule.present_counts and not found.commanded:
        why = "it was there and no agent reacted"
    return acting, view.steps[acting].agent, why
