"""Sessions to send, workers to run, and outputs to read, for the tests of the worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from stream.settings import Settings, load_settings
from stream.topics import create
from tests.support.kafka import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = {
    "traces": "trace_id",
    "reports": "report_id",
    "alerts": "alert_id",
    "reviews": "review_id",
    "suspicions": "suspicion_id",
    "sessions": "summary_id",
}
"""What names a record of each output."""
OUTPUTS = tuple(IDENTITY)


def event(kind: str, vehicle: str, session: str, seq: int, ts: int, **fields: Any) -> dict[str, Any]:
    """One session event in wire form."""
    return {
        "type": kind,
        "event_id": f"{session}-{seq}",
        "vehicle_id": vehicle,
        "session_id": session,
        "seq": seq,
        "ts": ts,
        **fields,
    }


def session(
    vehicle: str, name: str, *, start_ts: int, steps: int = 4, failed: bool = True, ended: bool = True
) -> list[dict[str, Any]]:
    """A short session in which the climate agent misreads a tool's output."""
    events = [
        event(
            "session_start",
            vehicle,
            name,
            0,
            start_ts,
            task="warm the cabin to 21 degrees",
            roster=[{"name": "Planner"}, {"name": "ClimateAgent"}],
        )
    ]
    for index in range(steps):
        agent = "Planner" if index % 2 == 0 else "ClimateAgent"
        events.append(
            event(
                "step",
                vehicle,
                name,
                index + 1,
                start_ts + 1000 * (index + 1),
                agent=agent,
                text=f"step {index} of {name}: the cabin is at {18 + index} degrees",
            )
        )
    if ended:
        events.append(
            event(
                "session_end",
                vehicle,
                name,
                steps + 1,
                start_ts + 1000 * (steps + 1),
                outcome="failure" if failed else "success",
                failed=failed,
            )
        )
    return events


