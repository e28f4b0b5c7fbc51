"""The ranker: a readable file of weights, and the plain sums that make verdicts of them.

The file is JSON: for each domain (``dialogue``: words only; ``cockpit``: with embodied channels) weights of
step and agent features, for the cockpit also weights of the categories and of severity, exposure and
controllability. Nothing but sums and exponentials runs at inference; no library is needed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cockpithat.analysis.asil import classify
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.rules import RulesError
from cockpithat.contract.base import Asil, Category
from cockpithat.ranking.features import COCKPIT, StepFeatures, step_features
from cockpithat.ranking.severity import severity_features
from cockpithat.ranking.texts import Features
from cockpithat.resources import read_resource

OWN_WEIGHTS = "data/ranker/weights.json"
Weights = dict[str, float]


class DomainWeights(BaseModel):
    """Weights of one domain. ``mix`` is how much the agent model counts when step and agent are chosen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Weights
    agents: Weights
    mix: float = Field(0.5, ge=0, description="weight of the agent's score in the choice of the step")


class SeverityWeights(BaseModel):
    """Weights by class (``1`` to ``4``) for each of the three, and from which share on C or D is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    severity: dict[str, Weights]
    exposure: dict[str, Weights]
    controllability: dict[str, Weights]
    high_from: float = Field(
        0.5, gt=0, le=1, description="probability of C or D from which on it is rated so"
    )


class RankerWeights(BaseModel):
    """The whole weights file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = Field(1, ge=1, le=1)
    version: str
    trained_on: dict[str, str] = Field(default_factory=dict, description="what it was trained on, for people")
    domains: dict[str, DomainWeights]
    categories: dict[str, Weights] = Field(default_factory=dict)
    severity: SeverityWeights | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """One feature that moved a step's score, and by how much against the average step of the trace."""

    feature: str
    value: float
    by: float


@dataclass(frozen=True)
class Ranking:
    """Probabilities of steps and agents of one trace, and how they came about."""

    features: StepFeatures
    step_shares: tuple[float, ...]
    agent_shares: Mapping[str, float]
    step: int
    agent: str  # agent key
    _weights: Mapping[str, float]

    @cached_property
    def by_step(self) -> dict[int, float]:
        """Probability of each step that can be decisive."""
        return dict(zip(self.features.steps, self.step_shares, strict=True))

    def moved(self, step: int, limit: int = 5) -> list[Moved]:
        """The features that raised a step's score most, against the mean over the trace's steps."""
        at = self.features.steps.index(step)
        row, rows = self.features.rows[at], self.features.rows
        means: dict[str, float] = {}
        for other in rows:
            for name, value in other.items():
                means[name] = means.get(name, 0.0) + value / len(rows)
        parts = [
            Moved(name, row.get(name, 0.0), self._weights.get(name, 0.0) * (row.get(name, 0.0) - mean))
            for name, mean in means.items()
        ]
        return sorted((p for p in parts if p.by > 0.05), key=lambda p: (-p.by, p.feature))[:limit]


