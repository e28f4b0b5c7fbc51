"""The benchmark's composition: exact sums, shares and entropies as near as whole counts allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import log2

import pytest

from cockpithat.contract.base import Asil, Category
from cockpithat.simulator.builder import turn_targets, wishes
from cockpithat.simulator.marginals import LEVELS, apportion, entropy, published, solve


def _column(level: Asil) -> list[int]:
    return [solve()[category, level] for category in Category]


def _partitions(total: int, parts: int, largest: int) -> Iterator[list[int]]:
    if parts == 0:
        if total == 0:
            yield []
        return
    for first in range(min(total, largest), -1, -1):
        for rest in _partitions(total - first, parts - 1, first):
            yield [first, *rest]


def test_rows_and_columns_are_the_published_counts() -> None:
    m, table = published(), solve()
    assert sum(table.values()) == 212 and min(table.values()) >= 0
    for category in Category:
        assert sum(table[category, level] for level in LEVELS) == m.categories[category]
    for level in LEVELS:
        assert sum(_column(level)) == m.asil[level]
    assert [m.categories[c] for c in Category] == [37, 24, 22, 30, 16, 20, 41, 22]
    assert [m.asil[level] for level in LEVELS] == [98, 51, 37, 26]


@pytest.mark.parametrize(("level", "share"), [("A", 0.235), ("B", 0.275), ("C", 0.378), ("D", 0.615)])
def test_dominant_shares_round_to_the_published_ones(level: str, share: float) -> None:
    column = _column(Asil(level))
    assert round(max(column) / sum(column), 3) == share


def test_sixteen_of_26_asil_d_are_safety_safeguard_failures() -> None:
    assert solve()[Category.SAFETY_SAFEGUARD_FAILURE, Asil.D] == 16


@pytest.mark.parametrize(
    ("level", "bits", "off"), [("A", 2.660, 0.003), ("B", 2.840, 0.003), ("C", 2.410, 0.004)]
)
def test_entropies_come_within_a_few_thousandths_of_a_bit(level: str, bits: float, off: float) -> None:
    assert abs(entropy(_column(Asil(level))) - bits) <= off


def test_no_whole_counts_come_nearer_to_the_entropy_of_d() -> None:
    """1.550 bit with 16 of 26 cannot be met exactly; every way to spread the other ten is tried here."""
    best = min(abs(entropy([16, *rest]) - 1.550) for rest in _partitions(10, 7, 10))
    assert abs(entropy(_column(Asil.D)) - 1.550) == pytest.approx(best)
    assert best > 0.001


def test_entropy_is_shannons_in_bits() -> None:
    assert entropy([1, 1, 1, 1, 1, 1, 1, 1]) == pytest.approx(3.0)
    assert entropy([5, 0, 0]) == 0.0
    assert entropy([3, 1]) == pytest.approx(-(0.75 * log2(0.75) + 0.25 * log2(0.25)))


def test_turn_targets_have_the_published_spread() -> None:
    turns = turn_targets(212, published())
    mean = sum(turns) / len(turns)
    sd = (sum((t - mean) ** 2 for t in turns) / len(turns)) ** 0.5
    assert (min(turns), max(turns)) == (4, 38)
    assert mean == pytest.approx(14.3, abs=0.4) and sd == pytest.approx(6.8, abs=0.4)


def test_other_sizes_keep_the_proportions() -> None:
    plan = wishes(0, 53)
    assert len(plan) == 53
    assert sum(w.asil == Asil.A for w in plan) in (24, 25)
    assert apportion({"a": 78, "b": 83, "c": 51}, 53) == {"a": 19, "b": 21, "c": 13}
    assert sum(apportion({"a": 1, "b": 1, "c": 1}, 100).values()) == 100


def test_the_wish_list_of_the_full_benchmark_has_the_source_kinds() -> None:
    counts = Counter(wish.source for wish in wishes(0, 212))
    assert counts == {"adapted_style": 78, "telemetry_style": 83, "adversarial": 51}
