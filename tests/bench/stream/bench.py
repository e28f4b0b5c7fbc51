"""What the stream takes, beside what carries it and what else does the same, on one Apache Kafka.

    make bench
    python -m tests.bench.stream.bench [--rounds 2] [--scale 1.0] [--only snapshots|events|growth]

Every figure is a process of its own on the same broker and the same records; the median of the rounds is
printed with the lowest and the highest. Broker, generator and what is measured share the machine's cores.
The Quix Streams that is compared with lives in ``.cache/bench/quix``, which ``make bench`` creates,
because it pins an older client.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.bench.stream import workload
from tests.stream.cockpit import Cluster
from tests.support.kafka import KafkaBroker, UnavailableError, start

ROOT = Path(__file__).resolve().parents[3]
QUIX = ROOT / ".cache" / "bench" / "quix"
PARTITIONS = 4
IN_LIST = 10
Figures = dict[str, float]


class MeasurementError(Exception):
    """A measurement did not end well; the message is what it said."""


def child(what: str, options: dict[str, Any], *, ready: Callable[[], None] | None = None) -> Figures:
    """Run one measurement in a process of its own."""
    process = launch(what, options)
    return finish(process, ready)


def launch(what: str, options: dict[str, Any]) -> subprocess.Popen[str]:
    """Start a measurement."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.stream.measure", what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("COCKPITHAT_")},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(options))
    process.stdin.close()
    return process


def finish(process: subprocess.Popen[str], ready: Callable[[], None] | None = None) -> Figures:
    """Figures of a measurement; ``ready`` is called once it says that it is."""
    assert process.stdout is not None and process.stderr is not None
    watchdog = threading.Timer(180, process.kill)
    watchdog.start()
    try:
        if ready is not None:
            if process.stdout.readline().strip() != "ready":
                raise MeasurementError(process.stderr.read()[-2_000:])
            ready()
        lines = process.stdout.read().splitlines()
        if process.wait(30) != 0 or not lines:
            raise MeasurementError(process.stderr.read()[-2_000:])
        figures: Figures = json.loads(lines[-1])
        return figures
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()


