"""The stream benchmarks in short form: each runs on a real Kafka and prints what it says it prints.

Figures are not looked at: they are for ``make bench``, ``make bench-latency`` and ``make soak``.
"""

from __future__ import annotations

import re

import pytest

from tests.bench.stream import latency, soak, workload
from tests.bench.stream.bench import Bench
from tests.support.kafka import KafkaBroker


def test_throughput_rows(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """One row of each kind; windows all close and carry vehicle state."""
    bench = Bench(kafka, rounds=1, scale=0.01)
    snapshots = workload.snapshots(400, 10)
    topic = bench.topic(snapshots)
    for what in ("raw", "json"):
        bench.row(what, lambda what=what: bench.loop(what, topic, 400, 1), "snapshots")  # type: ignore[misc]
    closed = bench.windows(400, 10, 1, 2, topic)
    assert closed["windows"] == 20
    assert closed["steps"] >= 20 * 7, "every step of a window has vehicle state"
    events = workload.interleaved(20, 10)
    bench.row("bare", lambda: bench.faust(events), "events")
    bench.row("ours", lambda: bench.worker(events), "events")
    bench.ratio("ours", "bare")
    printed = capsys.readouterr().out
    assert len(re.findall(r"/s \(.*us of processor each; n=\d+, 1 rounds", printed)) == 4
    assert "times bare" in printed


def test_latency_prints_percentiles(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Every failed session of the fleet gets its alert."""
    assert latency.measure(kafka, seconds=5, rate=2, vehicles=20, warm_s=0, span_s=4) == 0
    printed = capsys.readouterr().out
    assert "alerts missing: 0" in printed
    assert len(re.findall(r"p99 [\d,]+ ms", printed)) == 3


def test_soak_prints_memory_and_hold(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Two simulated minutes: one summary a session, the hold released."""
    assert soak.measure(kafka, hours=120 / 3600, vehicles=30, ahead=2_000) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    assert "events still held at the end:  0" in printed
    assert "too short to judge memory" in printed
