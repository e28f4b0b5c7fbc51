"""CAN frames on Kafka: decoded, joined with sessions as vehicle state, put aside when they are not frames."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cockpithat.can.candump import read_candump
from tests.stream.cockpit import Cluster, session, worker
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

BATCH = 500


@pytest.fixture
def cluster(kafka: KafkaBroker, shared_data: Path) -> Cluster:
    kuksa = shared_data / "kuksa"
    can = {"dbc": str(kuksa / "Model3CAN.dbc"), "mapping": str(kuksa / "vss_dbc.json")}
    roles = {"roles": ["decode", "assemble", "attribute"]}
    # The log is from another year than the session, and frames and events come at once.
    return Cluster(kafka, overrides={"can": can, "worker": roles, "engine": {"snapshot_wait_ms": 4_000}})


def test_a_real_log_becomes_the_vehicle_state_of_a_session(
    cluster: Cluster, tmp_path: Path, shared_data: Path
) -> None:
    frames = list(read_candump(shared_data / "kuksa" / "candump_Manual_SOC_DogMode_CabinTemp.log"))
    start = int(time.time() * 1000) - 60_000
    shift = start - frames[0].ts
    bodies = [frame.model_dump() | {"ts": frame.ts + shift} for frame in frames]
    records = [
        (b"v1", json.dumps({"vehicle_id": "v1", "frames": bodies[at : at + BATCH]}).encode())
        for at in range(0, len(bodies), BATCH)
    ]
    cluster.broker.produce(cluster.topic("can_frames"), records)
    middle = start + (frames[-1].ts - frames[0].ts) // 2
    with worker(cluster, tmp_path) as running:
        snapshots = cluster.wait("vehicle_snapshots", len(records))
        # Nothing announces that this vehicle sends any: the worker must have heard of it before the session.
        running.wait_metric('cockpithat_snapshots_total{result="accepted"}', len(snapshots))
        cluster.send(session("v1", "driven", start_ts=middle))
        cluster.wait("sessions", 1)
        (trace,) = cluster.read("traces")
        states = [step["state"] for step in trace["steps"]]
        assert all(state["before"].get("Vehicle.Speed") is not None for state in states)
        said = {
            (snapshot["ts"], snapshot["signals"]["Vehicle.Speed"])
            for record in snapshots
            for snapshot in record
            if "Vehicle.Speed" in snapshot["signals"]
        }
        latest = max((ts, speed) for ts, speed in said if ts <= trace["steps"][0]["ts"])
        assert states[0]["before"]["Vehicle.Speed"] == latest[1]
        decoded, skipped = (
            running.metric(f'cockpithat_can_frames_total{{result="{result}"}}')
            for result in ("decoded", "skipped")
        )
        assert decoded + skipped == len(frames)
        assert decoded > 0


def test_what_is_no_batch_of_frames_is_put_aside_and_read_once(cluster: Cluster, tmp_path: Path) -> None:
    good = json.dumps({"vehicle_id": "v1", "frames": [{"ts": 1000, "id": 0x257, "data": "00" * 8}]}).encode()
    bad = {
        b"{": "not_json",
        b'{"vehicle_id": "v1", "frames": []}': "schema",
        good.replace(b"v1", b"v2"): "wrong_key",
        good.replace(b"0000", b"zz00"): "schema",
    }
    cluster.broker.produce(cluster.topic("can_frames"), [(b"v1", value) for value in (*bad, good)])
    with worker(cluster, tmp_path, name="first") as running:
        cluster.wait("vehicle_snapshots", 1)
        letters = cluster.wait_messages("dlq:can_frames", 4)
        found = {
            (message.value() or b""): dict(message.headers() or [])["dlq.reason"].decode()  # type: ignore[arg-type]
            for message in letters
        }
        assert found == bad
        running.kill()
    with worker(cluster, tmp_path, name="second") as running:
        running.wait_ready()
        time.sleep(3)
        assert len(cluster.messages("dlq:can_frames")) == 4
        assert len(cluster.messages("vehicle_snapshots")) == 1


def test_the_role_says_what_it_needs(cluster: Cluster, tmp_path: Path) -> None:
    bare = Cluster(cluster.broker, overrides={"worker": {"roles": ["decode"]}})
    with worker(bare, tmp_path) as running:
        assert running.process.wait(30) == 1
        assert "COCKPITHAT_CAN__DBC" in running.log.read_text()
