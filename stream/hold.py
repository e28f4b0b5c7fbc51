"""Which offset of an input partition may be committed (design, decision 5).

State lives in memory, so the committed offset never passes a record that somebody still needs: the first
event of an open session, a trace whose report is not out yet, a record whose outputs are not delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CHECKPOINT_MS = 1_000


def _nothing() -> int | None:
    return None


@dataclass(slots=True)
class PartitionHold:
    """What one input partition still needs. All offsets are of that partition.

    ``floor`` answers the lowest offset that the partition's state machine needs, or ``None``.
    """

    floor: Callable[[], int | None] = _nothing
    position: int | None = None
    _tickets: dict[int, int] = field(default_factory=dict)
    _next_ticket: int = 0
    _checkpoints: deque[tuple[int, int]] = field(default_factory=deque)

    def passed(self, offset: int, timestamp_ms: int) -> None:
        """The record at ``offset`` (Kafka timestamp in epoch ms) has been taken in."""
        self.position = offset + 1
        if not self._checkpoints or timestamp_ms >= self._checkpoints[-1][1] + CHECKPOINT_MS:
            self._checkpoints.append((offset, timestamp_ms))

    def acquire(self, offset: int) -> int:
        """Keep ``offset`` and everything after it until the returned ticket is released."""
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = offset
        return ticket

    def release(self, ticket: int) -> None:
        """Give a ticket back. A ticket that is not known has been released before."""
        self._tickets.pop(ticket, None)

    @property
    def lowest(self) -> int | None:
        """The lowest offset that is held, or ``None`` when nothing is."""
        floor = self.floor()
        tickets = min(self._tickets.values(), default=None)
        if floor is None or tickets is None:
            return tickets if floor is None else floor
        return min(floor, tickets)

    @property
    def committable(self) -> int | None:
        """The offset to commit: the next one to read, or the held one. ``None`` before the first record."""
        if self.position is None:
            return None
        lowest = self.lowest
        return self.position if lowest is None else min(self.position, lowest)

    @property
    def pending(self) -> int:
        """How many tickets are out."""
        return len(self._tickets)

    def age_ms(self, now_ms: int) -> int:
        """How long ago the held record was written (Kafka timestamp), in ms; 0 when nothing is held."""
        lowest = self.lowest
        if lowest is None:
            self._checkpoints.clear()
            return 0
        while len(self._checkpoints) > 1 and self._checkpoints[1][0] <= lowest:
            self._checkpoints.popleft()
        return max(0, now_ms - self._checkpoints[0][1]) if self._checkpoints else 0


class Holds:
    """The holds of all partitions that this worker has, by topic and partition."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, int], PartitionHold] = {}

    def open(self, topic: str, partition: int, floor: Callable[[], int | None] = _nothing) -> PartitionHold:
        """A fresh hold for an assigned partition; what an earlier ownership held is forgotten."""
        hold = PartitionHold(floor=floor)
        self._holds[topic, partition] = hold
        return hold

    def close(self, topic: str, partition: int) -> None:
        """The partition is no longer ours."""
        self._holds.pop((topic, partition), None)

    def committable(self, topic: str, partition: int) -> int | None:
        """See :attr:`PartitionHold.committable`; ``None`` for a partition that is not ours."""
        hold = self._holds.get((topic, partition))
        return None if hold is None else hold.committable

    def __iter__(self) -> Iterator[tuple[str, int, PartitionHold]]:
        for (topic, partition), hold in list(self._holds.items()):
            yield topic, partition, hold
