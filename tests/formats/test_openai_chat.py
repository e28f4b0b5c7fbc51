"""OpenAI chat messages: one message a step, tool calls joined with results, state changes as VSS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.base import Outcome, VehicleStateCoverage
from cockpithat.contract.trace import Trace
from cockpithat.formats import FormatError, ReadOptions, load
from cockpithat.formats.state_map import StateMap, load_state_map

WINDOW = "Vehicle.Cabin.Door.Row1.DriverSide.Window.Position"
TRUNK = "Vehicle.Body.Trunk.Rear.IsOpen"
FAN = "Vehicle.Cabin.HVAC.Station.Row1.Driver.FanSpeed"


def call(name: str, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def assistant(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str | None, name: str, content: Any) -> dict[str, Any]:
    message = {
        "role": "tool",
        "name": name,
        "content": content if isinstance(content, str) else json.dumps(content),
    }
    return message if call_id is None else {**message, "tool_call_id": call_id}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def read(
    folder: Path, content: Any, state_map: StateMap | None = None, name: str = "chat.json"
) -> list[Trace]:
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return list(load(path, options=ReadOptions(state_map=state_map)))


@pytest.fixture
def state_map(tmp_path: Path) -> StateMap:
    """A map of three fields in the form of CAR-bench's own."""
    fields = {
        "window_driver_position": (WINDOW, None, {"datatype": "uint8", "min": 0, "max": 100}),
        "trunk_door_position": (TRUNK, "open->true closed->false", {"datatype": "boolean"}),
        "fan_speed": (FAN, "x*20 (0..5 -> 0..100 %)", {"datatype": "uint8", "min": 0, "max": 100}),
    }
    path = tmp_path / "map.json"
    path.write_text(
        json.dumps(
            {name: {"vss_path": p, "transform": t, "vss_4.0": leaf} for name, (p, t, leaf) in fields.items()}
        ),
        encoding="utf-8",
    )
    return load_state_map(path)


def test_each_message_is_a_step_and_results_answer_their_calls(tmp_path: Path) -> None:
    messages = [
        said("system", "Be brief."),
        said("user", "What is the weather?"),
        assistant(call("get_weather", {"city": "Bonn"}, "c1"), content="Let me look."),
        result("c1", "get_weather", {"status": "SUCCESS", "result": {"t": 3}}),
        {"role": "assistant", "content": "3 degrees.", "reasoning_content": "It says 3."},
    ]
    (trace,) = read(tmp_path, {"messages": messages})
    assert [(step.agent, step.mode) for step in trace.steps] == [
        ("system", "system"),
        ("user", "message"),
        ("assistant", "tool_call"),
        ("tool", "tool_output"),
        ("assistant", "message"),
    ]
    asked, answered = trace.steps[2], trace.steps[3]
    assert asked.tool_calls[0].arguments == {"city": "Bonn"}
    assert answered.tool_outputs[0].content == {"status": "SUCCESS", "result": {"t": 3}}
    assert answered.in_reply_to == asked.event_id
    assert trace.steps[4].reasoning == "It says 3."
    assert trace.task == "What is the weather?"
    assert trace.final_answer == "3 degrees."
    assert trace.timestamps_synthetic
    assert trace.vehicle_state is VehicleStateCoverage.NONE


def test_a_result_without_an_id_answers_the_oldest_open_call_of_its_tool(tmp_path: Path) -> None:
    messages = [
        assistant(call("dial", {"n": 1}, "c1"), call("dial", {"n": 2}, "c2")),
        result(None, "dial", "ok"),
        result("c2", "dial", "ok"),
    ]
    (trace,) = read(tmp_path, messages)
    assert [step.in_reply_to for step in trace.steps[1:]] == [trace.steps[0].event_id] * 2


@pytest.mark.parametrize(
    ("content", "failed"),
    [
        ({"status": "FAILURE", "result": {}}, True),
        ("Error: missing argument", True),
        ({"error": "no such route"}, True),
        ({"status": "SUCCESS", "result": {}}, False),
        ("Errors were found in none of the files", False),
    ],
)
def test_failed_tool_results_are_marked(tmp_path: Path, content: Any, failed: bool) -> None:
    (trace,) = read(tmp_path, [assistant(call("t", {}, "c1")), result("c1", "t", content)])
    assert trace.steps[1].tool_outputs[0].is_error is failed


@pytest.mark.parametrize(
    ("flags", "outcome", "judged"),
    [
        ({"reward": 0.0}, Outcome.FAILURE, True),
        ({"reward": 1}, Outcome.SUCCESS, False),
        ({"failed": True, "reward": 1}, Outcome.FAILURE, True),
        ({"success": True}, Outcome.SUCCESS, False),
        ({}, Outcome.UNKNOWN, True),
    ],
)
def test_the_failure_flag_comes_from_the_run_or_is_unknown(
    tmp_path: Path, flags: dict[str, Any], outcome: Outcome, judged: bool
) -> None:
    (trace,) = read(tmp_path, {"messages": [said("user", "hi")], **flags})
    assert (trace.outcome, trace.is_judged) == (outcome, judged)


