"""Puts events back into the order of their ``seq``."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class ReorderBuffer(Generic[T]):
    """Holds back up to ``limit`` items for a missing one, then gives it up.

    An item costs O(log limit). ``missing`` are the inclusive ranges given up so far, however wide
    a gap is: a range costs the same as a single number.
    """

    __slots__ = ("_heap", "_limit", "_pending", "missing", "next_seq")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[int] = []
        self._pending: dict[int, T] = {}
        self.next_seq = 0
        self.missing: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._pending)

    def push(self, seq: int, item: T) -> list[T]:
        """Take an item not seen before; what can leave now, in order.

        Raises ``ValueError`` when ``seq`` was passed already: the caller tells late from duplicate.
        """
        if seq < self.next_seq:
            raise ValueError(f"seq {seq} has passed")
        self._pending[seq] = item
        heapq.heappush(self._heap, seq)
        released = self._consecutive()
        while len(self._pending) > self._limit:
            self._give_up()
            released += self._consecutive()
        return released

    def drain(self) -> list[T]:
        """Give up every gap; all that is left, in order."""
        released: list[T] = []
        while self._pending:
            self._give_up()
            released += self._consecutive()
        return released

    def _consecutive(self) -> list[T]:
        released: list[T] = []
        while self._heap and self._heap[0] == self.next_seq:
            released.append(self._pending.pop(heapq.heappop(self._heap)))
            self.next_seq += 1
        return released

    def _give_up(self) -> None:
        lowest = self._heap[0]
        if lowest > self.next_seq:
            self.missing.append((self.next_seq, lowest - 1))
            self.next_seq = lowest