class Bench:
    """One broker, and the table that grows."""

    def __init__(self, broker: KafkaBroker, rounds: int, scale: float) -> None:
        self.broker = broker
        self.rounds = rounds
        self.scale = scale
        self.medians: dict[str, float] = {}

    def size(self, count: int) -> int:
        """A number of records, scaled; a multiple of what divides evenly."""
        return max(200, int(count * self.scale) // 200 * 200)

    def topic(self, messages: list[workload.Message]) -> str:
        """A topic with these records."""
        name = KafkaBroker.unique("bench")
        self.broker.create_topics(name, partitions=PARTITIONS)
        self.broker.produce(name, messages)
        return name

    def row(self, name: str, measure: Callable[[], Figures], unit: str) -> float:
        """Measure ``rounds`` times and print the median rate, its range, and processor time for one."""
        found = [measure() for _ in range(self.rounds)]
        rates = sorted(one["count"] / max(one["seconds"], 1e-9) for one in found)
        cpu = statistics.median(one["cpu"] / one["count"] * 1e6 for one in found)
        median = statistics.median(rates)
        count = int(found[0]["count"])
        note = f", {int(found[0]['windows'])} windows" if "windows" in found[0] else ""
        print(
            f"  {name:<54} {median:10,.0f} {unit}/s ({rates[0]:,.0f} to {rates[-1]:,.0f}); "
            f"{cpu:6.1f} us of processor each; n={count:,}{note}, {len(rates)} rounds",
            flush=True,
        )
        self.medians[name] = median
        return median

    def ratio(self, one: str, other: str, wanted: str = "") -> None:
        """Print how two rows compare."""
        if one in self.medians and other in self.medians:
            print(f"    {self.medians[one] / self.medians[other]:.2f} times {other}{wanted}", flush=True)

    # -- snapshots

    def windows(self, messages: int, vehicles: int, in_list: int, sessions: int, topic: str) -> Figures:
        """Our reader into windows; ``sessions`` of each vehicle, each as long as a quarter of the time."""
        ticks = messages // vehicles * in_list
        quarter = ticks * workload.TICK_MS // 4
        wanted = [
            [
                value.decode()
                for _, value in workload.session(
                    number * sessions + part,
                    workload.vehicle_name(number),
                    workload.T0 + part * quarter,
                    snapshots=True,
                    span_ms=quarter - workload.TICK_MS,
                )
            ]
            for number in range(vehicles)
            for part in range(sessions)
        ]
        return child(
            "windows",
            {**self._where(topic, messages), "in_list": in_list, "sessions": wanted},
        )

    def _where(self, topic: str, count: int) -> dict[str, Any]:
        return {
            "bootstrap": self.broker.bootstrap_servers,
            "topic": topic,
            "count": count,
            "partitions": PARTITIONS,
        }

    def snapshots(self) -> None:
        """Single snapshots and lists of ten: bare loops, ours; then Faust and Quix."""
        vehicles = 200
        for in_list, count in ((1, self.size(200_000)), (IN_LIST, self.size(40_000))):
            messages = workload.snapshots(count, vehicles, in_list=in_list)
            size = statistics.mean(len(value) for _, value in messages)
            topic = self.topic(messages)
            print(f"Snapshots, {in_list} a message, messages of {size:,.0f} bytes, {vehicles} vehicles")
            raw, decoded = f"raw loop, {in_list}", f"raw loop with JSON, {in_list}"
            self.row(raw, partial(self.loop, "raw", topic, count, in_list), "snapshots")
            self.row(decoded, partial(self.loop, "json", topic, count, in_list), "snapshots")
            for sessions, share in ((0, "no windows"), (1, "a quarter in windows"), (4, "all in windows")):
                name = f"our reader, {share}, {in_list}"
                self.row(name, partial(self.windows, count, vehicles, in_list, sessions, topic), "snapshots")
                self.ratio(name, raw)
                self.ratio(name, decoded)
            if in_list == 1:
                self.peers(topic, messages)

    def peers(self, topic: str, messages: list[workload.Message]) -> None:
        """Single snapshots through a bare Faust agent and through Quix Streams."""
        ours, bare, quix = (
            "our reader, all in windows, 1",
            "bare Faust agent, 1",
            "Quix Streams, session window, 1",
        )
        self.row(bare, partial(self.faust, messages[: self.size(60_000)]), "snapshots")
        self.ratio(ours, bare)
        if not (QUIX / "bin" / "python").exists():
            print("  Quix Streams: not measured, no .cache/bench/quix; run make bench")
            return
        self.row(quix, partial(self.quix, topic, self.size(30_000)), "snapshots")
        self.ratio(ours, quix, " (expected: 5)")

    def loop(self, what: str, topic: str, count: int, in_list: int) -> Figures:
        """A bare loop; figures a snapshot."""
        figures = child(what, self._where(topic, count))
        return {**figures, "count": figures["count"] * in_list}

    def quix(self, topic: str, count: int) -> Figures:
        """Quix Streams on the first ``count`` records."""
        with tempfile.TemporaryDirectory(prefix="cockpithat-quix-") as state:
            done = subprocess.run(
                [
                    str(QUIX / "bin" / "python"),
                    str(Path(__file__).with_name("quix_window.py")),
                    self.broker.bootstrap_servers,
                    topic,
                    str(count),
                    state,
                ],
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        if done.returncode != 0:
            raise MeasurementError(done.stderr[-2_000:])
        found = json.loads(done.stdout.splitlines()[-1])
        self.quix_version = found.pop("version")
        figures: Figures = found
        return figures

    def faust(self, messages: list[workload.Message]) -> Figures:
        """The bare agent on a topic of its own."""
        topic = self.topic(messages)
        return child(
            "faust", {"bootstrap": self.broker.bootstrap_servers, "topic": topic, "count": len(messages)}
        )

    # -- session events

    def worker(self, messages: list[workload.Message], *, graph: bool = True, workers: int = 1) -> Figures:
        """Our worker's role ``assemble`` on topics of its own; several workers share them."""
        cluster = Cluster(
            self.broker,
            partitions=PARTITIONS,
            overrides={"worker": {"roles": ["assemble"], "commit_interval_ms": 1_000}},
        )
        settings = cluster.settings.model_dump(mode="json", exclude_defaults=True)
        share = {
            "settings": settings,
            "count": len(messages) if workers == 1 else len(messages) // workers // 2,
            "graph": graph,
            "total": len(messages),
        }
        running = [launch("worker", share) for _ in range(workers)]
        for process in running[:-1]:
            assert process.stdout is not None
            process.stdout.readline()

        def send() -> None:
            time.sleep(2.0 if workers == 1 else 12.0)  # partitions are taken over, rebalances done
            self.broker.produce(cluster.topic("session_events"), messages)

        last = finish(running[-1], send)
        figures = [last, *(finish(process) for process in running[:-1])]
        begun = min(one["begun"] for one in figures)
        return {
            "count": sum(one["count"] for one in figures),
            "seconds": max(one["ended"] for one in figures) - begun,
            "cpu": sum(one["cpu"] for one in figures),
        }

    def events(self) -> None:
        """Session events: the bare agent, our agent with the graph and without."""
        messages = workload.interleaved(self.size(4_000), 1_000)
        size = statistics.mean(len(value) for _, value in messages)
        print(f"Session events, {size:.0f} bytes each, 1,000 vehicles, traces written in transactions")
        bare, ours = "bare Faust agent", "our worker, graph built"
        self.row(bare, partial(self.faust, messages), "events")
        self.row(ours, partial(self.worker, messages), "events")
        self.ratio(ours, bare, " (expected: 0.5)")
        self.row("our worker, no graph", partial(self.worker, messages, graph=False), "events")
        self.ratio("our worker, no graph", ours)

    def growth(self) -> None:
        """From 100 to 5,000 vehicles, from one worker to two."""
        print("Growth")
        for vehicles in (100, 1_000, 5_000):
            count = self.size(40_000) // vehicles * vehicles or vehicles
            messages = workload.snapshots(count, vehicles, in_list=IN_LIST)
            topic = self.topic(messages)
            self.row(
                f"our reader, a quarter in windows, 10, {vehicles:,} vehicles",
                partial(self.windows, count, vehicles, IN_LIST, 1, topic),
                "snapshots",
            )
        for vehicles in (100, 5_000):
            messages = workload.interleaved(max(self.size(4_000), 200), vehicles)
            self.row(f"our worker, {vehicles:,} vehicles", partial(self.worker, messages), "events")
        messages = workload.interleaved(self.size(4_000), 1_000)
        for workers in (1, 2):
            name = f"{workers} worker{'s' if workers > 1 else ''}"
            self.row(name, partial(self.worker, messages, workers=workers), "events")
        self.ratio("2 workers", "1 worker")


def versions(broker: KafkaBroker) -> str:
    """What is measured with."""
    names = ("faust-streaming", "aiokafka", "confluent-kafka", "orjson", "pydantic", "uvloop")
    parts = [f"{name} {version(name)}" for name in names]
    return (
        f"Python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}, "
        f"{', '.join(parts)}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, "
        f"{type(broker).__name__}"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 when there is no broker or a measurement failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records; less is quicker")
    parser.add_argument("--only", choices=("snapshots", "events", "growth"), action="append")
    args = parser.parse_args(argv)
    try:
        broker = start()
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    begun = time.monotonic()
    try:
        print(versions(broker))
        bench = Bench(broker, args.rounds, args.scale)
        for part in args.only or ("snapshots", "events", "growth"):
            getattr(bench, part)()
        if hasattr(bench, "quix_version"):
            print(f"Quix Streams {bench.quix_version}")
        print(f"load {os.getloadavg()[0]:.1f} at the end; {time.monotonic() - begun:.0f} s in all")
    except MeasurementError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        broker.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
