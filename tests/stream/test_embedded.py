"""The embedded broker: what the worker may count on there, and what not."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from stream.embedded import PARTITIONS, EmbeddedBroker, is_embedded
from stream.publish import TransactionalWriter
from stream.records import Output


def test_topics_come_into_being_with_four_partitions() -> None:
    with EmbeddedBroker() as broker:
        broker.create("a", "b")
        metadata = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=5)
        assert is_embedded(metadata.cluster_id)
        found = metadata.topics
        assert {name: len(found[name].partitions) for name in ("a", "b")} == {
            "a": PARTITIONS,
            "b": PARTITIONS,
        }


def test_the_transactional_writer_works_there() -> None:
    with EmbeddedBroker() as broker:
        broker.create("a")
        writer = TransactionalWriter(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}, timeout_s=10
        )
        writer.open()
        writer.write([Output("a", 2, b"k", str(number).encode()) for number in range(10)])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("a", 2, 0)])
        values: list[bytes | str | None] = []
        deadline = time.monotonic() + 10
        while len(values) < 10 and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(10, 0.2) if message.error() is None]
        consumer.close()
        assert values == [str(number).encode() for number in range(10)]