class Ranker:
    """Weights applied to examinations. Safe to share; it keeps nothing of a trace."""

    def __init__(self, weights: RankerWeights) -> None:
        self.weights = weights

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the weights, for the provenance of reports."""
        return hashlib.sha256(self.weights.model_dump_json().encode()).hexdigest()

    def rank(self, examination: Examination) -> Ranking | None:
        """Ranking of the steps of agents; ``None`` on a trace without steps or a domain without weights."""
        if not examination.trace.steps:
            return None
        features = step_features(examination)
        domain = self.weights.domains.get(features.domain)
        return None if domain is None else rank_features(features, domain)

    def category(self, features: StepFeatures, step: int) -> tuple[Category, float] | None:
        """The likeliest category for a step and its probability; ``None`` where no weights apply."""
        if features.domain != COCKPIT or not self.weights.categories or step not in features.steps:
            return None
        row = {**features.rows[features.steps.index(step)], "always": 1.0}
        names = sorted(self.weights.categories)
        shares = softmax([score(self.weights.categories[name], row) for name in names])
        best = max(range(len(names)), key=lambda i: shares[i])
        return Category(names[best]), shares[best]

    def rating(self, examination: Examination) -> tuple[Asil, dict[Asil, float]] | None:
        """Indicative rating of a failed session from its situation; ``None`` where the bus is not known."""
        weights = self.weights.severity
        row = severity_features(examination) if weights is not None else {}
        if not row or weights is None:
            return None
        return rate_features(row, weights)


def rank_features(features: StepFeatures, weights: DomainWeights) -> Ranking:
    """The step of the highest joint score, with its agent; shares of both."""
    raw = [score(weights.steps, row) for row in features.rows]
    shares = softmax(raw)
    rows = agent_rows(features, shares)
    names = list(rows)
    agent_scores = softmax([score(weights.agents, rows[name]) for name in names])
    by_agent = dict(zip(names, agent_scores, strict=True))
    joint = [
        share * max(by_agent[name], 1e-9) ** weights.mix
        for share, name in zip(shares, features.agents, strict=True)
    ]
    best = max(range(len(joint)), key=lambda i: joint[i])
    return Ranking(
        features, tuple(shares), by_agent, features.steps[best], features.agents[best], weights.steps
    )


_OF_AGENT = (
    "agent_share", "agent_turns", "agent_heaviest", "agent_works_most", "coordinator", "safety_agent",
)  # fmt: skip
_MOST = (
    "clue_strength",
    "introduces",
    "carries",
    "longest",
    "first_effect",
    "critical_change",
    "opening",
    "last",
)


def agent_rows(features: StepFeatures, shares: Sequence[float]) -> dict[str, Features]:
    """Features of agents: what holds for all steps of one, the most of some, and the step model's say."""
    rows: dict[str, Features] = {}
    for name, row, share in zip(features.agents, features.rows, shares, strict=True):
        agent = rows.setdefault(name, {key: row.get(key, 0.0) for key in _OF_AGENT})
        agent["steps_together"] = agent.get("steps_together", 0.0) + share
        agent["best_step"] = max(agent.get("best_step", 0.0), share)
        for key in _MOST:
            agent[f"most_{key}"] = max(agent.get(f"most_{key}", 0.0), row.get(key, 0.0))
    for agent in rows.values():
        agent["log_steps_together"] = math.log(max(agent["steps_together"], 1e-4))
    return rows


_CLASSES = (("severity", 3), ("exposure", 4), ("controllability", 3))


def rate_features(row: Features, weights: SeverityWeights) -> tuple[Asil, dict[Asil, float]]:
    """The ASIL of the likeliest classes, and the probability of each ASIL by the table."""
    full = {**row, "always": 1.0}
    shares: list[dict[int, float]] = []
    for name, _ in _CLASSES:
        by_class: dict[str, Weights] = getattr(weights, name)
        values = softmax([score(w, full) for w in by_class.values()])
        shares.append({int(cls): share for cls, share in zip(by_class, values, strict=True)})
    total: dict[Asil, float] = {}
    for s, ps in shares[0].items():
        for e, pe in shares[1].items():
            for c, pc in shares[2].items():
                asil = classify(s, e, c)
                total[asil] = total.get(asil, 0.0) + ps * pe * pc
    best = max(total, key=lambda a: (total[a], a.rank))
    high = total.get(Asil.C, 0.0) + total.get(Asil.D, 0.0)
    if best.rank < Asil.C.rank and high >= weights.high_from:
        best = max((Asil.C, Asil.D), key=lambda a: total.get(a, 0.0))
    return best, total


def score(weights: Mapping[str, float], row: Mapping[str, float]) -> float:
    """The weighted sum of a row of features."""
    return sum(weights[name] * value for name, value in row.items() if name in weights)


def softmax(scores: Sequence[float]) -> list[float]:
    """Shares that sum to 1."""
    top = max(scores)
    raised = [math.exp(s - top) for s in scores]
    total = sum(raised)
    return [r / total for r in raised]


def load_ranker(path: Path | None = None) -> Ranker:
    """The ranker of a weights file, the product's own by default. Raises ``RulesError``."""
    return _own() if path is None else Ranker(_read(path.read_text(encoding="utf-8"), str(path)))


@lru_cache(maxsize=1)
def _own() -> Ranker:
    return Ranker(_read(read_resource(OWN_WEIGHTS), OWN_WEIGHTS))


def _read(text: str, where: str) -> RankerWeights:
    try:
        return RankerWeights.model_validate(json.loads(text))
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise RulesError(
            where, "", f"not a weights file ({first})", "train it with `cockpithat train`"
        ) from None
