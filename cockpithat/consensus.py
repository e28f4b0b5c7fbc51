"""The safety-uplifted consensus of CockpitHAT (section 3.4, equations 3 to 5) as pure functions.

Analysts hand in hypotheses ``h_k = (step, agent, category, asil)`` with a confidence ``c_k``. Severity is
settled first (equation 3), then step, agent and category are voted on one by one, each vote weighted by
confidence and by the uplift of the safety analyst (equations 4 and 5). Nothing here reads a trace.

Where the paper leaves a case open, this module decides it as follows.

* ``v(eta)`` is 1 to 4 for A to D. QM and unrated count as 1: without a hazard there is no uplift, and the
  safety analyst is not punished for saying so (``v = 0`` would put its weight below the others').
* No analyst reaches ``delta_conf``: the severity is the floor alone.
* An analyst that did not answer has no weight and does not count in ``K``. One that answered and has no
  opinion in a dimension stays in the denominator of equation 5: silence is not agreement.
* Total weight zero: nothing is chosen, confidence is 0 and the decision is contested.
* A tie goes to the value with more evidence that checks out, then to the value the safety analyst holds,
  then to the earliest step or the first name in the alphabet; only the last of these is contested.
* Step and agent are decoded apart (the paper's "decoupled"); if no analyst proposed them together, both
  are kept and the decision is contested.
* The floor of the hazard rules is a lower bound: no vote lowers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence, Hypothesis, Marginals

SAFETY_ANALYST = "safety"
_TIE = 1e-9

_LEVEL = {Asil.UNRATED: 1, Asil.QM: 1, Asil.A: 1, Asil.B: 2, Asil.C: 3, Asil.D: 4}


def _default_thresholds() -> dict[Asil, float]:
    return {
        Asil.UNRATED: 0.40,
        Asil.QM: 0.40,
        Asil.A: 0.45,
        Asil.B: 0.50,
        Asil.C: 0.60,
        Asil.D: 0.70,
    }


class ConsensusSettings(BaseModel):
    """Parameters of the consensus; the defaults are the paper's where the paper gives one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lam: float = Field(0.5, ge=0, description="lambda of equation 4: size of the uplift")
    beta: float = Field(0.4, ge=0, description="beta of equation 4: growth of the uplift with severity")
    kappa: float = Field(1.0, ge=0, description="kappa of equation 4: cap of the uplift, times K - 1")
    delta_conf: float = Field(
        0.3, ge=0, le=1, description="least confidence of a hypothesis that may set the severity (equation 3)"
    )
    delta_cons: dict[Asil, float] = Field(
        default_factory=_default_thresholds,
        description="weakest marginal below which disagreement is resolved, by severity; it may not fall "
        "as severity rises. The paper names no values: these are set by judgement",
    )

    @model_validator(mode="after")
    def _monotone(self) -> ConsensusSettings:
        missing = [asil.value for asil in Asil if asil not in self.delta_cons]
        if missing:
            raise ValueError(f"delta_cons lacks {', '.join(missing)}; give a threshold for every rating")
        ordered = [self.delta_cons[asil] for asil in sorted(Asil, key=lambda a: a.rank)]
        if any(not 0 <= value <= 1 for value in ordered):
            raise ValueError("delta_cons must lie between 0 and 1")
        if any(low > high for low, high in pairwise(ordered)):
            raise ValueError("delta_cons must not fall as severity rises (unrated, QM, A, B, C, D)")
        return self


@dataclass(frozen=True, slots=True)
class Decision:
    """What the panel decided. ``weakest`` is the report's confidence."""

    step: int | None
    agent: str | None
    category: Category | None
    asil: Asil
    floor: Asil
    raised_by: str | None  # the analyst that lifted the rating above the floor
    marginals: Marginals
    hypotheses_with_weight: tuple[Hypothesis, ...]
    threshold: float
    needs_resolution: bool  # before any resolution, the weakest marginal was under the threshold
    resolved: bool  # a resolution ran and lifted it over the threshold
    contested: bool
    ties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def weakest(self) -> float:
        """``min(S_s, S_a, S_tau)`` of the chosen values, 0 to 1."""
        return min(self.marginals.step, self.marginals.agent, self.marginals.category)


Support = Callable[[Evidence], bool]
"""Whether a piece of evidence checks out, such as a quote that stands in the step it names."""

