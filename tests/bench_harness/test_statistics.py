"""The statistics against values that R and textbooks give."""

from __future__ import annotations

import pytest

from cockpithat.bench.statistics import (
    beta_binomial_interval,
    binomial_cdf,
    binomial_interval,
    bootstrap,
    chi_squared,
    clopper_pearson,
    dominant_share,
    entropy_bits,
    mcnemar,
    wilson,
)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)  # Newcombe 1998, table I, method 3


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(5, 10, 0.1871, 0.8129), (0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (81, 263, 0.2527, 0.3676)],
)
def test_clopper_pearson(hits: int, n: int, low: float, high: float) -> None:
    assert clopper_pearson(hits, n) == pytest.approx((low, high), abs=5e-5)  # Newcombe 1998, method 5


def test_no_runs_say_nothing() -> None:
    assert wilson(0, 0) == clopper_pearson(0, 0) == bootstrap([]) == (0.0, 1.0)


def test_binomial() -> None:
    assert binomial_cdf(5, 10, 0.5) == pytest.approx(638 / 1024)
    assert binomial_interval(100, 0.5) == (40, 60)
    assert binomial_interval(10, 1.0) == (10, 10)
    assert binomial_interval(10, 0.0) == (0, 0)


def test_binomial_interval_leaves_at_most_a_half_of_the_rest_on_either_side() -> None:
    for n, p in ((61, 0.8), (106, 0.5), (39, 0.9)):
        low, high = binomial_interval(n, p)
        assert binomial_cdf(low - 1, n, p) <= 0.025 < binomial_cdf(low, n, p)
        assert 1 - binomial_cdf(high, n, p) <= 0.025 < 1 - binomial_cdf(high - 1, n, p)


def test_a_beta_binomial_with_a_flat_share_is_uniform() -> None:
    assert beta_binomial_interval(39, 1, 1, level=0.89) == (2, 37)  # 40 counts of 2.5% each
    assert beta_binomial_interval(39, 4e9, 1e9) == binomial_interval(39, 0.8)  # a share known for sure


def test_chi_squared_has_one_degree_of_freedom_and_no_correction() -> None:
    test = chi_squared(10, 30, 20, 30)
    assert test.statistic == pytest.approx(6.6667, abs=1e-4)  # prop.test(c(10, 20), c(30, 30), correct=FALSE)
    assert test.p == pytest.approx(0.009823, abs=1e-6)
    assert chi_squared(3.841459 / 4, 1, 0, 0).p == 1.0
    assert chi_squared(0, 10, 0, 12).p == 1.0  # nobody was right: no difference to test


def test_mcnemar_is_the_exact_sign_test_of_the_discordant_runs() -> None:
    assert mcnemar(5, 15).p == pytest.approx(0.04139, abs=1e-5)  # binom.test(5, 20)
    assert mcnemar(15, 5).p == mcnemar(5, 15).p
    assert mcnemar(0, 0).p == mcnemar(7, 7).p == 1.0


def test_bootstrap_is_close_to_the_normal_interval_and_the_same_each_time() -> None:
    values = [1.0] * 300 + [0.0] * 700
    low, high = bootstrap(values)
    assert (low, high) == pytest.approx((0.3 - 1.96 * 0.01449, 0.3 + 1.96 * 0.01449), abs=0.006)
    assert bootstrap(values) == (low, high)
    assert bootstrap(values, seed=1) != (low, high)


def test_equation_6() -> None:
    assert entropy_bits([5]) == 0.0
    assert entropy_bits([3, 3, 0]) == 1.0  # an empty category adds nothing
    assert entropy_bits([4, 2, 1, 1]) == pytest.approx(1.75)
    assert dominant_share([4, 2, 1, 1]) == 0.5
    assert dominant_share([]) == 0.0
