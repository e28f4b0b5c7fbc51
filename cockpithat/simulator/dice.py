"""Chance that survives replay: every draw is a pure function of a seed and a name.

A generator with hidden state would give other numbers behind the first change, so that two runs of a
scenario could not be compared. Here a draw depends on what it is for (for example "the wording of step
7") and on nothing drawn before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")
_SCALE = float(2**64)


class Dice:
    """Draws named by strings, under one seed."""

    __slots__ = ("_key",)

    def __init__(self, *seed: object) -> None:
        self._key = blake2b("\x1f".join(map(str, seed)).encode(), digest_size=16).digest()

    def unit(self, *name: object) -> float:
        """A number in [0, 1)."""
        data = "\x1f".join(map(str, name)).encode()
        return int.from_bytes(blake2b(data, digest_size=8, key=self._key).digest(), "big") / _SCALE

    def integer(self, low: int, high: int, *name: object) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + int(self.unit(*name) * (high - low + 1))

    def uniform(self, low: float, high: float, *name: object) -> float:
        """A number between ``low`` and ``high``."""
        return low + self.unit(*name) * (high - low)

    def chance(self, probability: float, *name: object) -> bool:
        """True with this probability."""
        return self.unit(*name) < probability

    def choice(self, items: Sequence[T], *name: object) -> T:
        """One of the items. Raises ``IndexError`` when there is none."""
        return items[int(self.unit(*name) * len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[float], *name: object) -> T:
        """One of the items, each as often as its weight says."""
        at = self.unit(*name) * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            at -= weight
            if at < 0:
                return item
        return items[-1]

    def shuffled(self, items: Sequence[T], *name: object) -> list[T]:
        """A new list in drawn order."""
        keyed = [(self.unit(*name, index), index) for index in range(len(items))]
        return [items[index] for _, index in sorted(keyed)]
