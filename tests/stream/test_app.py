"""What is changed of Faust and aiokafka, piece by piece; the pieces that need a broker on Apache Kafka."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import InvalidSessionTimeoutError
from faust.types import TP

from stream import faust_compat
from stream.context import Partitions, Pauses
from stream.health import Health
from stream.metrics import Metrics
from stream.partitioning import KeyCheck, murmur2_partition, uneven
from stream.records import Record
from stream.settings import HealthSettings, KafkaSettings
from tests.support.kafka import KafkaBroker, Secured

EVENTS = TP("events", 0)


def settings(servers: str = "127.0.0.1:1", **fields: Any) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=servers,
        group_id=KafkaBroker.unique("g"),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        **fields,
    )


def app(
    committable: Callable[[str, int], int | None] = lambda topic, partition: None,
    kafka: KafkaSettings | None = None,
) -> faust_compat.StreamApp:
    return faust_compat.create_app(kafka or settings(), committable=committable, commit_interval_s=0.2)


# ---------------------------------------------------------------- settings that bite


async def test_timeouts_and_static_membership_reach_the_consumer() -> None:
    made = app(kafka=settings(group_instance_id="worker-1"))
    assert made.conf.broker_session_timeout == 6.0
    assert made.conf.broker_heartbeat_interval == 0.5
    assert made.conf.consumer_group_instance_id == "worker-1"
    assert made.conf.stream_wait_empty is False
    assert made.conf.topic_allow_declare is False
    assert made.conf.topic_disable_leader is True
    assert made.conf.cython_optimizations is True
    assert made.conf.worker_redirect_stdouts is False


async def test_no_web_server_even_when_it_is_asked_for() -> None:
    made = app()
    made.conf.web_enabled = True
    assert list(made.boot_strategy.web_server()) == []
    assert made.boot_strategy._should_enable_web() is False


async def test_only_committed_records_are_read() -> None:
    made = app()
    thread = made.consumer._thread
    assert isinstance(thread, faust_compat.HoldingThread)
    consumer = thread._create_worker_consumer(made.transport)
    assert consumer._isolation_level == "read_committed"
    assert (consumer._fetch_min_bytes, consumer._fetch_max_wait_ms) == (65_536, 50)


# ---------------------------------------------------------------- offsets


async def test_the_holds_decide_on_the_offset() -> None:
    allowed: dict[str, int | None] = {"offset": 5}
    consumer = app(lambda topic, partition: allowed["offset"]).consumer
    assert consumer._new_offset(EVENTS) == 5
    allowed["offset"] = None
    assert consumer._new_offset(EVENTS) is None


async def test_a_hold_released_on_a_silent_partition_is_committed() -> None:
    made = app(lambda topic, partition: 42)
    consumer = made.consumer
    consumer.assignment = lambda: {EVENTS}
    assert list(consumer._filter_tps_with_pending_acks()) == [EVENTS]
    assert list(consumer._filter_tps_with_pending_acks({"other"})) == []
    assert consumer._filter_committable_offsets([EVENTS]) == {EVENTS: 42}
    consumer._committed_offset[EVENTS] = 42
    assert consumer._filter_committable_offsets([EVENTS]) == {}


# ---------------------------------------------------------------- on a broker


class Running:
    """An app with one topic, in this process."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self.topic = topic
        self.records: list[Record] = []
        self.assigned: list[set[tuple[str, int]]] = []
        self.revoked: list[set[tuple[str, int]]] = []
        self.committable: dict[int, int] = {}
        self.fail_on: bytes | None = None
        self.stop = asyncio.Event()
        self.app = app(lambda _, partition: self.committable.get(partition), kafka)
        faust_compat.subscribe(self.app, topic, self._receive)
        faust_compat.on_rebalance(
            self.app, revoked=self._note(self.revoked), assigned=self._note(self.assigned)
        )

    def _note(self, where: list[set[tuple[str, int]]]) -> Callable[[set[tuple[str, int]]], Awaitable[None]]:
        async def note(partitions: set[tuple[str, int]]) -> None:
            where.append(partitions)

        return note

    def _receive(self, record: Record) -> None:
        if self.fail_on is not None and record.value == self.fail_on:
            raise ValueError("a receiver that fails")
        self.records.append(record)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


