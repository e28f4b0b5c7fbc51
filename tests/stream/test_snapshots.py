"""The snapshot reader follows an assignment, starts where it is needed and dead-letters what it must."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.vehicle.log import SnapshotLog
from stream.embedded import EmbeddedBroker
from stream.kafka_config import consumer_config
from stream.settings import KafkaSettings
from stream.snapshots import Refused, SharedStates, SnapshotReader, fetch
from tests.support.kafka import KafkaBroker

T0 = 1_700_000_000_000


def snapshot(vehicle: str, ts: int, speed: float = 50.0) -> bytes:
    return json.dumps(
        {"type": "vehicle_snapshot", "vehicle_id": vehicle, "ts": ts, "signals": {"Vehicle.Speed": speed}}
    ).encode()


def eventually(check: Callable[[], bool], timeout: float = 15.0) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


class Reading:
    """A running reader and what it reports."""

    def __init__(self, servers: str, topic: str, lookback_ms: int = 60_000, lead_ms: int = 60_000) -> None:
        self.log = SnapshotLog()
        self.refused: list[Refused] = []
        self.failures: list[Exception] = []
        self.accepted = 0
        self.reader = SnapshotReader(
            consumer_config(KafkaSettings(bootstrap_servers=servers), group_id="reader"),
            topic,
            self.log,
            guard=threading.Lock(),
            refused=self.refused.extend,
            accepted=self._accept,
            failed=self.failures.append,
            lookback_ms=lookback_ms,
            lead_ms=lead_ms,
        )

    def _accept(self, count: int) -> None:
        self.accepted += count


@contextmanager
def reading(servers: str, topic: str, **bounds: int) -> Iterator[Reading]:
    under = Reading(servers, topic, **bounds)
    under.reader.start()
    try:
        yield under
        assert under.failures == []
    finally:
        under.reader.stop()


def send(
    servers: str, topic: str, records: list[tuple[bytes | None, bytes, int]], partition: int = 0
) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for key, value, timestamp in records:
        producer.produce(topic, value, key, partition=partition, timestamp=timestamp)
    assert producer.flush(20) == 0


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = KafkaBroker.unique("snapshots")
    kafka.create_topics(name, partitions=2)
    return name


@pytest.mark.kafka
def test_it_starts_at_the_time_that_the_oldest_held_event_needs(kafka: KafkaBroker, topic: str) -> None:
    records = [(b"v1", snapshot("v1", T0 + n * 1_000), T0 + n * 1_000) for n in range(600)]
    send(kafka.bootstrap_servers, topic, records)
    with reading(kafka.bootstrap_servers, topic, lookback_ms=30_000) as under:
        under.reader.assign(0, needed_from_ms=T0 + 500_000)
        eventually(lambda: under.accepted == 130)
        under.reader.caught_up(0)
        eventually(lambda: under.reader.at_end(0))
        assert under.reader.start_offset(0) == 470
        assert under.log.covered_until("v1") == T0 + 599_000
        assert under.reader.reached(0, T0 + 599_000)


@pytest.mark.kafka
def test_it_reads_only_what_is_assigned_and_forgets_what_is_not(kafka: KafkaBroker, topic: str) -> None:
    send(kafka.bootstrap_servers, topic, [(b"v1", snapshot("v1", T0), T0)], partition=0)
    send(kafka.bootstrap_servers, topic, [(b"v2", snapshot("v2", T0), T0)], partition=1)
    with reading(kafka.bootstrap_servers, topic) as under:
        under.reader.assign(0, T0)
        eventually(lambda: under.log.sends("v1"))
        assert not under.log.sends("v2")
        under.reader.assign(1, T0)
        eventually(lambda: under.log.sends("v2"))
        under.reader.unassign(0)
        eventually(lambda: not under.log.sends("v1"))
        assert under.log.sends("v2")


@pytest.mark.kafka
def test_a_backlog_is_not_read_further_ahead_than_its_events(kafka: KafkaBroker, topic: str) -> None:
    hours = 20
    records = [(b"v1", snapshot("v1", T0 + n * 60_000), T0 + n * 60_000) for n in range(hours * 60)]
    with reading(kafka.bootstrap_servers, topic, lead_ms=120_000) as under:
        under.reader.assign(0, T0)
        eventually(lambda: under.reader.start_offset(0) is not None)
        for start in range(0, len(records), 300):  # fetched in several pieces
            send(kafka.bootstrap_servers, topic, records[start : start + 300])
            time.sleep(0.4)
        assert under.accepted < len(records)
        assert not under.reader.reached(0, T0 + (hours * 60 - 1) * 60_000)
        read = under.reader.read_until(0)
        assert read is not None and T0 <= read < T0 + (hours * 60 - 1) * 60_000
        eventually(lambda: under.accepted >= len(records))  # not an end seen before the last piece
        eventually(lambda: under.reader.at_end(0))
        assert under.reader.read_until(0) is None, "there is nothing that was not read"
        assert under.accepted == len(records)


@pytest.mark.kafka
def test_garbage_is_refused_with_its_bytes_and_reading_goes_on(kafka: KafkaBroker, topic: str) -> None:
    records: list[tuple[bytes | None, bytes, int]] = [
        (b"v1", b"not json", T0),
        (b"v2", snapshot("v1", T0), T0),
        (None, snapshot("v1", T0), T0),
        (b"v1", snapshot("v1", T0 + 1), T0),
    ]
    send(kafka.bootstrap_servers, topic, records)
    with reading(kafka.bootstrap_servers, topic) as under:
        under.reader.assign(0, T0)
        eventually(lambda: under.accepted == 1)
        assert [(each.record.offset, each.record.value, each.reason) for each in under.refused] == [
            (0, b"not json", DeadLetterReason.NOT_JSON),
            (1, snapshot("v1", T0), DeadLetterReason.WRONG_KEY),
            (2, snapshot("v1", T0), DeadLetterReason.WRONG_KEY),
        ]


@pytest.mark.kafka
def test_what_only_full_validation_finds_is_refused_when_a_session_uses_it(
    kafka: KafkaBroker, topic: str
) -> None:
    bad = json.dumps({"vehicle_id": "v1", "ts": T0, "signals": {"Vehicle.Speed": {"no": "scalar"}}}).encode()
    send(kafka.bootstrap_servers, topic, [(b"v1", bad, T0)])
    with reading(kafka.bootstrap_servers, topic) as under:
        under.reader.assign(0, T0)
        eventually(lambda: under.accepted == 1)
        assert under.refused == []
        under.log.window("v1", T0 - 10, T0 + 10)
        eventually(lambda: len(under.refused) == 1)
        assert under.refused[0].record.value == bad
        assert under.refused[0].record.offset == 0


@pytest.mark.kafka
def test_records_are_found_again_by_their_offsets(kafka: KafkaBroker, topic: str) -> None:
    send(kafka.bootstrap_servers, topic, [(b"k", str(n).encode(), T0) for n in range(3_000)])
    config = consumer_config(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), group_id="fetch")
    found = fetch(config, topic, 0, {2_999, 5, 6, 1_500, 9_999}, timeout_s=20)
    assert {offset: record.value for offset, record in found.items()} == {
        5: b"5",
        6: b"6",
        1_500: b"1500",
        2_999: b"2999",
    }


def test_on_a_broker_that_cannot_look_up_by_time_it_reads_from_the_beginning() -> None:
    with EmbeddedBroker() as broker:
        broker.create("snapshots")
        send(
            broker.bootstrap_servers,
            "snapshots",
            [(b"v1", snapshot("v1", T0 + n), T0 + n) for n in range(50)],
        )
        with reading(broker.bootstrap_servers, "snapshots", lookback_ms=0) as under:
            under.reader.assign(0, T0 + 49)
            eventually(lambda: under.accepted == 50)
            assert under.reader.start_offset(0) == 0


@pytest.mark.kafka
def test_a_partition_that_was_paused_and_is_assigned_again_is_read_on(kafka: KafkaBroker, topic: str) -> None:
    """A rebalance while the reader is far ahead of its events: the client would keep the pause."""
    servers = kafka.bootstrap_servers
    with reading(servers, topic, lead_ms=1_000) as under:
        under.reader.assign(0, T0)
        eventually(lambda: under.reader.start_offset(0) is not None)
        send(servers, topic, [(b"v1", snapshot("v1", T0 + n * 1_000), T0 + n * 1_000) for n in range(100)])
        eventually(lambda: under.accepted == 100)
        time.sleep(0.5)  # it has paused now
        send(servers, topic, [(b"v1", snapshot("v1", T0 + 200_000), T0 + 200_000)])
        time.sleep(0.5)
        assert under.accepted == 100
        under.reader.unassign(0)
        under.reader.assign(0, T0)
        under.reader.caught_up(0)
        eventually(lambda: under.accepted == 201)  # those before once more


def test_a_window_waits_for_the_reader_and_nothing_else_does() -> None:
    log, guard = SnapshotLog(), threading.Lock()
    log.offer(b"v", snapshot("v", T0), topic="t", partition=0, offset=0, broker_ts=T0)
    shared = SharedStates(log, guard)
    found: list[object] = []
    window = threading.Thread(target=lambda: found.append(shared.window("v", T0 - 1, T0 + 1)))
    with guard:
        assert shared.sends("v") and shared.covered_until("v") == T0
        window.start()
        window.join(0.1)
        assert found == []
    window.join(5)
    assert found == [log.window("v", T0 - 1, T0 + 1)]


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_brokers_that_are_away_when_a_partition_comes_are_waited_for(chaos_kafka: KafkaBroker) -> None:
    """The end of the reader would be the end of the worker: an outage beside a rebalance is none."""
    topic = chaos_kafka.unique("snapshots")
    chaos_kafka.create_topics(topic, partitions=2)
    now = time.time_ns() // 1_000_000
    send(chaos_kafka.bootstrap_servers, topic, [(b"v0", snapshot("v0", now), now)], 0)
    send(chaos_kafka.bootstrap_servers, topic, [(b"v1", snapshot("v1", now), now)], 1)
    with reading(chaos_kafka.bootstrap_servers, topic) as under:
        under.reader.assign(0, now)
        eventually(lambda: under.accepted == 1)
        chaos_kafka.kill()
        try:
            under.reader.assign(1, now)
            time.sleep(3)
            assert under.failures == []
            assert under.reader.start_offset(1) is None
        finally:
            chaos_kafka.resume()
        eventually(lambda: under.accepted == 2, timeout=45)
        assert under.reader.start_offset(1) == 0
