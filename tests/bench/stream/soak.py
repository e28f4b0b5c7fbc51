"""Hours of a fleet, as fast as it goes: memory, open files and the hold must not grow.

    make soak
    python -m tests.bench.stream.soak [--hours 2] [--vehicles 500]

One worker with the roles ``assemble`` and ``attribute``; every vehicle sends a list of ten snapshots for each
second of simulated time and has a failed session of 30 s every ten minutes. The generator keeps at most
``--ahead`` lists before the worker, so that what is measured is a worker that is always busy. Bounds that
would fill only after hours are set so that they fill within the first tenth: what is remembered of closed
sessions. Resident memory is compared between the second tenth and the last.
"""

from __future__ import annotations

import argparse
import heapq
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.bench.stream import fleet, workload
from tests.bench.stream.bench import versions
from tests.bench.stream.latency import resident_mib
from tests.stream.cockpit import Cluster, RunningWorker
from tests.support.kafka import KafkaBroker, UnavailableError, start

EVERY_S = 600
SPAN_S = 30
GROWTH = 1.05  # what counts as flat: a twentieth, the noise of an allocator
SOCKETS = 5  # connections that come and go
_METRIC = re.compile(r'^cockpithat_snapshots_total\{result="accepted"\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """The worker at a moment; ``progress`` in simulated seconds."""

    progress: float
    resident: float
    files: int


class Soak:
    """One run."""

    def __init__(
        self, cluster: Cluster, worker: RunningWorker, vehicles: int, seconds: int, ahead: int
    ) -> None:
        self.cluster, self.worker = cluster, worker
        self.vehicles, self.seconds, self.ahead = vehicles, seconds, ahead
        self.samples: list[Sample] = []
        self.sessions = 0

    def accepted(self) -> int:
        """Lists the worker has taken. One that it refused or lost would keep the run waiting."""
        found = _METRIC.search(self.worker.get("/metrics")[1])
        return int(float(found[1])) if found else 0

    def sample(self, taken: int) -> None:
        """Note memory and files."""
        pid = self.worker.process.pid
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        self.samples.append(Sample(taken / self.vehicles, resident_mib(pid), files))

    def run(self) -> None:
        """Send everything, and wait until it is taken."""
        producer = fleet.producer(self.cluster.broker.bootstrap_servers, **{"linger.ms": 20})
        events, lists = self.cluster.topic("session_events"), self.cluster.topic("vehicle_snapshots")
        keys = [workload.vehicle_name(number).encode() for number in range(self.vehicles)]
        begun_ms = int(time.time() * 1000) - self.seconds * 1000 - 60_000
        due: list[tuple[int, int, int, bytes]] = []
        serial = sent = 0
        every = max(1, min(20, self.seconds // 100))  # several samples in each tenth
        for second in range(self.seconds):
            now_ms = begun_ms + second * 1000
            for number in range(second * self.vehicles // EVERY_S, (second + 1) * self.vehicles // EVERY_S):
                if second + SPAN_S + 2 >= self.seconds:
                    break
                vehicle = number % self.vehicles
                name = workload.vehicle_name(vehicle)
                for ts, value in fleet.session(number, name, now_ms, SPAN_S * 1000):
                    heapq.heappush(due, (ts, serial, vehicle, value))
                    serial += 1
                self.sessions += 1
            while due and due[0][0] < now_ms + 1000:
                ts, _, vehicle, value = heapq.heappop(due)
                producer.produce(events, value, keys[vehicle], timestamp=ts)
            for vehicle, key in enumerate(keys):
                full = (second + vehicle) % 10 == 0
                value = fleet.one_second(key, now_ms, light=bool(second // 10 % 2), full=full)
                producer.produce(lists, value, key, timestamp=now_ms + 900)
            producer.poll(0)
            sent += self.vehicles
            if second % every == 0:
                self.keep_pace(sent)
        producer.flush(60)
        self.keep_pace(sent, ahead=0)

    def keep_pace(self, sent: int, ahead: int | None = None) -> None:
        """Wait until the worker is at most ``ahead`` lists behind."""
        allowed = self.ahead if ahead is None else ahead
        moved = time.monotonic()
        last = -1
        while True:
            taken = self.accepted()
            self.sample(taken)
            if sent - taken <= allowed:
                return
            if taken != last:
                last, moved = taken, time.monotonic()
            if time.monotonic() - moved > 60 or self.worker.process.poll() is not None:
                raise RuntimeError(
                    f"the worker stands at {taken} of {sent} lists\n{self.worker.log.read_text()[-2_000:]}"
                )
            time.sleep(0.1)

    def held(self, timeout_s: float = 60.0) -> int:
        """Events that are not committed once all sessions have closed; 0 when the hold is released."""
        topic = self.cluster.topic("session_events")
        consumer = Consumer({"bootstrap.servers": self.cluster.broker.bootstrap_servers, "group.id": "soak"})
        try:
            ends = {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
                for partition in range(self.cluster.partitions)
            }
        finally:
            consumer.close()
        deadline = time.monotonic() + timeout_s
        while True:
            committed = self.cluster.committed()
            left = sum(max(0, end - max(0, committed[partition])) for partition, end in ends.items())
            if left == 0 or time.monotonic() > deadline:
                return left
            time.sleep(0.5)


def bound_disk(cluster: Cluster) -> None:
    """Let the broker delete snapshots that are long read, or hours of them fill the disk."""
    entries = {"retention.bytes": str(96 * 2**20), "segment.bytes": str(16 * 2**20)}
    resource = ConfigResource(
        ResourceType.TOPIC,
        cluster.topic("vehicle_snapshots"),
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in entries.items()
        ],
    )
    admin = cluster.broker.admin  # kept: the request dies with its client
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def measure(broker: KafkaBroker, hours: float, vehicles: int, ahead: int) -> int:
    """Run and judge; 1 when something grew, is held, or is missing."""
    seconds = int(hours * 3600)
    first_tenth = max(1, vehicles * seconds // EVERY_S // 10)
    cluster = Cluster(
        broker,
        partitions=4,
        overrides={
            "engine": {
                "silence_ms": 120_000,
                "end_wait_ms": 10_000,
                "snapshot_wait_ms": 60_000,
                "remember_closed": max(50, first_tenth // 2),
            },
            "worker": {"commit_interval_ms": 1_000, "tick_interval_ms": 250},
        },
    )
    bound_disk(cluster)
    with tempfile.TemporaryDirectory(prefix="cockpithat-soak-") as folder:
        worker = RunningWorker(cluster, Path(folder))
        try:
            worker.wait_ready()
            time.sleep(3)
            soak = Soak(cluster, worker, vehicles, seconds, ahead)
            begun = time.monotonic()
            soak.run()
            took = time.monotonic() - begun
            held = soak.held()
            summaries = len(cluster.wait("sessions", soak.sessions, timeout=60))
        finally:
            worker.terminate()
    return report(soak, took, held, summaries)


def report(soak: Soak, took: float, held: int, summaries: int) -> int:
    """Print what came of it; 1 when it is not as it must be.

    Memory is judged only once the snapshot log has had its fill before the second tenth.
    """
    filled = soak.vehicles * soak.seconds // 10 * 2_400  # bytes that the lists of a tenth take in the log
    judge_memory = filled > soak.cluster.settings.snapshots.max_bytes
    tenth = soak.seconds / 10
    parts = [
        [s for s in soak.samples if part * tenth <= s.progress <= (part + 1) * tenth] for part in range(10)
    ]
    for number in range(8, -1, -1):  # a worker that leaps over a tenth is taken to be as in the next
        parts[number] = parts[number] or parts[number + 1]
    resident = [statistics.median(s.resident for s in part) for part in parts]
    files = [max(s.files for s in part) for part in parts]
    total = soak.vehicles * soak.seconds * 10
    print(
        f"{soak.seconds / 3600:g} simulated hours of {soak.vehicles} vehicles in {took:.0f} s: "
        f"{total:,} snapshots, {total / took:,.0f}/s, {soak.seconds / took:.0f} times real time; "
        f"{soak.sessions} sessions, {summaries} summaries; load {os.getloadavg()[0]:.1f}"
    )
    print(f"  resident memory by tenth, MiB: {', '.join(f'{one:.0f}' for one in resident)}")
    print(f"  open files by tenth, at most:  {', '.join(map(str, files))}")
    print(f"  events still held at the end:  {held}")
    growth = resident[9] / resident[1]
    problems = []
    if growth > GROWTH and judge_memory:
        problems.append(f"memory grew {growth:.2f} times from the second tenth to the last")
    if files[9] > files[1] + SOCKETS:
        problems.append("open files grew")
    if held:
        problems.append("the hold is not released")
    if summaries != soak.sessions:
        problems.append("not one summary a session")
    print(
        f"  memory, last tenth to second: {growth:.3f}; "
        + (
            "; ".join(problems)
            or ("flat, nothing held" if judge_memory else "nothing held; too short to judge memory")
        )
    )
    return 1 if problems else 0


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--vehicles", type=int, default=500)
    parser.add_argument(
        "--ahead", type=int, default=20_000, help="lists sent before the worker has taken them"
    )
    args = parser.parse_args(argv)
    try:
        broker = start()
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        print(versions(broker))
        return measure(broker, args.hours, args.vehicles, args.ahead)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        broker.close()


if __name__ == "__main__":
    raise SystemExit(main())