@asynccontextmanager
async def running(kafka: KafkaSettings, topic: str, fail_on: bytes | None = None) -> AsyncIterator[Running]:
    it = Running(kafka, topic)
    it.fail_on = fail_on
    task = asyncio.create_task(faust_compat.run(it.app, it.stop))
    try:
        await until(lambda: bool(it.assigned) or task.done())
        yield it
    finally:
        it.stop.set()
        await asyncio.wait([task], timeout=30)
        assert task.done(), "the app did not stop within 30 s"


async def until(check: Callable[[], bool], timeout: float = 30.0) -> None:
    async with asyncio.timeout(timeout):
        while not check():
            await asyncio.sleep(0.02)


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = KafkaBroker.unique("events")
    kafka.create_topics(name, partitions=1)
    return name


@pytest.mark.kafka
async def test_bytes_arrive_as_they_are(kafka: KafkaBroker, topic: str) -> None:
    sent = [(b"\xff\x00", b"\xff not json"), (b'"k"', b'{"a": 1}'), (None, None), (b"", b"")]
    kafka.produce(topic, sent, headers=[("h", b"1")])
    async with running(settings(kafka.bootstrap_servers), topic) as it:
        await until(lambda: len(it.records) == len(sent))
        assert [(record.key, record.value) for record in it.records] == sent
        assert it.records[0].headers == (("h", b"1"),)
        assert it.records[0].timestamp > 1_600_000_000_000


@pytest.mark.kafka
async def test_nothing_listens_on_fausts_port(kafka: KafkaBroker, topic: str) -> None:
    async with running(settings(kafka.bootstrap_servers), topic):
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", 6066), timeout=0.5).close()


@pytest.mark.kafka
async def test_a_paused_partition_loses_nothing(kafka: KafkaBroker, topic: str) -> None:
    """Faust's own pause drops what it has fetched already."""
    async with running(settings(kafka.bootstrap_servers), topic) as it:
        for start in range(0, 6_000, 1_000):
            kafka.produce(topic, [(b"k", str(start + n).encode()) for n in range(1_000)])
            faust_compat.pause(it.app, topic, 0)
            await asyncio.sleep(0.1)
            faust_compat.resume(it.app, topic, 0)
        await until(lambda: len(it.records) >= 6_000)
        assert it.values() == [str(n).encode() for n in range(6_000)]


@pytest.mark.kafka
async def test_while_paused_no_record_is_fetched(kafka: KafkaBroker, topic: str) -> None:
    async with running(settings(kafka.bootstrap_servers), topic) as it:
        faust_compat.pause(it.app, topic, 0)
        await asyncio.sleep(0.5)
        kafka.produce(topic, [(b"k", b"v")])
        await asyncio.sleep(2)
        assert it.records == []
        faust_compat.resume(it.app, topic, 0)
        await until(lambda: len(it.records) == 1)


@pytest.mark.kafka
async def test_records_are_read_again_from_the_held_offset(kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, [(b"k", str(n).encode()) for n in range(100)])
    group = settings(kafka.bootstrap_servers)
    async with running(group, topic) as it:
        it.committable[0] = 40
        await until(lambda: len(it.records) == 100)
        assert faust_compat.end_offset(it.app, topic, 0) == 100
        await faust_compat.commit(it.app)
        assert faust_compat.committed_offset(it.app, topic, 0) == 40
    async with running(group, topic) as it:
        await until(lambda: len(it.records) == 60)
        assert it.values() == [str(n).encode() for n in range(40, 100)]
        assert it.assigned == [{(topic, 0)}]
        assert faust_compat.committed_offset(it.app, topic, 0) == 40


@pytest.mark.kafka
async def test_an_error_in_a_receiver_ends_the_app_with_the_record_uncommitted(
    kafka: KafkaBroker, topic: str
) -> None:
    kafka.produce(topic, [(b"k", b"good"), (b"k", b"bad"), (b"k", b"later")])
    group = settings(kafka.bootstrap_servers)
    it = Running(group, topic)
    it.fail_on = b"bad"
    it.committable[0] = 1
    with pytest.raises(ValueError, match="a receiver that fails"):
        async with asyncio.timeout(60):
            await faust_compat.run(it.app, it.stop, stop_timeout_s=5)
    assert it.values() == [b"good"]
    async with running(group, topic) as again:
        await until(lambda: len(again.records) >= 2)
        assert again.values()[-2:] == [b"bad", b"later"]


