"""From a session's end to its alert, without an LLM, under a steady load in real time.

    make bench-latency
    python -m tests.bench.stream.latency [--seconds 60] [--sessions 50] [--vehicles 2400]

One worker with the roles ``assemble`` and ``attribute``, one Apache Kafka and this generator on the same
cores. Each vehicle sends a list of ten snapshots every second; ``--sessions`` sessions a second end, each
failed, each with an alert. Printed are percentiles of three spans: from the end event to the alert; the
same beyond the configured grace; and from the vehicle's own list that covers the end, since before that
nobody can know the vehicle's state at the end.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
from confluent_kafka import Consumer, TopicPartition

from tests.bench.stream import fleet, workload
from tests.bench.stream.bench import versions
from tests.stream.cockpit import Cluster, RunningWorker
from tests.support.kafka import KafkaBroker, UnavailableError, start

SPAN_S = 12.0
SLOTS = 20


class Alerts(threading.Thread):
    """Notes when each session's first alert can be read."""

    def __init__(self, broker: KafkaBroker, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, float] = {}
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(100, timeout=0.02):
                if message.error() is None:
                    self.seen.setdefault(orjson.loads(message.value() or b"{}")["session_id"], time.time())
        self._consumer.close()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self.join(10)


class Generator:
    """Sends in real time; ``ended`` and ``covered`` say when, by session."""

    def __init__(self, cluster: Cluster, vehicles: int, rate: float, seconds: float, span_s: float) -> None:
        self._span_ms = int(span_s * 1000)
        self.ended: dict[str, float] = {}
        self.covered: dict[str, float] = {}
        self.late_s = 0.0
        self._cluster, self._vehicles, self._rate, self._seconds = cluster, vehicles, rate, seconds
        self._pending: dict[int, list[tuple[str, int]]] = {}
        self._dark_until: dict[int, int] = {}

    def run(self) -> None:
        """Send for the time asked, then let the last sessions end."""
        producer = fleet.producer(self._cluster.broker.bootstrap_servers)
        events, lists = self._cluster.topic("session_events"), self._cluster.topic("vehicle_snapshots")
        names = [workload.vehicle_name(number) for number in range(self._vehicles)]
        keys = [name.encode() for name in names]
        begun = time.time()
        due: list[tuple[int, int, int, bytes]] = []
        opened = slot = serial = 0
        while True:
            now = time.time()
            opening = now - begun < self._seconds
            if not opening and not due and not self._pending:
                break
            # Not before every vehicle has said once what state it is in.
            while opening and opened < (now - begun - 2.0) * self._rate:
                number = opened * 7 % self._vehicles  # spread over the partitions and the second
                start_ms = int(now * 1000)
                for ts, value in fleet.session(opened, names[number], start_ms, self._span_ms):
                    heapq.heappush(due, (ts, serial, number, value))
                    serial += 1
                self._dark_until[number] = start_ms + self._span_ms
                opened += 1
            while due and due[0][0] <= now * 1000:
                ts, _, number, value = heapq.heappop(due)
                producer.produce(events, value, keys[number])
                if value.find(b'"type":"session_end"') >= 0:
                    name = orjson.loads(value)["session_id"]
                    self.ended[name] = time.time()
                    self._pending.setdefault(number, []).append((name, ts))
            # In each of the second's slots its share of the vehicles sends the second that has passed.
            while begun + slot / SLOTS <= now:
                at = begun + slot / SLOTS
                first_ms = int(at * 1000) - 1_000
                for number in range(slot % SLOTS, self._vehicles, SLOTS):
                    dark = self._dark_until.get(number, 0)
                    light = not dark - 0.4 * self._span_ms <= first_ms + 900 <= dark
                    producer.produce(
                        lists, fleet.one_second(keys[number], first_ms, light=light), keys[number]
                    )
                    self._note_covered(number, first_ms + 900)
                slot += 1
                producer.poll(0)
            self.late_s = max(self.late_s, time.time() - now)
            time.sleep(max(0.0, 0.005 - (time.time() - now)))
        producer.flush(10)

    def _note_covered(self, number: int, until_ms: int) -> None:
        waiting = self._pending.get(number)
        if not waiting:
            return
        now = time.time()
        for name, ts in waiting:
            if ts <= until_ms:
                self.covered[name] = now
        left = [(name, ts) for name, ts in waiting if ts > until_ms]
        if left:
            self._pending[number] = left
        else:
            del self._pending[number]


