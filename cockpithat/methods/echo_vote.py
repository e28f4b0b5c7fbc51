"""ECHO's vote (2510.04886): confidence-weighted, the unsure dropped, agent and step decided apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cockpithat.consensus import ConsensusSettings, Decision, Support, decide
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Hypothesis

DROP_BELOW = 0.3
WIDE_SPREAD = 0.5
STRONG = 0.7  # reconstructed: the source does not say from where a conclusion is strong
_NOBODY = "\0"  # no analyst has this name, so equation 4 lifts nobody


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One analyst's answer: its vote, all agents it blames, and the other steps it thought of."""

    vote: Hypothesis
    agents: tuple[str, ...]
    alternatives: tuple[int, ...] = ()

    @property
    def several(self) -> bool:
        """Whether more than one agent is blamed."""
        return len(self.agents) > 1


@dataclass(frozen=True, slots=True)
class Vote:
    """What the panel decided: more agents where most of the weight says so, and why a person should look."""

    decision: Decision
    other_agents: tuple[str, ...]
    scores: dict[int, float]
    reasons: tuple[str, ...]


def review_reasons(conclusions: Sequence[Conclusion]) -> tuple[str, ...]:
    """Spread of confidence over 0.5, and strong conclusions that conflict."""
    sure = [c.vote.confidence for c in conclusions]
    reasons = []
    if sure and max(sure) - min(sure) > WIDE_SPREAD:
        reasons.append(f"the analysts' confidence spreads over {max(sure) - min(sure):.2f}")
    strong = [c for c in conclusions if c.vote.confidence >= STRONG]
    if len({c.vote.agent for c in strong}) > 1 or len({c.vote.step for c in strong}) > 1:
        reasons.append("analysts who are sure contradict each other")
    return tuple(reasons)


def vote(
    conclusions: Sequence[Conclusion],
    unanswered: Iterable[Hypothesis] = (),
    *,
    settings: ConsensusSettings,
    floor: Asil,
    supports: Support,
) -> Vote:
    """Count what is at least 0.3 sure; if nobody is, everything.

    The rest is kept in the decision with weight 0.
    """
    kept = [c for c in conclusions if c.vote.confidence >= DROP_BELOW] or list(conclusions)
    dropped = [c.vote for c in conclusions if c not in kept]
    decision = decide(
        [*(c.vote for c in kept), *unanswered],
        settings=settings,
        floor=floor,
        safety_analyst=_NOBODY,
        supports=supports,
    )
    silent = tuple(h.model_copy(update={"weight": 0.0}) for h in dropped)
    decision = replace(decision, hypotheses_with_weight=(*decision.hypotheses_with_weight, *silent))
    total = sum(c.vote.confidence for c in kept) or 1.0
    several = sum(c.vote.confidence for c in kept if c.several) / total
    others: tuple[str, ...] = ()
    if several > 0.5:
        named = dict.fromkeys(a for c in kept if c.several for a in c.agents if a != decision.agent)
        others = tuple(named)
    scores: dict[int, float] = {}
    for conclusion in kept:
        weight = conclusion.vote.confidence / total
        if conclusion.vote.step is not None:
            scores[conclusion.vote.step] = scores.get(conclusion.vote.step, 0.0) + weight
        for step in conclusion.alternatives:
            scores[step] = scores.get(step, 0.0) + 0.1 * weight  # for the ranking only
    return Vote(decision, others, scores, review_reasons(conclusions))
