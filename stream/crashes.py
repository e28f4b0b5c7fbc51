"""How often a record has ended the process, kept in a compacted topic over restarts.

Only infrastructure errors should end a worker. When the same record does it again and again, it is put
aside, or the partition would stand still for ever.

An exception can be counted while the process ends. A process that is gone at once (killed for its memory, a
fault in native code) can count nothing, so the owner of each partition leaves a note there. Who finds the
note of an owner that did not say goodbye announces records before it takes them, as far as that owner can
have come: a hundred at a time, and where it ends again, one by one. The hot path pays nothing for this.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from stream.kafka_config import passes
from stream.records import Record

log = logging.getLogger(__name__)

_TIMEOUT_S = 15.0
_ANNOUNCED = 100
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Watch:
    """How carefully to read a partition: announce records before ``until``, those in ``singly`` alone."""

    until: int
    singly: tuple[int, int] = (0, 0)

    def announce(self, offset: int) -> tuple[int, int]:
        """The span of offsets, end excluded, to announce before the record at ``offset`` is taken."""
        first, end = self.singly
        if first <= offset < end:
            return offset, offset + 1
        after = offset + _ANNOUNCED
        return offset, min(after, first) if offset < first else after


class CrashCounter:
    """Counts by topic, partition and offset; notes of owners by topic and partition.

    Everything but ``exceeded`` blocks; safe from several threads.
    """

    def __init__(
        self, topic: str, *, limit: int, producer: Mapping[str, Any], consumer: Mapping[str, Any]
    ) -> None:
        """``limit`` crashes by one record are enough. The configurations are librdkafka's."""
        self._topic = topic
        self._limit = limit
        self._producer_config = dict(producer)
        self._consumer = dict(consumer)
        self._producer: Producer | None = None
        self._mutex = threading.Lock()
        self._counts: dict[str, int] = {}
        self._owners: dict[str, dict[str, Any]] = {}

    def load(self, partitions: int) -> None:
        """Read everything. Raises ``KafkaException``."""
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
                    elif not passes(error):
                        raise KafkaException(error)
        finally:
            consumer.close()

    def exceeded(self, record: Record) -> int:
        """How often ``record`` has ended the process if that is too often, else 0."""
        if not self._counts:
            return 0
        count = self._counts.get(_place(record.topic, record.partition, record.offset), 0)
        return count if count >= self._limit else 0

    def note(self, record: Record) -> int:
        """``record`` ends the process now; the count with this time. A broker that is away is logged."""
        return self._count(record.topic, record.partition, record.offset)

    def take_over(self, topic: str, partition: int, partitions: int) -> Watch | None:
        """Become the owner of an input partition. ``partitions``: how many the topic of counts has.

        Answers how carefully to read if the last owner ended without a goodbye. Raises ``KafkaException``.
        """
        self.load(partitions)
        last = self._owners.get(_owner(topic, partition))
        self.leave_note(topic, partition)
        if last is None or last.get("gone"):
            return None
        first, end = last.get("span") or (0, 0)
        if end == first + 1:
            count = self._count(topic, partition, first)
            log.error(
                "the last owner ended without a word while it took this record",
                extra={"topic": topic, "partition": partition, "offset": first, "count": count},
            )
        consumer = Consumer(self._consumer)
        try:
            tp = TopicPartition(topic, partition)
            until = consumer.get_watermark_offsets(tp, timeout=_TIMEOUT_S)[1]
        finally:
            consumer.close()
        log.warning(
            "the last owner ended without a word; records are announced until its place is passed",
            extra={"topic": topic, "partition": partition, "offset": until},
        )
        return Watch(until, (first, end))

    def leave_note(self, topic: str, partition: int, span: tuple[int, int] | None = None) -> bool:
        """Say that the partition has an owner, who is about to take the records in ``span``."""
        return self._write(_owner(topic, partition), {"span": span} if span else {"span": None})

    def say_goodbye(self, topic: str, partition: int) -> bool:
        """The partition is given back in good order."""
        return self._write(_owner(topic, partition), {"gone": True})

    def _count(self, topic: str, partition: int, offset: int) -> int:
        place = _place(topic, partition, offset)
        with self._mutex:
            count = self._counts[place] = self._counts.get(place, 0) + 1
        if not self._write(place, {"count": count}):
            log.error("a crash could not be counted", extra={"topic": self._topic})
        return count

    def _write(self, key: str, value: dict[str, Any]) -> bool:
        with self._mutex:
            if self._producer is None:
                self._producer = Producer({**self._producer_config, "linger.ms": 0})
            producer = self._producer
        try:
            producer.produce(self._topic, json.dumps(value).encode(), key.encode())
        except (BufferError, KafkaException):
            return False
        return not producer.flush(_TIMEOUT_S)

    def _take(self, key: Any, value: Any) -> None:
        try:
            name, content = bytes(key).decode(), json.loads(value)
            if name.startswith(_OWNER + ":"):
                self._owners[name] = dict(content)
            else:
                self._counts[name] = int(content["count"])
        except (TypeError, ValueError, KeyError):
            log.warning("a count of crashes cannot be read", extra={"topic": self._topic})


def _place(topic: str, partition: int, offset: int) -> str:
    return f"{topic}:{partition}:{offset}"


def _owner(topic: str, partition: int) -> str:
    return f"{_OWNER}:{topic}:{partition}"
