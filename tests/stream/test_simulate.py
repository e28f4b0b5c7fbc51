"""``simulate --stream`` on a real broker: what it sends, how fast, and what a worker makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.stream.cockpit import ROOT, Cluster, worker
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def play(cluster: Cluster, tmp_path: Path, *options: str) -> tuple[int, int, int, float]:
    """Sessions, events and snapshots that were sent, and the seconds that it took."""
    config = tmp_path / "settings.yaml"
    config.write_text(json.dumps(cluster.settings.model_dump(mode="json", exclude_defaults=True)))
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", "from stream.cli import main; main()", "simulate", "--stream", *options],
        cwd=ROOT,
        env={**os.environ, "COCKPITHAT_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = re.search(r"(\d+) sessions: (\d+) events and (\d+) snapshots sent, (\d+) delivered", done.stdout)
    assert told is not None, done.stdout
    sessions, events, snapshots, delivered = (int(number) for number in told.groups())
    assert delivered >= events  # snapshots may travel in lists
    return sessions, events, snapshots, time.monotonic() - begun


def test_simulated_sessions_arrive_whole_and_failed_ones_are_reported(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka)
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        sessions, events, snapshots, _ = play(
            cluster, tmp_path, "--traces", "6", "--passed", "3", "--seed", "5", "--rate", "0"
        )
        summaries = cluster.wait("sessions", sessions)
    assert sessions == len(summaries) == 9
    sent = cluster.read("session_events")
    assert len(sent) == events and {body["session_id"] for body in sent} == {
        body["session_id"] for body in summaries
    }
    messages = cluster.messages("session_events")
    assert [m.key() for m in messages] == [body["vehicle_id"].encode() for body in sent]
    bodies = cluster.read("vehicle_snapshots")
    states = [item for body in bodies for item in (body if isinstance(body, list) else [body])]
    assert len(states) == snapshots > 0
    failed = {body["session_id"] for body in sent if body["type"] == "session_end" and body["failed"]}
    assert len(failed) == 6
    assert {body["session_id"] for body in cluster.read("reports")} == failed
    traces = cluster.read("traces")
    assert all(body["vehicle_state"] == "complete" for body in traces)
    assert not cluster.messages("dlq:session_events") and not cluster.messages("dlq:vehicle_snapshots")
    # Labels stay behind.
    texts = b"".join(m.value() or b"" for m in messages)
    assert not re.search(rb"decisive|injected|primitive|gold", texts)


def test_the_rate_is_held(kafka: KafkaBroker, tmp_path: Path) -> None:
    cluster = Cluster(kafka)
    chosen = ("--traces", "2", "--seed", "5")
    _, events, snapshots, at_once = play(cluster, tmp_path, *chosen, "--rate", "0")
    records = events + snapshots
    rate = records / 6
    _, again, _, paced = play(cluster, tmp_path, *chosen, "--rate", f"{rate:g}")
    assert again == events
    assert paced - at_once > 3.0, "six seconds' worth of records, sent in no time"
    assert paced - at_once < 12.0