def record(body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Key and value of an event or a snapshot."""
    return body["vehicle_id"].encode(), json.dumps(body).encode()


@dataclass
class Cluster:
    """The product's topics, under names of their own, on a broker."""

    broker: KafkaBroker
    partitions: int = 4
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    prefix: str = ""

    def __post_init__(self) -> None:
        self.prefix = self.prefix or KafkaBroker.unique("t")
        self.settings = self.load()
        create(self.settings)

    def load(self) -> Settings:
        """Settings of a worker on these topics, with short waits."""
        names = {name: f"{self.prefix}.{name}" for name in (*Settings().topics.names(),)}
        base: dict[str, dict[str, Any]] = {
            "kafka": {
                "bootstrap_servers": self.broker.bootstrap_servers,
                "group_id": self.prefix,
                "session_timeout_ms": 6_000,
                "heartbeat_interval_ms": 1_000,
            },
            "topics": {**names, "partitions": self.partitions, "replication_factor": 1},
            "worker": {"commit_interval_ms": 300, "tick_interval_ms": 100, "pool_size": 2},
            "engine": {"silence_ms": 15_000, "end_wait_ms": 1_500, "snapshot_wait_ms": 1_000},
            "health": {"port": 0},
        }
        for section, values in self.overrides.items():
            base[section] = {**base.get(section, {}), **values}
        return load_settings(**base)

    def topic(self, role: str) -> str:
        """Name of a topic by its role, ``traces`` or ``dlq:session_events``."""
        kind, _, of = role.partition(":")
        names = self.settings.topics
        return names.dlq(getattr(names, of)) if kind == "dlq" else str(getattr(names, role))

    def send(self, events: Sequence[dict[str, Any]], role: str = "session_events") -> None:
        """Write events or snapshots in the order given."""
        self.broker.produce(self.topic(role), [record(body) for body in events])

    def read(self, role: str) -> list[dict[str, Any]]:
        """All committed records of a topic."""
        return [json.loads(message.value() or b"null") for message in self.messages(role)]

    def messages(self, role: str) -> list[Message]:
        """All committed records of a topic, with keys and headers."""
        return self.broker.read(self.topic(role))

    def wait(self, role: str, count: int, timeout: float = 45.0) -> list[dict[str, Any]]:
        """Records of a topic once there are ``count``, or what there is when the time is up."""
        deadline = time.monotonic() + timeout
        while len(found := self.read(role)) < count and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def wait_messages(self, role: str, count: int, timeout: float = 45.0) -> list[Message]:
        """As :meth:`wait`, with keys and headers; for records that need not be JSON."""
        deadline = time.monotonic() + timeout
        while len(found := self.messages(role)) < count and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def committed(self) -> dict[int, int]:
        """Committed offset of each partition of session events."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": self.settings.kafka.group_id}
        )
        try:
            asked = [TopicPartition(self.topic("session_events"), p) for p in range(self.partitions)]
            return {tp.partition: tp.offset for tp in consumer.committed(asked, timeout=10)}
        finally:
            consumer.close()


class RunningWorker:
    """A worker in a process of its own."""

    def __init__(self, cluster: Cluster, tmp_path: Path, name: str = "worker", plant: str = "") -> None:
        """``plant`` is Python code that runs in the process before the worker does."""
        self.log = tmp_path / f"{name}-{time.monotonic_ns()}.log"
        self.log.touch()
        settings = cluster.settings.model_dump(mode="json", exclude_defaults=True)
        config = tmp_path / f"{self.log.stem}.yaml"
        config.write_text(json.dumps(settings))
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", plant + "from stream.cli import main; main()", "worker"],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "COCKPITHAT_CONFIG": str(config)},
            )

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self, timeout: float = 30.0) -> tuple[int, float]:
        """SIGTERM; exit code and seconds until it was gone."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout), time.monotonic() - began

    def events(self) -> list[dict[str, Any]]:
        """The worker's log lines so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for_event(self, text: str, count: int = 1, timeout: float = 45.0) -> list[dict[str, Any]]:
        """Log lines whose event is ``text``, once there are ``count``."""
        deadline = time.monotonic() + timeout
        while True:
            found = [line for line in self.events() if line.get("event") == text]
            if len(found) >= count:
                return found
            assert self.process.poll() is None, f"worker ended: {self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"no {text!r}: {self.log.read_text()[-3000:]}"
            time.sleep(0.1)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of the worker's own HTTP port."""
        port = self.wait_for_event("health server listens")[0]["port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_ready(self, timeout: float = 45.0) -> None:
        """Wait until the worker says that it is ready."""
        deadline = time.monotonic() + timeout
        body = ""
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"worker ended: {self.log.read_text()[-3000:]}"
            status, body = self.get("/readyz")
            if status == 200:
                return
            time.sleep(0.1)
        raise AssertionError(f"not ready: {body}\n{self.log.read_text()[-3000:]}")

    def metric(self, series: str) -> float:
        """The value of one series, as ``/metrics`` writes its name and labels."""
        _, text = self.get("/metrics")
        found = [line for line in text.splitlines() if line.startswith(f"{series} ")]
        assert found, f"no {series} in the metrics"
        return float(found[0].rsplit(" ", 1)[1])

    def wait_metric(self, series: str, least: float, timeout: float = 45.0) -> None:
        """Wait until a series has reached ``least``."""
        deadline = time.monotonic() + timeout
        while (value := self.metric(series)) < least:
            assert time.monotonic() < deadline, f"{series} is {value}: {self.log.read_text()[-3000:]}"
            time.sleep(0.1)


@contextmanager
def worker(cluster: Cluster, tmp_path: Path, **options: Any) -> Iterator[RunningWorker]:
    """A running worker, ended with the block."""
    running = RunningWorker(cluster, tmp_path, **options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def duplicates(records: Sequence[dict[str, Any]], identity: str) -> list[Any]:
    """Identities, with their revision, that occur more than once."""
    counts = Counter((body[identity], body.get("revision", 1)) for body in records)
    return [key for key, count in counts.items() if count > 1]
