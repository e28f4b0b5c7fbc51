"""Split conformal prediction over rankings of steps.

On labelled runs the score of a run is the place of its decisive step in the ranking. The threshold for a
coverage of 1 - a is the ceil((n + 1)(1 - a))-th smallest of n scores; the set of a new trace holds the steps
whose score would not exceed it. If calibration runs and new ones are exchangeable (drawn alike: same kind of
system, same labellers, same method and configuration), the set holds the decisive step with a probability of
at least 1 - a, on average over both; nothing is promised for one trace or for traces of another kind.

Places are whole numbers and tie a lot, which makes plain sets far larger than asked for. So a number in
[0, 1), drawn from a hash of the trace's id, is taken off the place: coverage is then 1 - a to within
1 / (n + 1), and the same trace gets the same set each time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from enum import StrEnum

from cockpithat.calibration.ranking import contiguous


class Shape(StrEnum):
    """What the steps that are given form: one range, or any set."""

    RANGE = "range"
    SET = "set"


class Scale(StrEnum):
    """What a place counts in: steps, or shares of the trace's length (its length then scales the set)."""

    STEPS = "steps"
    SHARE = "share"


def order_of(ranking: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """Steps in the order in which sets of a shape take them up."""
    return contiguous(ranking) if shape == Shape.RANGE else tuple(ranking)


def jitter(trace_id: str) -> float:
    """A number in [0, 1) that depends on the trace's id only."""
    raw = hashlib.sha256(b"conformal\0" + trace_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(raw[:7], "big") / 2**56


def score_of(order: Sequence[int], step: int, trace_id: str, scale: Scale) -> float:
    """The score of the decisive step; infinite if the order does not hold it."""
    try:
        place = order.index(step) + 1
    except ValueError:
        return math.inf
    value = place - jitter(trace_id)
    return value / len(order) if scale == Scale.SHARE else value


def threshold(scores: Sequence[float], coverage: float) -> float:
    """The conformal quantile; infinite when there are too few scores for this coverage."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage {coverage} must lie between 0 and 1")
    place = math.ceil((len(scores) + 1) * coverage - 1e-9)
    return math.inf if place > len(scores) else sorted(scores)[place - 1]


def steps_within(order: Sequence[int], limit: float, trace_id: str, scale: Scale) -> tuple[int, ...]:
    """The set of a trace, in the order's order; never empty, as a range without a step would say nothing."""
    if math.isinf(limit):
        return tuple(order)
    size = math.floor(limit * (len(order) if scale == Scale.SHARE else 1) + jitter(trace_id) + 1e-9)
    return tuple(order[: max(1, size)])
