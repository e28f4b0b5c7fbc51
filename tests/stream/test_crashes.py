"""Who ended a process without a word: the notes of owners, and the search for the record."""

from __future__ import annotations

import pytest

from stream.crashes import CrashCounter, Watch
from stream.records import Record
from stream.snapshots import first_timestamp
from tests.support.kafka import KafkaBroker


@pytest.mark.parametrize(
    ("offset", "span"),
    [
        (0, (0, 100)),
        (850, (850, 900)),
        (899, (899, 900)),
        (900, (900, 901)),
        (999, (999, 1_000)),
        (1_000, (1_000, 1_100)),
    ],
)
def test_a_hundred_at_a_time_and_one_by_one_where_the_last_owner_ended(
    offset: int, span: tuple[int, int]
) -> None:
    assert Watch(until=5_000, singly=(900, 1_000)).announce(offset) == span


@pytest.fixture
def owner(kafka: KafkaBroker) -> tuple[str, str]:
    """An input topic with three records in partition 0, and a compacted topic for notes."""
    events, notes = kafka.unique("events"), kafka.unique("crashes")
    kafka.create_topics(events, partitions=1)
    kafka.create_topics(notes, partitions=2, config={"cleanup.policy": "compact"})
    kafka.produce(events, [(b"v", b"%d" % number) for number in range(3)], partition=0)
    return events, notes


def counter(kafka: KafkaBroker, notes: str) -> CrashCounter:
    """As a worker that has just started has it."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    return CrashCounter(notes, limit=2, producer=servers, consumer={**servers, "group.id": notes})


def record(topic: str, offset: int) -> Record:
    return Record(topic, 0, offset, 0, b"v", b"")


@pytest.mark.kafka
def test_an_owner_that_says_goodbye_makes_nobody_careful(kafka: KafkaBroker, owner: tuple[str, str]) -> None:
    events, notes = owner
    first = counter(kafka, notes)
    assert first.take_over(events, 0, 2) is None
    first.say_goodbye(events, 0)
    assert counter(kafka, notes).take_over(events, 0, 2) is None


@pytest.mark.kafka
def test_a_record_announced_alone_is_blamed_at_the_limit(kafka: KafkaBroker, owner: tuple[str, str]) -> None:
    events, notes = owner
    assert counter(kafka, notes).take_over(events, 0, 2) is None
    second = counter(kafka, notes)
    watch = second.take_over(events, 0, 2)
    assert watch == Watch(until=3)
    second.leave_note(events, 0, watch.announce(0))
    third = counter(kafka, notes)
    watch = third.take_over(events, 0, 2)
    assert watch == Watch(until=3, singly=(0, 100))
    assert third.exceeded(record(events, 1)) == 0
    for _ in range(2):
        third.leave_note(events, 0, (1, 2))
        third = counter(kafka, notes)
        third.take_over(events, 0, 2)
    assert third.exceeded(record(events, 1)) == 2
    assert third.exceeded(record(events, 0)) == 0


@pytest.mark.kafka
def test_an_owner_that_was_idle_blames_nobody(kafka: KafkaBroker, owner: tuple[str, str]) -> None:
    events, notes = owner
    first = counter(kafka, notes)
    first.take_over(events, 0, 2)
    first.leave_note(events, 0, (1, 2))
    first.leave_note(events, 0)  # what was announced has been taken
    second = counter(kafka, notes)
    assert second.take_over(events, 0, 2) == Watch(until=3)
    assert all(second.exceeded(record(events, offset)) == 0 for offset in range(3))


@pytest.mark.kafka
def test_the_time_of_the_first_record_that_is_still_to_be_read(
    kafka: KafkaBroker, owner: tuple[str, str]
) -> None:
    """A takeover reads vehicle state from there, however long the first fetch takes."""
    events, _ = owner
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": events}
    written = [message.timestamp()[1] for message in kafka.read(events)]
    assert first_timestamp(config, events, 0, 1) == written[1]
    assert first_timestamp(config, events, 0, 3) is None
