"""The few statistics that benchmark tables need, without a numerical library.

Shares are fractions of 1, not percent. Each function names its formula; the tests hold them against
published values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[float, float]
_Z95 = 1.959963984540054


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing, so that an empty group prints instead of failing."""
    return math.fsum(values) / len(values) if values else 0.0


def wilson(hits: float, n: int, z: float = _Z95) -> Interval:
    """Wilson's score interval of a share. ``hits`` may be fractional: a mean over repeats."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def clopper_pearson(hits: int, n: int, level: float = 0.95) -> Interval:
    """The exact binomial interval of a share."""
    if n == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _bisect(lambda p: 1 - binomial_cdf(hits - 1, n, p), tail)
    high = 1.0 if hits == n else _bisect(lambda p: -binomial_cdf(hits, n, p), -tail)
    return low, high


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) for X of Bin(n, p)."""
    return math.fsum(_binomial(i, n, p) for i in range(k + 1))


def binomial_interval(n: int, p: float, level: float = 0.95) -> tuple[int, int]:
    """The central counts that Bin(n, p) falls into with at least ``level``."""
    return _central([_binomial(i, n, p) for i in range(n + 1)], level)


def beta_binomial_interval(n: int, a: float, b: float, level: float = 0.95) -> tuple[int, int]:
    """The central counts of a beta-binomial: of n draws with a share that is itself Beta(a, b)."""

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    if b <= 0:
        return n, n
    return _central(
        [math.exp(_log_choose(n, i) + log_beta(i + a, n - i + b) - log_beta(a, b)) for i in range(n + 1)],
        level,
    )


def bootstrap(values: Sequence[float], *, draws: int = 2_000, seed: int = 0) -> Interval:
    """95% percentile bootstrap of a mean, resampling whole runs. The same for the same seed."""
    if not values:
        return 0.0, 1.0
    dice = random.Random(seed)
    n = len(values)
    means = sorted(math.fsum(dice.choices(values, k=n)) / n for _ in range(draws))
    return means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))]


@dataclass(frozen=True, slots=True)
class Test:
    """A test statistic and its p-value."""

    statistic: float
    p: float


def chi_squared(hits_a: float, n_a: int, hits_b: float, n_b: int) -> Test:
    """Pearson's chi-squared of two shares, one degree of freedom, without continuity correction.

    It treats the two runs as independent samples, as the papers' tables do.
    """
    total, hits = n_a + n_b, hits_a + hits_b
    if not n_a or not n_b or hits in (0, total):
        return Test(0.0, 1.0)
    statistic = 0.0
    for n, x in ((n_a, hits_a), (n_b, hits_b)):
        for observed, expected in ((x, n * hits / total), (n - x, n * (total - hits) / total)):
            statistic += (observed - expected) ** 2 / expected
    return Test(statistic, math.erfc(math.sqrt(statistic / 2)))


def mcnemar(only_a: int, only_b: int) -> Test:
    """The exact test for paired runs: of the runs that one solved and the other did not, a fair coin?"""
    n = only_a + only_b
    if n == 0:
        return Test(0.0, 1.0)
    return Test(float(min(only_a, only_b)), min(1.0, 2 * binomial_cdf(min(only_a, only_b), n, 0.5)))


def entropy_bits(counts: Iterable[int]) -> float:
    """H of equation 6: Shannon entropy, in bits, of the shares of these counts; 0 log 0 = 0."""
    present = [count for count in counts if count > 0]
    total = sum(present)
    return math.fsum(-c / total * math.log2(c / total) for c in present) + 0.0


def dominant_share(counts: Iterable[int]) -> float:
    """m of equation 6: the largest share; 0 of nothing."""
    present = list(counts)
    return max(present) / sum(present) if sum(present) else 0.0


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _binomial(k: int, n: int, p: float) -> float:
    if p <= 0 or p >= 1:
        return float(k == (0 if p <= 0 else n))
    return math.exp(_log_choose(n, k) + k * math.log(p) + (n - k) * math.log1p(-p))


def _central(masses: Sequence[float], level: float) -> tuple[int, int]:
    """Smallest and largest count whose tail beyond them is at most half of what ``level`` leaves."""
    tail = (1 - level) / 2
    low, below = 0, 0.0
    while low < len(masses) - 1 and below + masses[low] <= tail:
        below += masses[low]
        low += 1
    high, above = len(masses) - 1, 0.0
    while high > low and above + masses[high] <= tail:
        above += masses[high]
        high -= 1
    return low, high


def _bisect(rising: Callable[[float], float], wanted: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
