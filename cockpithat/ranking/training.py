"""From labelled examinations to a weights file. Needs numpy (the extra ``train``); inference does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cockpithat.analysis.asil import classify
from cockpithat.contract.base import Asil, Category
from cockpithat.ranking.features import COCKPIT, DIALOGUE, StepFeatures
from cockpithat.ranking.fitting import Choice, fit_choices, fit_classes
from cockpithat.ranking.model import (
    DomainWeights,
    SeverityWeights,
    agent_rows,
    rank_features,
    rate_features,
    score,
    softmax,
)
from cockpithat.ranking.texts import Features

# The zero-training baseline as weights: the heaviest agent, its first effect, the longest step.
FLOOR_STEPS: Mapping[str, float] = {"first_effect": 3.0, "longest": 1.5, "agent_works_most": 1.5}
FLOOR_AGENTS: Mapping[str, float] = {"agent_works_most": 2.0, "log_steps_together": 0.5}
PRIORS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    DIALOGUE: (FLOOR_STEPS, FLOOR_AGENTS),
    COCKPIT: ({}, {"log_steps_together": 1.0}),
}
HIGH_RECALL = 0.97
"""Recall of C and D that the threshold aims at in cross-validation, above 0.95 to leave room."""


@dataclass(frozen=True)
class Labelled:
    """One labelled trace as features. ``group`` is what must not be split: a question, or a family."""

    id: str
    group: str
    features: StepFeatures
    step: int
    agent: str  # agent key
    category: str | None = None
    situation: Features | None = None
    classes: tuple[int, int, int] | None = None  # severity, exposure, controllability

    @property
    def right_steps(self) -> tuple[int, ...]:
        """Positions of the labelled step among the options."""
        return tuple(k for k, i in enumerate(self.features.steps) if i == self.step)


def fit_domain(
    rows: Sequence[Labelled], domain: str, *, step_penalty: float, agent_penalty: float, mix: float
) -> DomainWeights:
    """Step weights, then agent weights on the step model's out-of-group shares, so that these are honest."""
    steps_prior, agents_prior = PRIORS[domain]
    groups = sorted({row.group for row in rows})
    folds = [set(groups[k::4]) for k in range(4)]
    choices: list[Choice] = []
    for fold in folds:
        inside = [row for row in rows if row.group not in fold]
        weights = _fit_steps(inside or rows, step_penalty, steps_prior)
        for row in rows:
            if row.group in fold:
                shares = softmax([score(weights, r) for r in row.features.rows])
                agents = agent_rows(row.features, shares)
                names = list(agents)
                right = tuple(k for k, name in enumerate(names) if name == row.agent)
                choices.append(Choice([agents[name] for name in names], right))
    return DomainWeights(
        steps=_rounded(_fit_steps(rows, step_penalty, steps_prior)),
        agents=_rounded(fit_choices(choices, penalty=agent_penalty, prior=agents_prior)),
        mix=mix,
    )


def _fit_steps(rows: Sequence[Labelled], penalty: float, prior: Mapping[str, float]) -> dict[str, float]:
    return fit_choices([Choice(r.features.rows, r.right_steps) for r in rows], penalty=penalty, prior=prior)


def fit_categories(rows: Sequence[Labelled], penalty: float) -> dict[str, dict[str, float]]:
    """Weights of the categories from the features of the labelled steps."""
    known = [r for r in rows if r.category is not None and r.right_steps]
    fitted = fit_classes(
        [r.features.rows[r.right_steps[0]] for r in known],
        [r.category or "" for r in known],
        penalty=penalty,
        classes=[c.value for c in Category],
    )
    return {name: _rounded(weights) for name, weights in fitted.items()}


def fit_severity(rows: Sequence[Labelled], penalty: float, high_from: float) -> SeverityWeights:
    """Weights of severity, exposure and controllability from the situation."""
    known = [r for r in rows if r.situation and r.classes is not None]
    tables = []
    for part in range(3):
        labels = [str(r.classes[part]) for r in known if r.classes]
        fitted = fit_classes(
            [r.situation or {} for r in known], labels, penalty=penalty, classes=sorted(set(labels))
        )
        tables.append({name: _rounded(weights) for name, weights in fitted.items()})
    return SeverityWeights(
        severity=tables[0], exposure=tables[1], controllability=tables[2], high_from=high_from
    )


def high_threshold(rows: Sequence[Labelled], penalty: float) -> float:
    """The share of C or D from which on a session is rated so: the highest that finds enough of them.

    Chosen on groups that the weights did not see, one left out at a time.
    """
    shares: list[float] = []
    for group in sorted({row.group for row in rows}):
        weights = fit_severity([r for r in rows if r.group != group], penalty, 1.0)
        for row in rows:
            if row.group != group or not row.situation or row.classes is None:
                continue
            if classify(*row.classes).rank >= Asil.C.rank:
                _, table = rate_features(row.situation, weights)
                shares.append(table.get(Asil.C, 0.0) + table.get(Asil.D, 0.0))
    if not shares:
        return 0.5
    shares.sort()
    missed = int((1 - HIGH_RECALL) * len(shares))
    return round(max(min(shares[missed], 0.5), 0.01), 4)


def accuracy(rows: Sequence[Labelled], weights: DomainWeights) -> tuple[int, int]:
    """Hits of agent and step. The agent is that of the chosen step."""
    ranked = [(rank_features(row.features, weights), row) for row in rows]
    return sum(r.agent == row.agent for r, row in ranked), sum(r.step == row.step for r, row in ranked)


@dataclass(frozen=True)
class Strength:
    """How strongly weights are held to their prior, and how much the agent model counts."""

    step_penalty: float
    agent_penalty: float
    mix: float


GRID = tuple(Strength(p, 30.0, m) for p in (30.0, 100.0, 300.0, 1000.0) for m in (0.0, 1.0))


def cross_validated(
    rows: Sequence[Labelled], domain: str, strength: Strength, folds: int = 4
) -> tuple[int, int]:
    """Hits of agent and step on groups left out, ``folds`` parts of the groups by turns."""
    groups = sorted({row.group for row in rows})
    agents = steps = 0
    for k in range(folds):
        out = set(groups[k::folds])
        inside = [row for row in rows if row.group not in out]
        weights = fit_domain(inside, domain, **asdict(strength))
        hits = accuracy([row for row in rows if row.group in out], weights)
        agents, steps = agents + hits[0], steps + hits[1]
    return agents, steps


def choose(rows: Sequence[Labelled], domain: str, grid: Sequence[Strength] = GRID) -> Strength:
    """The strength with most hits (agent and step alike) on left-out groups; the strongest of equals."""
    best, most = grid[-1], -1
    for strength in sorted(grid, key=lambda s: (-s.step_penalty, s.mix)):
        hits = sum(cross_validated(rows, domain, strength))
        if hits > most:
            best, most = strength, hits
    return best


def _rounded(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights for a file that people read: four decimals, those without effect left out, by name."""
    return {name: round(value, 4) for name, value in sorted(weights.items()) if abs(value) >= 5e-4}
