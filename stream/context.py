"""What the worker gives every role: settings, metrics, clocks, holds, pauses and writers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from stream.crashes import CrashCounter
from stream.deadletters import DeadLetterGuard
from stream.health import Health
from stream.hold import Holds
from stream.kafka_config import consumer_config, transactional_config
from stream.metrics import Metrics
from stream.publish import TransactionalWriter
from stream.settings import Settings

log = logging.getLogger(__name__)

Flow = Callable[[str, int], None]


def epoch_ms() -> int:
    """The wall clock, in epoch ms."""
    return time.time_ns() // 1_000_000


class Pauses:
    """Why each partition is paused. It is fetched again when the last reason is gone."""

    def __init__(self, pause: Flow, resume: Flow, count: Callable[[int], None] = lambda _: None) -> None:
        self._pause = pause
        self._resume = resume
        self._count = count
        self._reasons: dict[tuple[str, int], set[str]] = {}

    def pause(self, topic: str, partition: int, reason: str) -> None:
        """Stop fetching for ``reason``; what was fetched already still arrives."""
        reasons = self._reasons.setdefault((topic, partition), set())
        if not reasons:
            self._pause(topic, partition)
        reasons.add(reason)
        self._count(len(self._reasons))

    def resume(self, topic: str, partition: int, reason: str) -> None:
        """``reason`` is gone."""
        reasons = self._reasons.get((topic, partition))
        if reasons is None or reason not in reasons:
            return
        reasons.discard(reason)
        if not reasons:
            del self._reasons[topic, partition]
            self._resume(topic, partition)
        self._count(len(self._reasons))

    def reset(self) -> None:
        """A rebalance: the client starts every partition anew, unpaused."""
        self._reasons.clear()
        self._count(0)


class Partitions:
    """Partition counts of the topics, as of the last look."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})

    def update(self, counts: Mapping[str, int]) -> None:
        """Take over counts; topics that are not named keep theirs."""
        self._counts.update(counts)

    def count(self, topic: str) -> int | None:
        """Number of partitions, or ``None`` for a topic that does not exist."""
        return self._counts.get(topic)

    def beside(self, topic: str, partition: int) -> int:
        """The partition of ``topic`` for outputs of input ``partition``: the same where there are as many."""
        return partition % (self._counts.get(topic) or partition + 1)


@dataclass(slots=True)
class WorkerContext:
    """Shared by the roles of one worker. Used on the event loop only."""

    settings: Settings
    metrics: Metrics
    health: Health
    pauses: Pauses
    partitions: Partitions
    executor: ThreadPoolExecutor
    fatal: Callable[[Exception], None]
    end_offset: Callable[[str, int], int | None]
    fetched_offset: Callable[[str, int], int | None]
    committed_offset: Callable[[str, int], int | None]
    last_contact_ms: Callable[[str, int], int | None]
    guard: DeadLetterGuard
    crashes: CrashCounter
    frames: dict[str, bytes] = field(default_factory=dict)  # before the values of a topic, by its name
    holds: Holds = field(default_factory=Holds)
    now_ms: Callable[[], int] = epoch_ms

    def waiting(self, topic: str, partition: int, position: int) -> int | None:
        """Records of an input partition from ``position`` on; ``None`` while its end is not known.

        Offsets up to the end are counted, but for those known to hold nothing: a partition that is fetched
        to its end has only transaction markers left, which never arrive.
        """
        end = self.end_offset(topic, partition)
        if end is None:
            return None
        fetched = self.fetched_offset(topic, partition)
        return 0 if fetched is not None and fetched >= end else max(0, end - position)

    def writer(self, topic: str, partition: int) -> TransactionalWriter:
        """The transactional writer for outputs of an input partition."""
        kafka = self.settings.kafka
        return TransactionalWriter(
            transactional_config(kafka, topic, partition),
            timeout_s=kafka.transaction_timeout_ms / 1000,
            frames=self.frames,
        )

    def reading(self) -> dict[str, Any]:
        """Configuration of a consumer beside Faust's group: nothing is committed under this name."""
        kafka = self.settings.kafka
        return consumer_config(kafka, group_id=f"{kafka.group_id}.reader")