def test_lists_lines_and_bare_messages_are_all_read(tmp_path: Path) -> None:
    chat = [said("user", "hi"), said("assistant", "hello")]
    assert len(read(tmp_path, chat)) == 1
    assert [trace.session_id for trace in read(tmp_path, [chat, chat])] == ["chat/0", "chat/1"]
    runs = [{"task_id": 3, "trial": 0, "traj": chat, "reward": 1.0}] * 2
    assert [trace.session_id for trace in read(tmp_path, runs)] == ["chat/3/0", "chat/3/0-2"]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(json.dumps({"messages": chat}) for _ in range(3)), encoding="utf-8")
    assert len(list(load(path))) == 3
    path.write_text("\n".join(json.dumps(message) for message in chat), encoding="utf-8")
    (trace,) = load(path)
    assert len(trace.steps) == 2


def test_a_call_that_worked_changes_the_vehicles_state_between_call_and_result(
    tmp_path: Path, state_map: StateMap
) -> None:
    messages = [
        said("user", "Open my window and the trunk."),
        assistant(
            call("open_close_window", {"window": "DRIVER", "percentage": 50}, "c1"),
            call("open_close_trunk_door", {"action": "OPEN"}, "c2"),
        ),
        result("c1", "open_close_window", {"status": "SUCCESS", "result": {"percentage": 50}}),
        result("c2", "open_close_trunk_door", {"status": "FAILURE", "result": {}}),
        said("assistant", "Done."),
    ]
    start = {"window_driver_position": 0, "trunk_door_position": "closed", "fan_speed": 2}
    run = {"traj": messages, "reward": 0, "info": {"task": {"context_init_config": start}}}
    (trace,) = read(tmp_path, run, state_map)
    asked = trace.steps[1]
    assert {change.path: change.value for change in asked.intended} == {WINDOW: 50, TRUNK: True}
    assert asked.state is not None
    assert [(c.path, c.before, c.after) for c in asked.state.changes] == [(WINDOW, 0, 50)]
    last = trace.steps[-1].state
    assert last is not None
    assert last.after[WINDOW] == 50
    assert last.after[TRUNK] is False
    assert trace.vehicle_state is VehicleStateCoverage.COMPLETE


def test_values_with_no_counterpart_in_vss_stay_unknown(state_map: StateMap) -> None:
    assert state_map.observed({"fan_speed": 3, "trunk_door_position": "open"}) == {FAN: 60, TRUNK: True}
    assert state_map.observed({"fan_speed": "unknown", "trunk_door_position": "ajar"}) == {}
    assert state_map.observed({"fan_speed": 9}) == {}  # 180 % is out of range
    assert state_map.observed({"window_driver_position": 12.5}) == {}  # the signal is an integer
    assert state_map.observed(["no", "object"]) == {}


def test_a_map_file_that_maps_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"a": {"vss_path": "Vehicle.X", "vss_4.0": null}}', encoding="utf-8")
    with pytest.raises(FormatError, match="maps no field"):
        load_state_map(path)
    path.write_text('{"a": {"transform": null}}', encoding="utf-8")
    with pytest.raises(FormatError, match="vss_path"):
        load_state_map(path)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ([{"task_id": 1, "traj": [said("user", "x"), {"role": "robot"}]}], "/0/traj/1"),
        ([{"task_id": 1, "traj": [said("user", "x"), {"content": "x"}]}], "/0/traj/1"),
        ({"messages": [said("user", "x"), "loose"]}, "/messages/1"),
        ({"messages": [{"role": "assistant", "tool_calls": "t"}]}, "/messages/0/tool_calls"),
    ],
)
def test_a_broken_message_is_named(tmp_path: Path, content: Any, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(tmp_path, content)
    assert caught.value.place == place


@pytest.mark.data
def test_all_real_car_bench_runs_are_read_with_their_state(shared_data: Path) -> None:
    folder = shared_data / "car-bench"
    real_map = load_state_map(folder / "carbench_state_to_vss.json")
    traces: list[Trace] = []
    warnings: list[str] = []
    options = ReadOptions(state_map=real_map, warn=warnings.append)
    for path in sorted(folder.glob("*_*.json")):
        if path.name == "carbench_state_to_vss.json":
            continue
        runs = json.loads(path.read_text(encoding="utf-8"))
        found = list(load(path, options=options))
        assert [len(trace.steps) for trace in found] == [len(run["traj"]) for run in runs]
        assert [trace.failed for trace in found] == [run["reward"] == 0 for run in runs]
        traces += found
    assert warnings == []
    assert len(traces) == 103
    assert sum(trace.failed for trace in traces) == 28
    assert len({(trace.vehicle_id, trace.session_id) for trace in traces}) == 103
    assert all(trace.vehicle_state is VehicleStateCoverage.COMPLETE for trace in traces)
    kept, broken = 0, 0
    for trace in traces:
        for step, following in zip(trace.steps, trace.steps[1:], strict=False):
            changes = {change.path: change.after for change in step.state.changes} if step.state else {}
            answered = following.tool_outputs and not following.tool_outputs[0].is_error
            for intended in step.intended:
                already = step.state is not None and step.state.before.get(intended.path) == intended.value
                if len(step.tool_calls) == 1 and answered:
                    done = already or changes.get(intended.path) == intended.value
                    kept, broken = kept + done, broken + (not done)
    assert kept > 30
    assert broken == 0
