"""How many sessions a worker may hold open, over all its partitions."""

from __future__ import annotations


class OpenSessionBudget:
    """A count shared by the engines of one worker."""

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0

    def acquire(self) -> None:
        """A session opened."""
        self.open += 1

    def release(self, count: int = 1) -> None:
        """Sessions closed, or their partition went to another worker."""
        self.open -= count

    @property
    def is_exceeded(self) -> bool:
        """Whether the oldest session has to go."""
        return self.open > self.limit