Resolver = Callable[[Sequence[Hypothesis], Decision, Support], Sequence[Hypothesis]]
"""Disagreement resolution: gets the hypotheses and the open decision, returns the defended hypotheses."""


def _placed(evidence: Evidence) -> bool:
    """Without a trace at hand: evidence that names its step and quotes something."""
    return evidence.step is not None and bool(evidence.text or evidence.paths)


def level(asil: Asil) -> int:
    """``v(eta)`` of equation 4: A 1, B 2, C 3, D 4; QM and unrated 1, which means no uplift."""
    return _LEVEL[asil]


def uplift(is_safety: bool, asil: Asil, panel_size: int, settings: ConsensusSettings) -> float:
    """``Omega(k, eta*)`` of equation 4; 1 for every analyst but the safety analyst. ``panel_size`` is K."""
    if not is_safety:
        return 1.0
    schedule = settings.lam * (math.exp(settings.beta * (level(asil) - 1)) - 1)
    return 1.0 + min(schedule, settings.kappa * max(panel_size - 1, 0))


def severity_prior(hypotheses: Iterable[Hypothesis], settings: ConsensusSettings) -> Asil:
    """``eta*`` of equation 3: the most severe rating among hypotheses of at least ``delta_conf``.

    ``unrated`` when no hypothesis reaches it.
    """
    rated = [h.asil for h in hypotheses if h.answered and h.confidence >= settings.delta_conf]
    return max(rated, key=lambda asil: asil.rank, default=Asil.UNRATED)


def mechanical_resolution(
    hypotheses: Sequence[Hypothesis], decision: Decision, supports: Support
) -> Sequence[Hypothesis]:
    """The paper's mechanical rule: hypotheses with concrete evidence that checks out are preferred.

    A hypothesis that cites none loses its vote, unless none of them cites any. Severity is not
    touched: an alarm without a quote is still an alarm.
    """
    backed = [h.answered and any(supports(e) for e in h.evidence) for h in hypotheses]
    if not any(backed):
        return hypotheses
    return [
        h if keep else h.model_copy(update={"confidence": 0.0})
        for h, keep in zip(hypotheses, backed, strict=True)
    ]


_T = TypeVar("_T", bound=Hashable)


def _choose(
    votes: Sequence[tuple[_T | None, float, float, bool]], total: float
) -> tuple[_T | None, float, tuple[_T, ...], bool]:
    """Argmax of equation 5 over ``(value, weight, support, is_safety)``.

    Returns value, its share, the values tied with it, and whether only their order decided.
    """
    shares: dict[_T, float] = {}
    support: dict[_T, float] = {}
    safety: set[_T] = set()
    for value, weight, backing, is_safety in votes:
        if value is None or weight <= 0:
            continue
        shares[value] = shares.get(value, 0.0) + weight / total
        support[value] = support.get(value, 0.0) + backing
        if is_safety:
            safety.add(value)
    if not shares:
        return None, 0.0, (), False
    best = max(shares.values())
    tied = sorted((v for v, share in shares.items() if best - share <= _TIE), key=_order)

    def merit(value: _T) -> tuple[float, bool]:
        return support[value], value in safety

    winner = max(tied, key=merit)  # max keeps the first of equals: the earliest step, the first name
    arbitrary = sum(merit(value) == merit(winner) for value in tied) > 1
    return winner, min(shares[winner], 1.0), tuple(tied) if len(tied) > 1 else (), arbitrary


def _order(value: Hashable) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, str(value))


def decide(
    hypotheses: Sequence[Hypothesis],
    *,
    settings: ConsensusSettings | None = None,
    floor: Asil = Asil.UNRATED,
    safety_analyst: str = SAFETY_ANALYST,
    resolve: Resolver | None = None,
    supports: Support = _placed,
) -> Decision:
    """Both stages of the consensus, and one round of disagreement resolution if ``resolve`` is given.

    ``resolve`` runs when the weakest marginal is under ``delta_cons(eta*)``; the vote is then taken again
    over what it returns, and severity stays at the higher of both rounds.
    """
    settings = settings or ConsensusSettings()
    first = _vote(hypotheses, settings, floor, safety_analyst, supports)
    if not first.needs_resolution or resolve is None:
        return first
    prior = max(first.asil, floor, key=lambda asil: asil.rank)
    second = _vote(
        resolve(hypotheses, first, supports),
        settings,
        floor,
        safety_analyst,
        supports,
        prior,
        first.raised_by,
    )
    resolved = not second.needs_resolution
    reasons = tuple(dict.fromkeys((*first.reasons, *second.reasons))) if not resolved else second.reasons
    return Decision(
        step=second.step,
        agent=second.agent,
        category=second.category,
        asil=second.asil,
        floor=floor,
        raised_by=second.raised_by,
        marginals=second.marginals,
        hypotheses_with_weight=second.hypotheses_with_weight,
        threshold=second.threshold,
        needs_resolution=True,
        resolved=resolved,
        contested=second.contested,
        ties=second.ties,
        reasons=reasons,
    )