def percentiles(values: Sequence[float]) -> str:
    """Median, 90th, 99th and highest, in ms."""
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.9, 0.99)]
    return f"p50 {at[0]:,.0f} ms, p90 {at[1]:,.0f} ms, p99 {at[2]:,.0f} ms, max {ordered[-1] * 1000:,.0f} ms"


def measure(
    broker: KafkaBroker, seconds: float, rate: float, vehicles: int, warm_s: float, span_s: float = SPAN_S
) -> int:
    """Print the percentiles; 1 when alerts are missing."""
    cluster = Cluster(
        broker,
        partitions=4,
        overrides={
            "engine": {"silence_ms": 120_000, "end_wait_ms": 10_000, "snapshot_wait_ms": 10_000},
            "worker": {"commit_interval_ms": 1_000, "tick_interval_ms": 250, "pool_size": 8},
        },
    )
    grace_s = cluster.settings.engine.grace_ms / 1000
    with tempfile.TemporaryDirectory(prefix="cockpithat-latency-") as folder:
        worker = RunningWorker(cluster, Path(folder))
        alerts = Alerts(broker, cluster.topic("alerts"), 4)
        try:
            worker.wait_ready()
            time.sleep(3)
            alerts.start()
            generator = Generator(cluster, vehicles, rate, seconds, span_s)
            begun = time.time()
            cpu = time.process_time()
            generator.run()
            cpu = time.process_time() - cpu
            took = time.time() - begun
            deadline = time.monotonic() + 30
            while len(alerts.seen) < len(generator.ended) and time.monotonic() < deadline:
                time.sleep(0.1)
            resident = resident_mib(worker.process.pid)
            ticks = Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            busy = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        finally:
            alerts.stop()
            worker.terminate()
    counted = [n for n, at in generator.ended.items() if at - begun > warm_s + span_s and n in alerts.seen]
    missing = [n for n in generator.ended if n not in alerts.seen]
    print(
        f"{len(generator.ended)} sessions in {took:.0f} s on {vehicles:,} vehicles, {rate:g} sessions/s and "
        f"{vehicles * 10:,} snapshots/s; {len(counted)} counted, those after {warm_s + span_s:.0f} s; "
        f"alerts missing: {len(missing)}\nworker {busy / took:.0%} of a core, {resident:,.0f} MiB; "
        f"generator {cpu / took:.0%} of a core, at most {generator.late_s * 1000:.0f} ms late; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    if not counted:
        print("error: no session was counted", file=sys.stderr)
        return 1
    seen, ended, covered = alerts.seen, generator.ended, generator.covered
    whole = [seen[n] - ended[n] for n in counted]
    beyond = [max(0.0, span - grace_s) for span in whole]
    ours = [seen[n] - max(ended[n], covered[n]) for n in counted]
    print(f"  end event to alert:                  {percentiles(whole)}")
    print(f"  beyond the grace of {grace_s:g} s:             {percentiles(beyond)}")
    print(f"  after the list that covers the end:  {percentiles(ours)}")
    print(f"ten million additions in Python: {yardstick():.2f} s after")
    return 1 if missing else 0


def yardstick() -> float:
    """Seconds of processor time for ten million additions: what this machine is worth at the moment."""
    begun, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begun


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sessions", type=float, default=50.0, help="sessions a second")
    parser.add_argument("--vehicles", type=int, default=2_400)
    parser.add_argument("--span", type=float, default=SPAN_S, help="seconds that a session lasts")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds at the start that do not count")
    args = parser.parse_args(argv)
    try:
        broker = start()
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        print(versions(broker))
        print(f"ten million additions in Python: {yardstick():.2f} s before", flush=True)
        return measure(broker, args.seconds, args.sessions, args.vehicles, args.warm, args.span)
    finally:
        broker.close()


if __name__ == "__main__":
    raise SystemExit(main())
