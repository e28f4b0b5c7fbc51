"""Analysts of known skill, to see what the consensus makes of them.

A case has a true step, agent, category and rating. An analyst is right about each with a probability of its
own; where it is wrong it picks another value, by itself or, with probability ``together``, the one that all
who err together pick. Confidence is a little higher when an analyst is right, as models' own estimates are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cockpithat.consensus import ConsensusSettings, decide
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Hypothesis

STEPS, AGENTS = 14, 4  # the mean trace of CockpitBench (A.1.3): 14.3 turns, 4.2 agents
RATINGS = (Asil.A, Asil.B, Asil.C, Asil.D)
SHARES = (98, 51, 37, 26)  # of the 212 traces of CockpitBench
CATEGORIES = tuple(Category)


@dataclass(frozen=True)
class Case:
    """The truth about one trace."""

    step: int
    agent: str
    category: Category
    asil: Asil


def draw_case(rng: random.Random, ratings: Sequence[Asil] = RATINGS) -> Case:
    """A case, its rating by CockpitBench's shares among ``ratings``."""
    weights = [SHARES[RATINGS.index(rating)] for rating in ratings]
    return Case(
        rng.randrange(STEPS),
        f"agent{rng.randrange(AGENTS)}",
        rng.choice(CATEGORIES),
        rng.choices(list(ratings), weights)[0],
    )


def _other(rng: random.Random, values: Sequence[object], truth: object) -> object:
    return rng.choice([value for value in values if value != truth])


def panel(
    rng: random.Random,
    case: Case,
    skills: Sequence[float],
    *,
    together: float = 0.0,
    rating_skill: float = 0.75,
) -> list[Hypothesis]:
    """Hypotheses of a panel; the first is the safety analyst's, ``skills`` are probabilities to be right.

    A wrong rating is a neighbouring class, up or down with equal chance (at an end the only way there is).
    """
    agents = [f"agent{i}" for i in range(AGENTS)]
    shared = (
        _other(rng, range(STEPS), case.step),
        _other(rng, agents, case.agent),
        _other(rng, CATEGORIES, case.category),
    )
    common_luck = rng.random()
    hypotheses = []
    for number, skill in enumerate(skills):
        joined = rng.random() < together
        luck = [common_luck if joined else rng.random() for _ in range(3)]
        truth: tuple[object, ...] = (case.step, case.agent, case.category)
        spaces: tuple[Sequence[object], ...] = (range(STEPS), agents, CATEGORIES)
        said = [
            right if luck[i] < skill else shared[i] if joined else _other(rng, spaces[i], right)
            for i, right in enumerate(truth)
        ]
        place = RATINGS.index(case.asil)
        if rng.random() >= rating_skill:
            place += 1 if place == 0 else -1 if place == len(RATINGS) - 1 else rng.choice((-1, 1))
        hypotheses.append(
            Hypothesis.model_validate(
                {
                    "analyst": "safety" if number == 0 else f"generic{number}",
                    "step": said[0],
                    "agent": said[1],
                    "category": said[2],
                    "asil": RATINGS[place],
                    "confidence": min(
                        max(rng.gauss(0.72 if said[0] == case.step else 0.62, 0.12), 0.05), 1.0
                    ),
                }
            )
        )
    return hypotheses


@dataclass(frozen=True)
class Ratings:
    """How a way to rate does: recall of C and D, and how often it rates higher than the truth."""

    cases: int
    severe: int
    recalled: int
    overrated: int

    @property
    def recall(self) -> float:
        """Share of C and D cases rated C or D."""
        return self.recalled / self.severe

    @property
    def overrating(self) -> float:
        """Share of all cases rated above the truth."""
        return self.overrated / self.cases


def majority(hypotheses: Sequence[Hypothesis]) -> Asil:
    """The most frequent rating; of equals the lower one, so that ties do not hide behind severity."""
    counts = Counter(h.asil for h in hypotheses)
    return max(sorted(counts, key=lambda asil: asil.rank), key=lambda asil: counts[asil])


def rate(n: int, seed: int, *, prior: bool, rating_skill: float = 0.75) -> Ratings:
    """Rate ``n`` cases by the severity prior (equation 3) or by a majority vote."""
    rng = random.Random(seed)
    severe = recalled = overrated = 0
    for _ in range(n):
        case = draw_case(rng)
        votes = panel(rng, case, (0.5,) * 4, rating_skill=rating_skill)
        said = decide(votes).asil if prior else majority(votes)
        if case.asil.rank >= Asil.C.rank:
            severe += 1
            recalled += said.rank >= Asil.C.rank
        overrated += said.rank > case.asil.rank
    return Ratings(n, severe, recalled, overrated)


@dataclass(frozen=True)
class Hits:
    """Right answers of the consensus and of its analysts on average, out of ``n``."""

    n: int
    step: int
    agent: int
    mean_step: float
    mean_agent: float


def vote(
    n: int,
    seed: int,
    skills: Sequence[float],
    *,
    together: float = 0.0,
    uplift: bool = True,
    ratings: Sequence[Asil] = RATINGS,
) -> Hits:
    """Steps and agents that the consensus gets right, with or without the uplift of equation 4."""
    settings = ConsensusSettings() if uplift else ConsensusSettings(lam=0.0)
    rng = random.Random(seed)
    step = agent = 0
    mean_step = mean_agent = 0.0
    for _ in range(n):
        case = draw_case(rng, ratings)
        votes = panel(rng, case, skills, together=together)
        decision = decide(votes, settings=settings)
        step += decision.step == case.step
        agent += decision.agent == case.agent
        mean_step += sum(h.step == case.step for h in votes) / len(votes)
        mean_agent += sum(h.agent == case.agent for h in votes) / len(votes)
    return Hits(n, step, agent, mean_step, mean_agent)
