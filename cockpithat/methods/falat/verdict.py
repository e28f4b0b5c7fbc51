"""From tests to the earliest minimal set, and from local re-search to the verdict (2.3, 2.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence

MAX_SET = 3
"""Most steps of a joint set: the formulation is about a small set of decisive steps (section 5)."""


@dataclass(frozen=True, slots=True)
class ThreeTests:
    """The three tests of one candidate (section 2.3)."""

    step: int
    independent: bool  # it introduces an error of its own
    sufficient: bool  # correcting it, earlier steps fixed, recovers the expected output
    precedes: bool  # no earlier candidate is responsible


@dataclass(frozen=True, slots=True)
class Assessment:
    """All tests, and sets of steps that suffice only together."""

    tested: tuple[ThreeTests, ...]
    joint: tuple[tuple[int, ...], ...] = ()


class Basis(StrEnum):
    """What the chosen set rests on."""

    SUFFICIENT = "one step passes the three tests"
    JOINT = "a set of steps suffices only together"
    RANKED = "no step passes the three tests; the ranking decided"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The earliest minimal set, ascending, before local re-search."""

    steps: tuple[int, ...]
    basis: Basis


def earliest_minimal(tests: Assessment, scores: Mapping[int, float]) -> Chosen:
    """One step that passes, the earliest; else the earliest minimal joint set; else the best-ranked.

    A single step is a smaller set than any joint one and comes first (reconstructed). ``scores`` ranks the
    candidates and must not be empty.
    """
    passing = [t for t in tests.tested if t.independent and t.sufficient]
    if passing:
        firm = [t.step for t in passing if t.precedes] or [t.step for t in passing]
        return Chosen((min(firm),), Basis.SUFFICIENT)
    sets = {tuple(sorted(set(group))) for group in tests.joint}
    sets = {group for group in sets if 2 <= len(group) <= MAX_SET and all(step in scores for step in group)}
    minimal = [g for g in sets if not any(set(other) < set(g) for other in sets)]
    if minimal:
        return Chosen(min(minimal), Basis.JOINT)
    independent = {t.step for t in tests.tested if t.independent} & scores.keys()
    among = independent or scores.keys()
    return Chosen((min(among, key=lambda step: (-scores[step], step)),), Basis.RANKED)


class Part(StrEnum):
    """Role labels of local re-search."""

    ROOT_CAUSE = "root_cause"
    PROPAGATION = "propagation"
    SYMPTOM = "symptom"
    CONTRIBUTING = "contributing"


PARTS = tuple(part.value for part in Part)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the adversarial comparison says of one step near the prediction."""

    step: int
    suspicion: float  # 0 to 1
    part: Part
    recovers: bool  # the counterfactual test
    agent: str
    category: Category | None = None
    asil: Asil = Asil.UNRATED
    argument: str = ""
    evidence: tuple[Evidence, ...] = ()


def neighbours(step: int, n: int, radius: int, others: Iterable[int]) -> list[int]:
    """The steps to compare a prediction with: those around it, and other candidates within twice that."""
    near = range(max(0, step - radius), min(n, step + radius + 1))
    far = (other for other in others if abs(other - step) <= 2 * radius)
    return sorted({*near, *far})


def settle(predicted: int, challenges: Sequence[Challenge]) -> Challenge | None:
    """The most suspicious step that passes the counterfactual test; else the prediction, if it was judged."""
    passing = [c for c in challenges if c.recovers]
    if passing:
        return min(passing, key=lambda c: (-c.suspicion, c.step))
    return next((c for c in challenges if c.step == predicted), None)


def close_calls(challenges: Sequence[Challenge]) -> bool:
    """Whether the two most suspicious steps are hard to tell apart (a tenth or less)."""
    top = sorted((c.suspicion for c in challenges), reverse=True)[:2]
    return any(first - second <= 0.1 for first, second in pairwise(top))
