"""A schema registry: ids before what is written, frames off what is read, and clear words when it says no."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cockpithat.contract.framing import frame, unframed
from cockpithat.contract.schema import json_schema
from cockpithat.vehicle.log import SnapshotLog
from stream.schema_registry import RECORDS, SchemaRegistry, frames, register_all
from stream.settings import ConfigurationError, Settings, load_settings
from tests.stream.cockpit import Cluster, record, session, worker
from tests.support.kafka import KafkaBroker
from tests.support.schema_registry import Registry, serve


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve() as served:
        yield served


def settings(registry: Registry, **more: Any) -> Settings:
    return load_settings(schema_registry={"url": registry.url, "attempts": 2, **more})


def test_a_frame_is_a_zero_byte_and_four_bytes_of_id() -> None:
    assert frame(258) == b"\x00\x00\x00\x01\x02"
    assert unframed(frame(258) + b"{}") == b"{}" == unframed(b"{}")
    assert unframed(None) is None
    assert unframed(b"\x00{}") == b"\x00{}"  # too short to be one: garbage stays as it is


def test_a_worker_finds_what_topics_create_registered(registry: Registry) -> None:
    chosen = settings(registry)
    numbers = register_all(chosen)
    assert set(numbers) == {f"{getattr(chosen.topics, role)}-value" for role in RECORDS}
    found = frames(chosen)
    assert found[chosen.topics.reports] == frame(numbers[f"{chosen.topics.reports}-value"])
    assert chosen.topics.session_events not in found  # it writes none
    assert not any(topic.endswith(".dlq") for topic in found)
    (schema,) = registry.subjects[f"{chosen.topics.alerts}-value"]
    assert json.loads(schema) == json_schema("alert")


def test_without_a_registry_nothing_is_framed() -> None:
    assert frames(Settings()) == {}


def test_schemas_that_are_missing_keep_a_worker_from_starting_or_are_registered(registry: Registry) -> None:
    with pytest.raises(ConfigurationError, match=r"Subject .* not found.*topics create"):
        frames(settings(registry))
    assert registry.ids == {}
    assert len(frames(settings(registry, auto_register=True))) == 8
    assert len(frames(settings(registry))) == 8


def test_what_the_registry_refuses_is_said_in_one_line(registry: Registry) -> None:
    chosen = settings(registry, auto_register=True)
    registry.refused.add(f"{chosen.topics.reports}-value")
    with pytest.raises(ConfigurationError, match="incompatible; its compatibility rule"):
        frames(chosen)
    registry.user = ("ann", "secret-of-ann")
    with pytest.raises(ConfigurationError, match=r"Unauthorized; check schema_registry\.username"):
        frames(chosen)
    known = settings(registry, username="ann", password="secret-of-ann")
    registry.refused.clear()
    assert len(register_all(known)) == len(RECORDS)
    assert "secret" not in repr(known)


def test_an_outage_is_waited_out_and_then_named(registry: Registry) -> None:
    chosen = settings(registry)
    registry.failures = 1
    with SchemaRegistry(chosen) as client:
        assert client.register("a-value", "{}") == 1
    registry.failures = 2
    with SchemaRegistry(chosen) as client, pytest.raises(ConfigurationError, match=r"HTTP 500, 2 attempts"):
        client.register("a-value", "{}")
    nobody = load_settings(schema_registry={"url": "http://127.0.0.1:9", "attempts": 1})
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:9 did not answer.*ConnectError"):
        frames(nobody)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://ann:secret@registry"}, "holds credentials"),
        ({"url": "registry:8081"}, "schema_registry.url"),
        ({"url": "http://registry", "username": "ann"}, "go together"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_settings(schema_registry=given)
    assert "secret" not in str(caught.value)


def test_a_framed_snapshot_that_is_refused_keeps_its_bytes() -> None:
    log = SnapshotLog()
    body = {"vehicle_id": "v", "ts": 1_000, "kind": "full", "signals": {"Vehicle.Speed": {"not": "a value"}}}
    value = frame(7) + json.dumps(body).encode()
    assert log.offer(b"v", value, topic="t", partition=0, offset=0, broker_ts=1_000) is None
    assert log.sends("v")
    log.window("v", 0, 2_000)
    (rejected,) = log.take_rejected()
    assert rejected.value == value
    now = log.offer(b"v", frame(7) + b"{]", topic="t", partition=0, offset=1, broker_ts=1_000)
    assert now is not None and now.value == frame(7) + b"{]"


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_framed_records_in_and_out_beside_plain_ones(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, overrides={"schema_registry": {"url": registry.url, "auto_register": True}})
    start = time.time_ns() // 1_000_000 - 10_000
    framed = [record(body) for body in session("v1", "framed", start_ts=start)]
    framed = [(key, frame(4_711) + value) for key, value in framed]
    plain = [record(body) for body in session("v2", "plain", start_ts=start)]
    garbage = (b"v3", frame(4_711) + b"no JSON")
    snapshot = {"vehicle_id": "v1", "ts": start + 60_000, "kind": "full", "signals": {"Vehicle.Speed": 31.0}}
    early = {**snapshot, "ts": start - 1_000}
    snapshots = [(b"v1", frame(4_712) + json.dumps(body).encode()) for body in (early, snapshot)]
    kafka.produce(cluster.topic("vehicle_snapshots"), snapshots)
    kafka.produce(cluster.topic("session_events"), [*framed, garbage, *plain])
    with worker(cluster, tmp_path):
        summaries = cluster.wait_messages("sessions", 2)
        letters = cluster.wait_messages("dlq:session_events", 1)
    assert {json.loads(unframed(m.value()))["session_id"] for m in summaries} == {"framed", "plain"}
    assert [(m.key(), m.value()) for m in letters] == [garbage]
    for role, name in (("traces", "trace"), ("reports", "report"), ("sessions", "session_summary")):
        (schema,) = registry.subjects[f"{cluster.topic(role)}-value"]
        for message in cluster.messages(role):
            value = message.value()
            assert value is not None and value[:5] == frame(registry.ids[schema])
            jsonschema.validate(json.loads(unframed(value)), json_schema(name))
    traces = [json.loads(unframed(m.value())) for m in cluster.messages("traces")]
    (trace,) = (body for body in traces if body["session_id"] == "framed")
    assert trace["steps"][0]["state"]["before"]["Vehicle.Speed"] == 31.0
