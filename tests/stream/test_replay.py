"""Replay: relative timing kept, no record dated into the future, partitions as Java clients choose them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.formats import load_recordings
from cockpithat.formats.recording import Recording, span_ms
from cockpithat.resources import resource
from stream.embedded import PARTITIONS, EmbeddedBroker
from stream.kafka_config import BrokerError
from stream.partitioning import murmur2_partition
from stream.replay import outlook, prepared, replay
from stream.settings import Settings, load_settings
from tests.stream.cockpit import Cluster, worker
from tests.support.kafka import KafkaBroker

NOW = 1_800_000_000_000


def demo_recordings(count: int = 3) -> list[Recording]:
    """Demo sessions, all moved to start at the same moment."""
    files = sorted(resource("data/demo").glob("*.yaml"))[:count]
    found = [recording for path in files for recording in load_recordings(path)]
    return [prepared([recording], speed=1, now_ms=NOW)[0] for recording in found]


def span(recordings: list[Recording]) -> tuple[int, int]:
    found = span_ms(recordings)
    assert found is not None
    return found


def test_a_replay_says_how_long_it_takes_and_how_to_shorten_it() -> None:
    recordings = demo_recordings()
    first, last = span(recordings)
    seconds = (last - first) / 1000
    records = sum(len(recording.events) + len(recording.snapshots) for recording in recordings)
    assert 5 < seconds < 120
    assert outlook(recordings, 1.0).startswith(
        f"sending {records} records, about {seconds:.0f} s at speed 1;"
    )
    assert "--speed 0 does not wait" in outlook(recordings, 1.0)
    assert outlook(recordings, 0.01).partition("about ")[2].startswith(f"{seconds / 0.6:.0f} min")
    assert "--speed" not in outlook(recordings, 100.0)  # short enough
    assert outlook(recordings, 0.0) == f"sending {records} records without waiting"
    assert outlook([], 1.0) == "nothing to send"


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.mark.parametrize(
    ("speed", "starts_before_now"),  # the second as a share of the recordings' length
    [(1.0, 0), (0.5, 0), (0.0, 1), (4.0, 0.75)],
)
def test_no_record_is_dated_after_it_is_sent(speed: float, starts_before_now: float) -> None:
    recordings = demo_recordings()
    first, last = span(recordings)
    length = last - first
    now = NOW + 5_000
    moved_first, moved_last = span(prepared(recordings, speed=speed, now_ms=now))
    assert moved_last - moved_first == length
    assert moved_first == pytest.approx(now - starts_before_now * length, abs=1)
    assert moved_last <= now + (length / speed if speed else 0) + 1


def test_keep_time_changes_no_timestamp() -> None:
    recordings = demo_recordings()
    assert span(prepared(recordings, speed=0, keep_time=True)) == span(recordings)


@pytest.fixture
def embedded() -> Iterator[Settings]:
    """An embedded broker with the input topics; it lives as long as the test."""
    with EmbeddedBroker() as broker:
        servers = {"bootstrap_servers": broker.bootstrap_servers, "request_timeout_ms": 5_000}
        settings = load_settings(kafka=servers)
        broker.create(settings.topics.session_events, settings.topics.vehicle_snapshots)
        yield settings


def read_back(settings: Settings, topic: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """Partition, key and value of ``count`` records of a topic."""
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": "t"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, bytes, bytes]] = []
    while len(found) < count:
        message = consumer.poll(10)
        assert message is not None and message.error() is None
        found.append((message.partition() or 0, bytes(message.key() or b""), bytes(message.value() or b"")))
    consumer.close()
    return found


def test_everything_arrives_keyed_by_vehicle_where_java_clients_put_it(embedded: Settings) -> None:
    recordings = demo_recordings(10)
    ticks: list[None] = []
    sent = replay(recordings, embedded, speed=0, on_record=lambda: ticks.append(None))
    events = sum(len(recording.events) for recording in recordings)
    snapshots = sum(len(recording.snapshots) for recording in recordings)
    assert (sent.events, sent.snapshots) == (events, snapshots)
    assert (sent.delivered, sent.failed) == (events + snapshots, 0)
    assert len(sent.sessions) == 10
    assert len(ticks) == events + snapshots
    for partition, key, value in read_back(embedded, embedded.topics.session_events, events):
        assert partition == murmur2_partition(key, PARTITIONS)
        assert key in value
    found = read_back(embedded, embedded.topics.vehicle_snapshots, snapshots)
    kept = {VehicleSnapshot.model_validate_json(value).ts for _, _, value in found}
    assert kept == {snapshot.ts for recording in recordings for snapshot in recording.snapshots}


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 1.0), (10.0, 0.1)])
def test_waiting_between_records_follows_their_timestamps(
    embedded: Settings, speed: float, seconds: float
) -> None:
    recordings = demo_recordings(2)
    first, last = span(recordings)
    time = Time()
    replay(recordings, embedded, speed=speed, clock=time.clock, sleep=time.sleep)
    assert time.seconds == pytest.approx((last - first) / 1000 * seconds, abs=0.5)


def test_records_that_the_brokers_refuse_are_counted(embedded: Settings) -> None:
    (recording,) = demo_recordings(1)
    start, step, *_ = recording.events
    huge = step.model_copy(update={"text": "x" * (embedded.kafka.max_message_bytes + 1)})
    sent = replay([Recording("huge", (start, huge))], embedded, speed=0)
    assert (sent.delivered, sent.failed) == (1, 1)
    assert "too large" in sent.first_error


def test_brokers_that_do_not_answer_are_named() -> None:
    settings = load_settings(kafka={"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": 1000})
    with pytest.raises(BrokerError, match="cannot reach the brokers"):
        replay(demo_recordings(1), settings, speed=0)


@pytest.mark.kafka
@pytest.mark.data
def test_all_real_car_bench_runs_pass_through_kafka(
    kafka: KafkaBroker, shared_data: Path, tmp_path: Path
) -> None:
    """103 runs: a summary each, a report of each of the 28 failed, none of the others, no dead letter."""
    folder = shared_data / "car-bench"
    files = [path for path in folder.glob("*_*.json") if path.name != "carbench_state_to_vss.json"]
    cluster = Cluster(kafka)
    names = cluster.settings.topics.names()
    options = ["--state-map", str(folder / "carbench_state_to_vss.json"), "--speed", "0"]
    options += ["--bootstrap-servers", kafka.bootstrap_servers]
    environment = {f"COCKPITHAT_TOPICS__{role.upper()}": name for role, name in names.items()}
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        done = subprocess.run(
            [sys.executable, "-m", "stream.cli", "replay", *map(str, files), *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": "/usr/bin:/bin", **environment},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        summaries = cluster.wait("sessions", 103, timeout=120)
        reports = cluster.wait("reports", 28)
    assert len(summaries) == 103
    assert sum(summary["failed"] for summary in summaries) == 28
    assert {summary["vehicle_state"] for summary in summaries} == {"complete"}
    assert len(reports) == 28
    failed = {summary["session_id"] for summary in summaries if summary["failed"]}
    assert {report["session_id"] for report in reports} == failed
    for role in ("session_events", "vehicle_snapshots", "traces"):
        assert cluster.read(f"dlq:{role}") == []
    assert all(trace["timestamps_synthetic"] for trace in cluster.read("traces"))
