"""How often a record has ended the process, kept in a compacted topic over restarts.

Only infrastructure errors should end a worker. When the same record does it again and again, it is put
aside, or the partition would stand still for ever.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from stream.records import Record

log = logging.getLogger(__name__)

_TIMEOUT_S = 15.0


class CrashCounter:
    """Counts by topic, partition and offset. ``load`` and ``note`` block."""

    def __init__(
        self, topic: str, *, limit: int, producer: Mapping[str, Any], consumer: Mapping[str, Any]
    ) -> None:
        """``limit`` crashes by one record are enough. The configurations are librdkafka's."""
        self._topic = topic
        self._limit = limit
        self._producer = dict(producer)
        self._consumer = dict(consumer)
        self._counts: dict[str, int] = {}

    def load(self, partitions: int) -> None:
        """Read all counts. Raises ``KafkaException``."""
        consumer = Consumer({**self._consumer, "enable.partition.eof": True})
        waiting = set(range(partitions))
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in waiting])
            while waiting and time.monotonic() < deadline:
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        self._take(message.key(), message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        waiting.discard(message.partition() or 0)
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()

    def exceeded(self, record: Record) -> int:
        """How often ``record`` has ended the process if that is too often, else 0."""
        if not self._counts:
            return 0
        count = self._counts.get(_place(record), 0)
        return count if count >= self._limit else 0

    def note(self, record: Record) -> int:
        """``record`` ends the process now; the count with this time. A broker that is away is logged."""
        place = _place(record)
        count = self._counts[place] = self._counts.get(place, 0) + 1
        producer = Producer(self._producer)
        producer.produce(self._topic, json.dumps({"count": count}).encode(), place.encode())
        if producer.flush(_TIMEOUT_S):
            log.error("a crash could not be counted", extra={"topic": self._topic})
        return count

    def _take(self, key: Any, value: Any) -> None:
        try:
            self._counts[bytes(key).decode()] = int(json.loads(value)["count"])
        except (TypeError, ValueError, KeyError):
            log.warning("a count of crashes cannot be read", extra={"topic": self._topic})


def _place(record: Record) -> str:
    return f"{record.topic}:{record.partition}:{record.offset}"
