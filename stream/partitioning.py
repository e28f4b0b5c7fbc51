"""Co-partitioning, checked and not assumed (design, decision 10).

Events and snapshots of a vehicle meet only if both topics have as many partitions and both producers place
keys in the same way: murmur2, as Kafka's own clients do. A plain librdkafka producer uses CRC32.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stream.context import Partitions
from stream.faust_compat import murmur2
from stream.health import Health
from stream.metrics import Metrics
from stream.records import Record

log = logging.getLogger(__name__)

_REMEMBERED = 200_000


def murmur2_partition(key: bytes, count: int) -> int:
    """The partition that Kafka's default partitioner gives ``key`` among ``count``."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def uneven(counts: Mapping[str, int | None], topics: Iterable[str]) -> str | None:
    """One line that says which of ``topics`` are missing or differ in partitions; ``None`` if all agree."""
    wanted = list(topics)
    missing = [topic for topic in wanted if not counts.get(topic)]
    if missing:
        return f"missing topics: {', '.join(missing)}; run `cockpithat topics create`"
    if len({counts[topic] for topic in wanted}) > 1:
        differing = ", ".join(f"{topic} has {counts[topic]}" for topic in wanted)
        return f"partition counts differ: {differing}; a vehicle's events and snapshots would not meet"
    return None


class KeyCheck:
    """Checks each key once against the partition that it was found in."""

    def __init__(
        self, partitions: Partitions, metrics: Metrics, health: Health, *, probe: str = "key_partitioning"
    ) -> None:
        """``probe`` is what readiness calls this check."""
        self._partitions = partitions
        self._seen: set[tuple[str, bytes, int]] = set()
        self._misplaced: dict[str, int] = {}
        self._checked: dict[str, int] = {}
        self.counter = metrics.misplaced_keys
        health.require(probe, self.problem)

    def check(self, record: Record) -> bool:
        """Whether the record lies where its key belongs. A record without a key is not judged."""
        key = record.key
        if key is None or (record.topic, key, record.partition) in self._seen:
            return True
        count = self._partitions.count(record.topic)
        if not count:
            return True
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add((record.topic, key, record.partition))
        self._checked[record.topic] = self._checked.get(record.topic, 0) + 1
        if murmur2_partition(key, count) == record.partition:
            return True
        first = record.topic not in self._misplaced
        self._misplaced[record.topic] = self._misplaced.get(record.topic, 0) + 1
        self.counter.labels(record.topic).inc()
        if first:
            log.error(
                "a key lies in another partition than murmur2 gives it; set partitioner=murmur2_random in "
                "the producer",
                extra={"topic": record.topic, "partition": record.partition, "offset": record.offset},
            )
        return False

    def problem(self) -> str | None:
        """What readiness says: most keys of a topic are misplaced."""
        for topic, misplaced in list(self._misplaced.items()):
            checked = self._checked.get(topic, 0)
            if misplaced * 2 > checked:
                return (
                    f"{topic}: {misplaced} of {checked} keys are not partitioned by murmur2; "
                    "set partitioner=murmur2_random in the producer"
                )
        return None
