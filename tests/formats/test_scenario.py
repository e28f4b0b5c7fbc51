"""Scenarios in YAML: compiled to events and snapshots; the demo's are sound; the manual's examples work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.base import Outcome
from cockpithat.contract.trace import Trace
from cockpithat.formats import FormatError, load, load_recordings
from cockpithat.resources import resource

DEMO = sorted(resource("data/demo").glob("*.yaml"))
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
LEAST = """
scenario: s
task: t
start: 2026-01-01T00:00:00Z
roster: [A]
vehicle: {id: v, state: {Vehicle.Speed: 10.0}}
steps:
  - {agent: A, text: one}
  - {agent: A, at: 7.5, text: two}
  - {agent: A, text: three, replies_to: x}
"""


def written(folder: Path, text: str, name: str = "s.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> Trace:
    (trace,) = load(written(folder, text))
    return trace


def test_steps_without_a_time_come_two_seconds_after_the_one_before(tmp_path: Path) -> None:
    trace = read(tmp_path, LEAST)
    assert [step.ts - trace.started_ts for step in trace.steps] == [2_000, 7_500, 9_500]


def test_a_scenario_without_an_end_just_stops(tmp_path: Path) -> None:
    trace = read(tmp_path, LEAST)
    assert trace.outcome is Outcome.UNKNOWN
    assert read(tmp_path, LEAST + "end: {outcome: success}\n").outcome is Outcome.SUCCESS


def test_snapshots_come_at_a_steady_rate_and_at_each_change(tmp_path: Path) -> None:
    text = LEAST.replace("state:", "changes: [{at: 3.25, set: {Vehicle.Speed: 55.0}}], state:")
    (recording,) = load_recordings(written(tmp_path, text))
    start = recording.events[0].ts
    full = [snapshot.ts - start for snapshot in recording.snapshots if snapshot.kind == "full"]
    assert full == list(range(0, 12_000, 1_000))
    (delta,) = (snapshot for snapshot in recording.snapshots if snapshot.kind == "delta")
    assert (delta.ts - start, delta.signals) == (3_250, {"Vehicle.Speed": 55.0})


def test_a_scenario_without_vehicle_state_sends_no_snapshots(tmp_path: Path) -> None:
    text = LEAST.replace(", state: {Vehicle.Speed: 10.0}", "")
    (recording,) = load_recordings(written(tmp_path, text))
    assert recording.snapshots == ()


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("task: t", "task: t\ntsk: u", "/tsk"),
        ("text: one", "txt: one", "/steps/0/txt"),
        ("at: 7.5", "at: -1", "/steps/1/at"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "/start"),
        ("{id: v,", "{", "/vehicle/id"),
    ],
)
def test_typing_errors_are_named(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert old in LEAST
    with pytest.raises(FormatError) as caught:
        read(tmp_path, LEAST.replace(old, new))
    assert caught.value.place == place


def test_the_examples_of_the_manual_can_be_read(tmp_path: Path) -> None:
    examples = re.findall(r"```(json|yaml)\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert {kind for kind, _ in examples} == {"json", "yaml"}
    for number, (kind, text) in enumerate(examples):
        (trace,) = load(written(tmp_path, text, f"example-{number}.{kind}"))
        assert trace.failed
        assert trace.steps


def test_the_demo_has_languages_agents_and_sessions_as_it_says() -> None:
    traces = [trace for path in DEMO for trace in load(path)]
    assert len(traces) == 10
    assert sum(trace.failed for trace in traces) == 8
    assert {"de", "en", "zh"} <= {(trace.locale or "").partition("-")[0] for trace in traces}
    roster = {"Director", "NavigationAgent", "VehicleAgent", "InfotainmentAgent", "MemoryAgent", "GUIAgent"}
    for trace in traces:
        assert {agent.name for agent in trace.roster} == roster | {"SafetyAgent"}
        assert {step.agent for step in trace.steps} <= set(trace.agents)
    spoke = {step.agent for trace in traces for step in trace.steps}
    assert spoke == roster | {"SafetyAgent", "Driver"}


@pytest.mark.data
def test_the_demos_signals_are_those_of_vss_4_0(shared_data: Path) -> None:
    leaves: dict[str, dict[str, Any]] = json.loads(
        (shared_data / "vss" / "vss_4.0_leaves.json").read_text(encoding="utf-8")
    )
    seen = 0
    for path in DEMO:
        (recording,) = load_recordings(path)
        for snapshot in recording.snapshots:
            for signal, value in snapshot.signals.items():
                leaf = leaves[signal]
                seen += 1
                if leaf["datatype"] == "boolean":
                    assert isinstance(value, bool), signal
                elif leaf["datatype"] == "string":
                    assert value in leaf.get("allowed", [value]), signal
                else:
                    assert isinstance(value, int | float) and not isinstance(value, bool), signal
                    assert leaf.get("min", value) <= value <= leaf.get("max", value), signal
    assert seen > 500
