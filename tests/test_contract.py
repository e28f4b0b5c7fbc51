"""The wire contract: versions, unknown fields, timestamps, ids, and schemas/ in step with the models."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from cockpithat.contract import schema
from cockpithat.contract.base import MAX_TIMESTAMP_MS, to_epoch_ms
from cockpithat.contract.deadletter import DeadLetterHeaders, DeadLetterReason
from cockpithat.contract.events import SESSION_EVENT, StepEvent
from cockpithat.contract.ids import digest, trace_id
from cockpithat.resources import read_resource, resource

STEP = {
    "type": "step",
    "event_id": "e1",
    "vehicle_id": "v1",
    "session_id": "s1",
    "seq": 3,
    "ts": "2026-01-01T00:00:00.250Z",
    "agent": "VehicleAgent",
}


def test_timestamps_are_read_as_epoch_ms_or_rfc3339() -> None:
    assert to_epoch_ms("1970-01-01T01:00:00+01:00") == 0
    assert to_epoch_ms("2026-01-01T00:00:00.257Z") == 1767225600257
    assert to_epoch_ms("9999-12-31T23:59:59.999Z") == MAX_TIMESTAMP_MS
    beyond_the_calendar = ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999-01:00")
    for bad in (True, 1.5, "2026-01-01T00:00:00", "yesterday", -1, 10**18, *beyond_the_calendar):
        with pytest.raises(ValueError):
            to_epoch_ms(bad)


def test_unknown_fields_are_kept() -> None:
    event = SESSION_EVENT.validate_python({**STEP, "seat_massage": {"on": True}})
    assert isinstance(event, StepEvent)
    assert event.model_dump()["seat_massage"] == {"on": True}


def test_another_major_version_is_refused_and_a_minor_one_is_not() -> None:
    SESSION_EVENT.validate_python({**STEP, "schema_version": "1.9"})
    with pytest.raises(ValidationError, match="unknown_version"):
        SESSION_EVENT.validate_python({**STEP, "schema_version": "2.0"})


def test_ids_do_not_collide_when_parts_are_cut_elsewhere() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert trace_id("v", "s", "e") == trace_id("v", "s", "e")


def test_dead_letter_headers_survive_kafka() -> None:
    headers = DeadLetterHeaders(
        reason=DeadLetterReason.LATE,
        stage="session",
        source_topic="t",
        source_partition=1,
        source_offset=2,
        failed_at=3,
        product_version="0",
    )
    assert DeadLetterHeaders.from_kafka([*headers.to_kafka(), ("other", b"x")]) == headers


@pytest.mark.parametrize("name", sorted(schema.RECORDS))
def test_published_schema_equals_the_model(name: str) -> None:
    assert read_resource(f"schemas/{name}.v1.json") == schema.render(name)


def test_resource_names_what_is_missing() -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        resource("prompts/nothing.md")
    with pytest.raises(FileNotFoundError):
        resource("../pyproject.toml")
    assert json.loads(read_resource("schemas/alert.v1.json"))["$id"] == "urn:cockpithat:alert:1"
