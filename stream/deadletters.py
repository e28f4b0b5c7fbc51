"""Dead letters: the record's bytes unchanged, headers that say what failed; and the limit on them."""

from __future__ import annotations

import time
from collections import deque

from cockpithat import __version__
from cockpithat.contract.deadletter import HEADER_PREFIX, DeadLetterHeaders, DeadLetterReason
from stream.records import Output, Record


def identity(topic: str, partition: int, offset: int) -> str:
    """Id of a dead letter: a record is put aside once."""
    return f"dlq:{topic}:{partition}:{offset}"


def dead_letter(
    record: Record,
    reason: DeadLetterReason,
    *,
    detail: str,
    stage: str,
    topic: str,
    partition: int,
    vehicle_id: str | None = None,
    session_id: str | None = None,
) -> Output:
    """``record`` for the dead-letter ``topic``, with key, value and its own headers as they were."""
    headers = DeadLetterHeaders(
        reason=reason,
        detail=detail[:1000],
        stage=stage,
        source_topic=record.topic,
        source_partition=record.partition,
        source_offset=record.offset,
        source_timestamp=record.timestamp,
        vehicle_id=vehicle_id,
        session_id=session_id,
        failed_at=time.time_ns() // 1_000_000,
        product_version=__version__,
    )
    kept = tuple((name, value) for name, value in record.headers if not name.startswith(HEADER_PREFIX))
    return Output(topic, partition, record.key, record.value, (*kept, *headers.to_kafka()))


class DeadLetterGuard:
    """Says when so much is dead-lettered that the fault is more likely ours, or a producer's new version.

    Intake stops then, since a topic full of dead letters helps nobody; the records stay where they are.
    """

    def __init__(self, *, window: int, max_ratio: float, max_run: int) -> None:
        """Trips when a full ``window`` of records holds more than ``max_ratio`` dead letters, or on a run."""
        self._latest: deque[bool] = deque(maxlen=window)
        self._max_ratio = max_ratio
        self._max_run = max_run
        self._bad = 0
        self._run = 0
        self.tripped: str | None = None

    def good(self, count: int = 1) -> None:
        """``count`` records were taken in."""
        self._run = 0
        for _ in range(min(count, self._latest.maxlen or 0)):
            self._add(False)

    def bad(self) -> None:
        """A record was dead-lettered."""
        self._run += 1
        self._add(True)
        window = self._latest.maxlen or 0
        if self.tripped is not None:
            return
        if self._run > self._max_run:
            self.tripped = f"{self._run} records in a row were dead-lettered"
        elif len(self._latest) == window and self._bad > self._max_ratio * window:
            self.tripped = f"{self._bad} of the latest {window} records were dead-lettered"

    def _add(self, bad: bool) -> None:
        if len(self._latest) == self._latest.maxlen and self._latest[0]:
            self._bad -= 1
        self._latest.append(bad)
        self._bad += bad
