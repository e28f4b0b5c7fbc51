"""Fits weights with numpy: conditional logit over the steps (or agents) of a trace, and multinomial logit.

Both are convex and solved by Newton's method, so the same data give the same weights. The penalty pulls
towards a prior, which for steps and agents is the zero-training baseline: with little data, or with a
strong penalty, the ranker is that baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cockpithat.ranking.texts import Features

Array = NDArray[np.float64]
_ITERATIONS = 25
_PRECISION = 1e-6


@dataclass(frozen=True)
class Choice:
    """One trace: features of its options, and which of them are right (indices; mostly one)."""

    options: Sequence[Features]
    right: tuple[int, ...]
    weight: float = 1.0


def fit_choices(
    choices: Sequence[Choice], *, penalty: float, prior: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Weights that make the right options likely: ``P(i) = exp(w x_i) / sum_j exp(w x_j)``.

    ``penalty`` is the weight of half the squared distance to ``prior``, in units of each feature's spread.
    """
    prior = prior or {}
    names = sorted({name for c in choices for option in c.options for name in option} | set(prior))
    if not names:
        return dict(prior)
    usable = [c for c in choices if c.right and len(c.options) > 1]
    tables = [_matrix(c.options, names) for c in usable]
    if not tables:
        return dict(prior)
    scale = _spread(np.vstack(tables))
    start = np.array([prior.get(name, 0.0) for name in names]) * scale
    weights = start.copy()
    # All options of all traces in one table: `of` says which trace an option belongs to.
    table = np.vstack(tables) / scale
    sizes = [len(part) for part in tables]
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    of = np.repeat(np.arange(len(sizes)), sizes)
    right = np.zeros(len(table))
    for begin, choice in zip(starts, usable, strict=True):
        right[[int(begin) + r for r in choice.right]] = 1.0
    each = np.array([choice.weight for choice in usable])

    def shares_of(point: Array) -> tuple[Array, Array, float]:
        """Share of each option, share of the right ones of its trace, and what is minimised."""
        scores = table @ point
        raised = np.exp(scores - np.maximum.reduceat(scores, starts)[of])
        shares = raised / np.add.reduceat(raised, starts)[of]
        good = np.maximum(np.add.reduceat(shares * right, starts), 1e-300)
        loss = 0.5 * penalty * float(((point - start) ** 2).sum()) - float(each @ np.log(good))
        return shares, good[of], loss

    shares, good, loss = shares_of(weights)
    for _ in range(_ITERATIONS):
        wanted = shares * right / good
        gradient = penalty * (weights - start) - table.T @ (each[of] * (wanted - shares))
        means = np.add.reduceat(table * shares[:, None], starts, axis=0)
        hessian = (table.T * (each[of] * shares)) @ table - (means.T * each) @ means
        hessian += penalty * np.eye(len(names))
        step = np.linalg.solve(hessian, gradient)
        length = 1.0
        while True:
            moved = weights - length * step
            new_shares, new_good, new_loss = shares_of(moved)
            if new_loss <= loss or length < 1e-4:
                break
            length /= 2
        done = loss - new_loss < _PRECISION * (1 + abs(loss))
        weights, shares, good, loss = moved, new_shares, new_good, new_loss
        if done:
            break
    return {name: float(w) for name, w in zip(names, weights / scale, strict=True)}


def fit_classes(
    rows: Sequence[Features], labels: Sequence[str], *, penalty: float, classes: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Multinomial logit: weights by class. Each row gets the constant feature ``always``."""
    full = [{**row, "always": 1.0} for row in rows]
    names = sorted({name for row in full for name in row})
    table = _matrix(full, names)
    scale = _spread(table)
    scale[names.index("always")] = 1.0
    table = table / scale
    wanted = np.array([[float(label == name) for name in classes] for label in labels])
    weights = np.zeros((len(names), len(classes)))
    shrink = np.full(len(names), penalty)
    shrink[names.index("always")] = penalty / 100
    for _ in range(_ITERATIONS * 4):
        moved = 0.0
        for k in range(len(classes)):  # one class at a time keeps the Hessian small
            shares = _softmax_rows(table @ weights)
            p = shares[:, k]
            gradient = table.T @ (p - wanted[:, k]) + shrink * weights[:, k]
            hessian = (table.T * (p * (1 - p) + 1e-9)) @ table + np.diag(shrink)
            step = np.linalg.solve(hessian, gradient)
            weights[:, k] -= step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
            moved = max(moved, float(np.abs(step).max()))
        if moved < 1e-4:
            break
    weights = weights / scale[:, None]
    return {
        name: {feature: float(weights[f, k]) for f, feature in enumerate(names)}
        for k, name in enumerate(classes)
    }


def _matrix(rows: Sequence[Features], names: Sequence[str]) -> Array:
    place = {name: i for i, name in enumerate(names)}
    table = np.zeros((len(rows), len(names)))
    for r, row in enumerate(rows):
        for name, value in row.items():
            at = place.get(name)
            if at is not None:
                table[r, at] = value
    return table


def _spread(table: Array) -> Array:
    # A feature that hardly ever occurs is not blown up: its scale is at least that of one case in fifty.
    spread = table.std(axis=0)
    return np.asarray(np.maximum(spread, 0.14), dtype=np.float64)


def _softmax_rows(scores: Array) -> Array:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float64)
