"""A breaking change of the contract fails here; an additive one only asks for `schemas/` to be written anew.

`baseline/` holds the schemas of the first release of this major version. It never changes within the major
version, except that fields added since may be added to it, so that they are held from then on.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract import schema
from cockpithat.contract.compatibility import breaking_changes

BASELINE = Path(__file__).parent / "baseline"
RECORDS = sorted(path.name.removesuffix(".v1.json") for path in BASELINE.glob("*.v1.json"))


def baseline(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((BASELINE / f"{name}.v1.json").read_text(encoding="utf-8"))
    return loaded


def test_every_record_of_the_baseline_is_still_published() -> None:
    assert set(RECORDS) <= set(schema.RECORDS)
    assert len(RECORDS) >= 11


@pytest.mark.parametrize("name", RECORDS)
def test_the_models_break_nothing_of_the_baseline(name: str) -> None:
    assert breaking_changes(baseline(name), schema.json_schema(name)) == []


def step(definitions: dict[str, Any]) -> Any:
    return definitions["$defs"]["StepEvent"]


BREAKING: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "a field is removed": ("report", lambda s: s["properties"].pop("step"), "/step: the field is gone"),
    "a field is renamed": (
        "session_event",
        lambda s: step(s)["properties"].update(speaker=step(s)["properties"].pop("agent")),
        "/agent: the field is gone",
    ),
    "a field has another type": (
        "session_event",
        lambda s: step(s)["properties"].update(seq={"type": "string"}),
        "/seq: Seq is not accepted any more",
    ),
    "a nullable field is nullable no more": (
        "report",
        lambda s: s["properties"].update(agent={"type": "string"}),
        "/agent: null is not accepted any more",
    ),
    "an optional field becomes required": (
        "session_event",
        lambda s: step(s)["required"].append("text"),
        "/text: the field is required now",
    ),
    "a new field is required": (
        "vehicle_snapshot",
        lambda s: (
            s["$defs"]["VehicleSnapshot"]["properties"].update(origin={"type": "string"}),
            s["$defs"]["VehicleSnapshot"]["required"].append("origin"),
        ),
        "/origin: the field is required now",
    ),
    "a required field becomes optional": (
        "alert",
        lambda s: s["required"].remove("vehicle_id"),
        "/vehicle_id: readers could count on the field and cannot any more",
    ),
    "a category is removed": (
        "report",
        lambda s: s["$defs"]["Category"]["enum"].remove("planning_failure"),
        "/category: the value 'planning_failure' is gone",
    ),
    "a kind of event is removed": (
        "session_event",
        lambda s: s["oneOf"].pop(1),
        "/: StepEvent is not accepted any more",
    ),
    "a snapshot may come in a list no more": (
        "vehicle_snapshot",
        lambda s: s.update(anyOf=s["anyOf"][:1]),
        "/: array is not accepted any more",
    ),
    "an id may be shorter only": (
        "session_event",
        lambda s: step(s)["properties"]["vehicle_id"].update(maxLength=64),
        "/vehicle_id: maxLength is 64, was 256",
    ),
    "a bound where there was none": (
        "session_event",
        lambda s: step(s)["properties"]["text"].update(maxLength=1000),
        "/text: maxLength is 1000, was free",
    ),
    "free text becomes an enumeration": (
        "session_event",
        lambda s: step(s)["properties"]["mode"].update(enum=["message"]),
        "/mode: only some values are accepted now",
    ),
    "unknown fields are refused": (
        "can_frames",
        lambda s: s.update(additionalProperties=False),
        "/: unknown fields are refused now",
    ),
    "items of a list have another type": (
        "report",
        lambda s: s["$defs"]["Evidence"]["properties"]["paths"].update(items={"type": "integer"}),
        "/evidence/*/paths/*: string is not accepted any more",
    ),
    "values of a map have another type": (
        "trace",
        lambda s: s["properties"]["models"].update(additionalProperties={"type": "integer"}),
        "/models/*: string is not accepted any more",
    ),
}

ADDITIVE: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "an optional field": ("report", lambda s: s["properties"].update(colour={"type": "string"})),
    "an optional object": (
        "session_event",
        lambda s: (
            s["$defs"].update(Extra={"type": "object", "properties": {"a": {"type": "string"}}}),
            step(s)["properties"].update(extra={"anyOf": [{"$ref": "#/$defs/Extra"}, {"type": "null"}]}),
        ),
    ),
    "a value of an enumeration": ("report", lambda s: s["$defs"]["Category"]["enum"].append("ninth")),
    "a kind of event": (
        "session_event",
        lambda s: (
            s["$defs"].update(
                Pause={
                    "type": "object",
                    "properties": {"type": {"const": "session_pause", "type": "string"}},
                }
            ),
            s["oneOf"].append({"$ref": "#/$defs/Pause"}),
        ),
    ),
    "a longer id": (
        "session_event",
        lambda s: step(s)["properties"]["vehicle_id"].update(maxLength=512),
    ),
    "another description": ("alert", lambda s: s.update(description="Better said.")),
    "a number where an integer was": (
        "metrics",
        lambda s: s["properties"].update(ts={"type": "number"}),
    ),
    "anything where a type was": (
        "session_event",
        lambda s: s["$defs"]["ToolCall"]["properties"].update(arguments={}),
    ),
}


@pytest.mark.parametrize("case", BREAKING)
def test_a_breaking_change_is_told_with_its_place(case: str) -> None:
    name, change, expected = BREAKING[case]
    changed = copy.deepcopy(baseline(name))
    change(changed)
    found = breaking_changes(baseline(name), changed)
    assert found
    assert any(line.endswith(expected) for line in found), found


@pytest.mark.parametrize("case", ADDITIVE)
def test_an_additive_change_is_none(case: str) -> None:
    name, change = ADDITIVE[case]
    changed = copy.deepcopy(baseline(name))
    change(changed)
    assert changed != baseline(name)
    assert breaking_changes(baseline(name), changed) == []
