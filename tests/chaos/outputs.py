"""Reads what workers write, and compares two runs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cockpithat.contract.deadletter import DeadLetterHeaders
from tests.chaos.load import INPUTS, Load
from tests.stream.cockpit import IDENTITY, Cluster

DEAD_LETTERS = tuple(f"dlq:{role}" for role in INPUTS)

# Where a record came from, when it was made and how long that took.
DELIVERY_METADATA = frozenset({"source", "first_source", "last_source", "sources", "seconds", "created_at"})

Body = dict[str, Any]


class Outputs:
    """Everything that was committed to the output topics of a cluster, read on as it comes."""

    def __init__(self, cluster: Cluster) -> None:
        self._roles = {cluster.topic(role): role for role in (*IDENTITY, *DEAD_LETTERS)}
        self._messages: dict[str, list[Message]] = {role: [] for role in self._roles.values()}
        self._ended: set[tuple[str, int]] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.broker.bootstrap_servers,
                "log_level": 2,
                "group.id": cluster.broker.unique("outputs"),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 16 * 1024 * 1024,
            }
        )
        self._partitions = [
            TopicPartition(topic, partition, 0)
            for topic in self._roles
            for partition in range(cluster.partitions)
        ]
        self._consumer.assign(self._partitions)

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def poll(self, seconds: float = 0.3) -> None:
        """Take what comes within ``seconds``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in self._consumer.consume(500, timeout=0.1):
                self._take(message)

    def to_end(self, timeout_s: float = 60.0) -> None:
        """Take everything up to the end of every partition."""
        self._ended.clear()
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, tp.offset) for tp in self._positions()])
        deadline = time.monotonic() + timeout_s
        while len(self._ended) < len(self._partitions):
            assert time.monotonic() < deadline, f"outputs not read to their end in {timeout_s:.0f} s"
            self.poll(0.1)

    def until(self, done: Callable[[Outputs], bool], timeout_s: float, *, settle_s: float = 2.0) -> bool:
        """Read until ``done``, and then for ``settle_s`` more; whether it was done in time."""
        deadline = time.monotonic() + timeout_s
        while not done(self):
            if time.monotonic() > deadline:
                return False
            self.poll()
        self.poll(settle_s)
        return True

    def assert_still_there(self, final: Outputs) -> None:
        """Nothing that was read as committed has gone or become something else."""

        def places(outputs: Outputs) -> dict[tuple[str, Any, Any], bytes | None]:
            return {
                (role, message.partition(), message.offset()): message.value()
                for role, messages in outputs._messages.items()
                for message in messages
            }

        now = places(final)
        lost = [place for place, value in places(self).items() if place not in now or now[place] != value]
        assert not lost, f"{len(lost)} committed records have gone, such as {lost[:5]}"

    def count(self, role: str) -> int:
        """Records of an output so far."""
        return len(self._messages[role])

    def messages(self, role: str) -> list[Message]:
        """The records of an output, as they lie in their partitions."""
        return self._messages[role]

    def bodies(self, role: str) -> list[Body]:
        """The records of an output that the product wrote (garbage put there by a test is left out)."""
        return [
            json.loads(message.value() or b"null")
            for message in self._messages[role]
            if any(name == "cockpithat.id" for name, _ in message.headers() or [])
        ]

    def letters(self) -> list[tuple[str, bytes | None, bytes | None, DeadLetterHeaders]]:
        """Dead letters: input they came from by its role, key, value, headers."""
        return [
            (
                role.removeprefix("dlq:"),
                message.key(),
                message.value(),
                DeadLetterHeaders.from_kafka(message.headers() or []),
            )
            for role in DEAD_LETTERS
            for message in self._messages[role]
        ]

    def _positions(self) -> list[TopicPartition]:
        positions = self._consumer.position(self._partitions)
        return [TopicPartition(tp.topic, tp.partition, max(0, tp.offset)) for tp in positions]

    def _take(self, message: Message) -> None:
        topic, partition = message.topic() or "", message.partition() or 0
        error = message.error()
        if error is None:
            self._ended.discard((topic, partition))
            self._messages[self._roles[topic]].append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ended.add((topic, partition))
        elif not error.retriable() and error.code() not in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
        ):
            raise KafkaException(error)


def content(value: Any) -> Any:
    """``value`` without delivery metadata, at every depth."""
    if isinstance(value, dict):
        return {name: content(item) for name, item in value.items() if name not in DELIVERY_METADATA}
    return [content(item) for item in value] if isinstance(value, list) else value


def by_identity(role: str, bodies: Iterable[Body]) -> dict[tuple[str, int], Body]:
    """Contents by id and revision. Fails when one occurs twice."""
    found: dict[tuple[str, int], Body] = {}
    for body in bodies:
        key = (body[IDENTITY[role]], body.get("revision", 1))
        assert key not in found, f"{role}: {key} is out twice"
        found[key] = content(body)
    return found


def assert_equal(expected: Outputs, actual: Outputs) -> dict[str, int]:
    """Every record of both runs is the same but for delivery metadata. Returns how many were compared."""
    compared = {}
    for role in IDENTITY:
        before = by_identity(role, expected.bodies(role))
        after = by_identity(role, actual.bodies(role))
        named = {key: (body["session_id"], body["vehicle_id"]) for key, body in {**before, **after}.items()}
        missing = [named[key] for key in before.keys() - after.keys()]
        extra = [named[key] for key in after.keys() - before.keys()]
        assert not missing, (
            f"{role}: {len(missing)} missing, such as {missing[:5]}; {len(extra)} others: {extra[:5]}"
        )
        assert not extra, f"{role}: {len(extra)} more than undisturbed, such as {extra[:5]}"
        different = [key for key in before if before[key] != after[key]]
        assert not different, f"{role}: {len(different)} differ, first {named[different[0]]}: " + difference(
            before[different[0]], after[different[0]]
        )
        compared[role] = len(before)
    return compared


def difference(before: Any, after: Any, place: str = "") -> str:
    """The first place where two contents differ, for a failed test."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                return difference(before.get(name), after.get(name), f"{place}.{name}")
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (left, right) in enumerate(zip(before, after, strict=True)):
            if left != right:
                return difference(left, right, f"{place}[{index}]")
    return f"{place}: {str(before)[:300]!r} became {str(after)[:300]!r}"


def assert_garbage_put_aside(load: Load, outputs: Outputs) -> int:
    """Each garbage record is in its dead-letter topic once, as it was, with its reason; nothing else is."""
    wanted = Counter((sent.input, sent.key, sent.value, sent.reason) for sent in load.garbage)
    letters = outputs.letters()
    found = Counter((role, key, value, headers.reason.value) for role, key, value, headers in letters)
    missing, extra = wanted - found, found - wanted
    assert not missing and not extra, f"missing {_short(missing)}; not expected {_short(extra)}"
    # Also not twice where two records were the same.
    sources = Counter((h.source_topic, h.source_partition, h.source_offset) for _, _, _, h in letters)
    assert max(sources.values(), default=1) == 1, "a record was dead-lettered twice"
    return len(letters)


def _short(letters: Counter[Any]) -> list[str]:
    return [f"{role} {key!r} {(value or b'')[:60]!r} {reason}" for role, key, value, reason in [*letters][:5]]
