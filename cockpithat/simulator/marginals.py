"""How many scenarios of each category and ASIL: whole counts as near to the published shares as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log2
from typing import TypeVar

import yaml

from cockpithat.contract.base import Asil, Category
from cockpithat.resources import read_resource
from cockpithat.simulator.dice import Dice

K = TypeVar("K")
Table = dict[tuple[Category, Asil], int]
LEVELS = (Asil.A, Asil.B, Asil.C, Asil.D)
_CATEGORIES = tuple(Category)
_ROUNDS = 12_000


@dataclass(frozen=True)
class Marginals:
    """The published figures (``data/simulator/marginals.yaml``)."""

    traces: int
    categories: Mapping[Category, int]
    asil: Mapping[Asil, int]
    dominant_share: Mapping[Asil, float]
    entropy_bits: Mapping[Asil, float]
    dominant_category: Mapping[Asil, Category]
    sources: Mapping[str, int]
    turns: Mapping[str, float]
    seconds: Mapping[str, float]
    active_agents: float
    languages: Mapping[str, float]
    functional_roster: float


@cache
def published() -> Marginals:
    """What the paper prints."""
    raw = yaml.safe_load(read_resource("data/simulator/marginals.yaml"))
    return Marginals(
        **{
            **raw,
            "categories": {Category(name): count for name, count in raw["categories"].items()},
            "asil": {Asil(name): count for name, count in raw["asil"].items()},
            "dominant_share": {Asil(name): share for name, share in raw["dominant_share"].items()},
            "entropy_bits": {Asil(name): bits for name, bits in raw["entropy_bits"].items()},
            "dominant_category": {Asil(a): Category(c) for a, c in raw["dominant_category"].items()},
        }
    )


def entropy(counts: Sequence[int]) -> float:
    """Shannon entropy in bits of the shares of these counts; empty cells add nothing (equation 6)."""
    total = sum(counts)
    return -sum(n / total * log2(n / total) for n in counts if n)


def _loss(column: Sequence[int], share: float, bits: float) -> float:
    total = sum(column)
    dominant = round(share * total)
    return abs(entropy(column) - bits) + 2.0 * abs(max(column) - dominant)


@cache
def solve() -> Mapping[tuple[Category, Asil], int]:
    """The 8 by 4 table of counts: exact row and column sums, shares and entropies as near as possible.

    Simulated annealing over moves that keep all sums (one scenario from each of two cells to the other
    two corners of their rectangle), from the table that fills each column's dominant cell first. Its
    draws have a fixed seed (of ten tried, the one that ends nearest), so the answer is always the same.
    """
    m = published()
    table = _start(m)

    def column(level: Asil) -> list[int]:
        return [table[category, level] for category in _CATEGORIES]

    def loss(levels: Sequence[Asil]) -> float:
        total = sum(_loss(column(a), m.dominant_share[a], m.entropy_bits[a]) for a in levels)
        for level, category in m.dominant_category.items():
            total += 2.0 * (max(column(level)) - table[category, level])
        return total

    best, best_loss = dict(table), loss(LEVELS)
    current, dice = best_loss, Dice("marginals", 5)
    for turn in range(_ROUNDS):
        heat = 0.05 * (1 - turn / _ROUNDS)
        up, down = (dice.choice(_CATEGORIES, turn, end) for end in ("up", "down"))
        low, high = (dice.choice(LEVELS, turn, end) for end in ("low", "high"))
        if up == down or low == high or not table[up, low] or not table[down, high]:
            continue
        _shift(table, up, down, low, high, 1)
        after = loss(LEVELS)
        if after <= current or dice.chance(exp((current - after) / max(heat, 1e-6)), turn):
            current = after
            if after < best_loss - 1e-12:
                best, best_loss = dict(table), after
        else:
            _shift(table, up, down, low, high, -1)
    return best


def _shift(table: Table, up: Category, down: Category, low: Asil, high: Asil, by: int) -> None:
    table[up, low] -= by
    table[up, high] += by
    table[down, high] -= by
    table[down, low] += by


def _start(m: Marginals) -> Table:
    rows, columns = dict(m.categories), dict(m.asil)
    table: Table = {(c, a): 0 for c in _CATEGORIES for a in LEVELS}
    for level in reversed(LEVELS):
        favourite = m.dominant_category[level]
        count = min(round(m.dominant_share[level] * m.asil[level]), rows[favourite])
        table[favourite, level] = count
        rows[favourite] -= count
        columns[level] -= count
    for category in _CATEGORIES:
        # The rest goes where most room is left, one at a time, which keeps the columns even.
        for _ in range(rows[category]):
            level = max(LEVELS, key=lambda a: columns[a])
            table[category, level] += 1
            columns[level] -= 1
    return table


def apportion(weights: Mapping[K, float], total: int) -> dict[K, int]:
    """Whole shares of ``total`` in proportion to the weights (largest remainder, ties in given order)."""
    whole = sum(weights.values())
    exact = {key: weight / whole * total for key, weight in weights.items()}
    counts = {key: int(value) for key, value in exact.items()}
    rest = sorted(exact, key=lambda key: counts[key] - exact[key])
    for key in rest[: total - sum(counts.values())]:
        counts[key] += 1
    return counts