def _vote(
    hypotheses: Sequence[Hypothesis],
    settings: ConsensusSettings,
    floor: Asil,
    safety_analyst: str,
    supports: Support,
    prior: Asil = Asil.UNRATED,
    prior_raised_by: str | None = None,
) -> Decision:
    answered = [h for h in hypotheses if h.answered]
    panel_size = len(answered)
    severity = severity_prior(answered, settings)
    asil = max((severity, floor, prior), key=lambda a: a.rank)
    raised_by = _raised_by(answered, asil, floor, settings) or (prior_raised_by if asil == prior else None)

    weights = [
        h.confidence * uplift(h.analyst == safety_analyst, asil, panel_size, settings) if h.answered else 0.0
        for h in hypotheses
    ]
    total = sum(weights)
    backing = [
        sum(e.weight or 1.0 for e in h.evidence if supports(e)) if h.answered else 0.0 for h in hypotheses
    ]
    is_safety = [h.analyst == safety_analyst for h in hypotheses]
    ballots = list(zip(hypotheses, weights, backing, is_safety, strict=True))
    step, step_share, step_ties, step_arbitrary = _choose(
        [(h.step, w, b, s) for h, w, b, s in ballots], total
    )
    agent, agent_share, agent_ties, agent_arbitrary = _choose(
        [(h.agent, w, b, s) for h, w, b, s in ballots], total
    )
    category, category_share, category_ties, category_arbitrary = _choose(
        [(h.category, w, b, s) for h, w, b, s in ballots], total
    )

    marginals = Marginals(step=step_share, agent=agent_share, category=category_share)
    weakest = min(step_share, agent_share, category_share)
    threshold = settings.delta_cons[asil]
    reasons: list[str] = []
    if total <= 0:
        reasons.append("no analyst gave an answer with any confidence")
    unanswered = [h.analyst for h in hypotheses if not h.answered]
    if unanswered:
        reasons.append(f"no answer from {', '.join(unanswered)}")
    if weakest < threshold:
        reasons.append(
            f"weakest marginal {weakest:.2f} is below the threshold {threshold:.2f} for {asil.value}"
        )
    for name, arbitrary, tied in (
        ("step", step_arbitrary, step_ties),
        ("agent", agent_arbitrary, agent_ties),
        ("category", category_arbitrary, category_ties),
    ):
        if arbitrary:
            reasons.append(f"tie for {name} between {', '.join(str(value) for value in tied)}")
    apart = (
        step is not None
        and agent is not None
        and not any(
            w > 0 and h.step == step and h.agent == agent for h, w in zip(hypotheses, weights, strict=True)
        )
    )
    if apart:
        reasons.append(f"step {step} and agent {agent} were not proposed together by any analyst")
    needs_resolution = weakest < threshold
    ties = {
        name: tuple(str(value) for value in tied)
        for name, tied in (("step", step_ties), ("agent", agent_ties), ("category", category_ties))
        if tied
    }
    return Decision(
        step=step,
        agent=agent,
        category=category,
        asil=asil,
        floor=floor,
        raised_by=raised_by,
        marginals=marginals,
        hypotheses_with_weight=tuple(
            h.model_copy(update={"weight": w}) for h, w in zip(hypotheses, weights, strict=True)
        ),
        threshold=threshold,
        needs_resolution=needs_resolution,
        resolved=False,
        contested=needs_resolution or apart or step_arbitrary or agent_arbitrary or category_arbitrary,
        ties=ties,
        reasons=tuple(reasons),
    )


def _raised_by(
    answered: Sequence[Hypothesis], asil: Asil, floor: Asil, settings: ConsensusSettings
) -> str | None:
    if asil.rank <= floor.rank:
        return None
    return next((h.analyst for h in answered if h.asil == asil and h.confidence >= settings.delta_conf), None)
