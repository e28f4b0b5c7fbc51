"""Does a calibration keep its word on runs it has not seen?"""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from cockpithat.bench.statistics import (
    beta_binomial_interval,
    binomial_interval,
    clopper_pearson,
)
from cockpithat.calibration.conformal import Shape
from cockpithat.calibration.model import Calibration, Ranked


class Coverage(BaseModel):
    """How many of ``n`` unseen runs had the decisive step in their set.

    ``expected`` is the binomial 95% interval of hits if the true coverage were exactly the level.
    ``expected_split`` also allows for the chance of the calibration part itself: what split conformal
    promises for one split (beta-binomial). ``interval`` is the exact interval of the observed share.
    """

    model_config = ConfigDict(frozen=True)

    shape: Shape
    level: float
    n: int
    hits: int
    share: float
    interval: tuple[float, float]
    expected: tuple[int, int]
    expected_split: tuple[int, int]
    kept: bool
    calibrated_on: int
    mean_size: float
    median_size: float
    mean_share_of_trace: float


def check(calibration: Calibration, runs: Sequence[Ranked], shape: Shape, level: float) -> Coverage:
    """Coverage on unseen runs. ``kept`` is whether the hits lie in ``expected``."""
    sets = [calibration.steps(run.ranking, run.trace_id, shape, level) for run in runs]
    hits = sum(run.step in steps for run, steps in zip(runs, sets, strict=True))
    n = len(runs)
    low, high = binomial_interval(n, level)
    place = min(calibration.n, -(-int((calibration.n + 1) * level * 1e9) // 10**9))
    sizes = [len(steps) for steps in sets]
    shares = [len(s) / max(1, len(run.ranking)) for s, run in zip(sets, runs, strict=True)]
    return Coverage(
        shape=shape,
        level=level,
        n=n,
        hits=hits,
        share=hits / n if n else 0.0,
        interval=clopper_pearson(hits, n),
        expected=(low, high),
        expected_split=beta_binomial_interval(n, place, calibration.n + 1 - place),
        kept=low <= hits <= high,
        calibrated_on=calibration.n,
        mean_size=plain.fmean(sizes) if sizes else 0.0,
        median_size=plain.median(sizes) if sizes else 0.0,
        mean_share_of_trace=plain.fmean(shares) if shares else 0.0,
    )