@pytest.mark.kafka
async def test_a_member_that_joins_makes_every_partition_be_assigned_anew(kafka: KafkaBroker) -> None:
    name = KafkaBroker.unique("events")
    kafka.create_topics(name, partitions=4)
    group = settings(kafka.bootstrap_servers)
    async with running(group, name) as first:
        assert first.assigned[-1] == {(name, partition) for partition in range(4)}
        async with running(group, name) as second:
            await until(lambda: len(first.assigned) > 1 and len(first.assigned[-1]) == 2)
            await until(lambda: len(second.assigned[-1]) == 2)
            assert first.assigned[-1] | second.assigned[-1] == {(name, partition) for partition in range(4)}
            assert first.revoked[-1] == {(name, partition) for partition in range(4)}


@pytest.mark.kafka
async def test_what_ends_the_membership_is_told(kafka: KafkaBroker, topic: str) -> None:
    """Faust polls in a way that never sees it, and would wait for ever."""
    refused = settings(kafka.bootstrap_servers, max_poll_interval_ms=10_000)
    refused = refused.model_copy(update={"session_timeout_ms": 500, "heartbeat_interval_ms": 100})
    it = Running(refused, topic)
    task = asyncio.create_task(faust_compat.run(it.app, it.stop, stop_timeout_s=5))
    with pytest.raises(InvalidSessionTimeoutError):
        async with asyncio.timeout(30):
            while True:
                await asyncio.sleep(0.1)
                faust_compat.check_group(it.app)
    it.stop.set()
    await asyncio.wait([task], timeout=30)


@pytest.mark.kafka
async def test_tls_and_sasl(kafka: KafkaBroker, secured_kafka: Secured, topic: str) -> None:
    kafka.produce(topic, [(b"k", b"v")])
    secure = settings(
        secured_kafka.bootstrap_servers,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username=secured_kafka.username,
        sasl_password=secured_kafka.password,
        ssl_ca_location=Path(secured_kafka.ca),
    )
    async with running(secure, topic) as it:
        await until(lambda: it.values() == [b"v"])


# ---------------------------------------------------------------- partitioning and pauses


def test_murmur2_is_that_of_kafkas_own_clients() -> None:
    # Vectors of org.apache.kafka.common.utils.UtilsTest.testMurmur2.
    vectors = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: faust_compat.murmur2(key) for key in vectors} == {
        key: value & 0xFFFFFFFF for key, value in vectors.items()
    }


def test_uneven_topics_are_named() -> None:
    counts = {"events": 12, "snapshots": 12, "traces": 12}
    assert uneven(counts, counts) is None
    assert "snapshots has 6" in (uneven({**counts, "snapshots": 6}, counts) or "")
    assert "missing topics: traces" in (uneven({"events": 12, "snapshots": 12}, counts) or "")


def test_keys_placed_by_another_partitioner_make_the_worker_not_ready() -> None:
    metrics = Metrics()
    health = Health(HealthSettings(), metrics)
    check = KeyCheck(Partitions({"events": 8}), metrics, health)
    keys = [f"vehicle-{n}".encode() for n in range(100)]

    def see(key: bytes, partition: int) -> bool:
        return check.check(Record("events", partition, 0, 0, key, b""))

    assert all(see(key, murmur2_partition(key, 8)) for key in keys)
    assert health.readiness() == {}
    wrong = [see(key, (murmur2_partition(key, 8) + 1) % 8) for key in keys * 2]
    assert wrong.count(False) == 100  # each key is checked once
    assert health.readiness() == {}
    assert not see(b"one more", (murmur2_partition(b"one more", 8) + 1) % 8)
    assert "partitioner=murmur2_random" in health.readiness()["key_partitioning"]


def test_a_partition_is_fetched_again_when_the_last_reason_is_gone() -> None:
    calls: list[str] = []
    pauses = Pauses(lambda t, p: calls.append(f"pause {p}"), lambda t, p: calls.append(f"resume {p}"))
    pauses.pause("traces", 1, "pool")
    pauses.pause("traces", 1, "backlog")
    pauses.pause("traces", 1, "pool")
    pauses.resume("traces", 1, "pool")
    assert calls == ["pause 1"]
    pauses.resume("traces", 1, "backlog")
    pauses.resume("traces", 1, "backlog")
    assert calls == ["pause 1", "resume 1"]
