"""Who&When runs: one history item is one step, agents by the rules of the data, labels sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.formats import FormatError, load_recordings
from cockpithat.formats.recording import Recording
from cockpithat.labels import read_agentrx_labels, read_whowhen_labels


def written(folder: Path, run: Any) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(run), encoding="utf-8")
    return path


def steps_of(recording: Recording) -> list[StepEvent]:
    return [event for event in recording.events if isinstance(event, StepEvent)]


def read_run(folder: Path, run: Any) -> Recording:
    (recording,) = load_recordings(written(folder, run))
    return recording


def hand_crafted(*messages: tuple[str, str]) -> dict[str, Any]:
    history = [{"role": role, "content": content} for role, content in messages]
    return {"question": "Which?", "question_ID": "q1", "is_corrected": False, "history": history}


def test_roles_of_the_hand_crafted_split_give_agent_mode_and_target(tmp_path: Path) -> None:
    run = hand_crafted(
        ("human", "Which?"),
        ("Orchestrator (thought)", "Initial plan"),
        ("Orchestrator (-> WebSurfer)", "Look it up"),
        ("WebSurfer", "Found it"),
        ("ComputerTerminal", "exit 0"),
        ("Orchestrator (termination condition)", "No more"),
    )
    seen = [(step.agent, step.mode, step.target) for step in steps_of(read_run(tmp_path, run))]
    assert seen == [
        ("human", "message", None),
        ("Orchestrator", "thought", None),
        ("Orchestrator", "dispatch", "WebSurfer"),
        ("WebSurfer", "message", None),
        ("ComputerTerminal", "tool_output", None),
        ("Orchestrator", "termination", None),
    ]


def test_one_agent_spelled_in_two_ways_is_one_agent(tmp_path: Path) -> None:
    run = hand_crafted(("Orchestrator (-> Websurfer)", "go"), ("WebSurfer", "a"), ("WebSurfer", "b"))
    recording = read_run(tmp_path, run)
    assert [step.target for step in steps_of(recording)] == ["WebSurfer", None, None]
    start = recording.events[0]
    assert isinstance(start, SessionStart)
    assert [agent.name for agent in start.roster] == ["Orchestrator", "WebSurfer"]


def test_names_win_over_roles_and_system_prompts_describe_the_roster(tmp_path: Path) -> None:
    run = {
        "question": "How many?",
        "is_correct": False,
        "system_prompt": {"Excel_Expert": "Reads sheets.", "Silent_Expert": "Never speaks."},
        "history": [
            {"role": "assistant", "name": "Excel_Expert", "content": "code"},
            {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0"},
        ],
    }
    recording = read_run(tmp_path, run)
    start = recording.events[0]
    assert isinstance(start, SessionStart)
    assert {agent.name: (agent.role, agent.description) for agent in start.roster} == {
        "Excel_Expert": ("agent", "Reads sheets."),
        "Computer_terminal": ("terminal", ""),
        "Silent_Expert": ("agent", "Never speaks."),
    }
    assert start.session_id == "run"


def test_empty_and_oddly_typed_content_survives(tmp_path: Path) -> None:
    run = hand_crafted(("human", "x"))
    run["history"] += [
        {"role": "A", "content": ""},
        {"role": "B"},
        {"role": "C", "content": None},
        {"role": "D", "content": [{"type": "text", "text": "part"}]},
        {"role": "E", "content": {"answer": 4}},
        {"role": 7, "content": 8},
        {"content": "nobody said it"},
    ]
    steps = steps_of(read_run(tmp_path, run))
    assert [step.text for step in steps] == ["x", "", "", "", "part", '{"answer":4}', "8", "nobody said it"]
    assert [step.agent for step in steps][-2:] == ["7", "unknown"]


def test_the_final_answer_is_the_last_thing_said_that_says_anything(tmp_path: Path) -> None:
    run = hand_crafted(("A", "It is 42."), ("B", "TERMINATE"), ("C", ""))
    end = read_run(tmp_path, run).events[-1]
    assert isinstance(end, SessionEnd)
    assert end.final_answer == "It is 42."


@pytest.mark.parametrize(
    ("flags", "failed"), [({}, True), ({"is_corrected": True}, False), ({"is_correct": True}, False)]
)
def test_a_run_has_failed_unless_it_says_it_was_right(
    tmp_path: Path, flags: dict[str, bool], failed: bool
) -> None:
    run = {"history": [{"role": "human", "content": "x"}], **flags}
    end = read_run(tmp_path, run).events[-1]
    assert isinstance(end, SessionEnd)
    assert end.failed is failed


def test_a_message_that_is_no_object_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [hand_crafted(("human", "x")), {"history": [{"role": "a"}, "loose text"]}])
    with pytest.raises(FormatError) as caught:
        list(load_recordings(path))
    assert caught.value.place == "/1/history/1"


@pytest.mark.data
def test_every_real_run_keeps_its_step_count_and_order(shared_data: Path) -> None:
    files = sorted((shared_data / "whowhen").glob("*/*.json"))
    assert len(files) == 123
    longest = 0
    for path in files:
        history = json.loads(path.read_text(encoding="utf-8"))["history"]
        (recording,) = load_recordings(path)
        texts = [step.text for step in steps_of(recording)]
        assert texts == [message["content"] for message in history], path.name
        longest = max(longest, *(len(text) for text in texts))
        end = recording.events[-1]
        assert isinstance(end, SessionEnd) and end.failed
    assert longest > 88_000


@pytest.mark.data
def test_labels_name_the_step_of_the_same_trace(shared_data: Path) -> None:
    """In all runs but the three known ones, the labelled agent spoke at the labelled step."""
    odd = set()
    for path in sorted((shared_data / "whowhen").glob("*/*.json")):
        (label,) = read_whowhen_labels(path)
        (recording,) = load_recordings(path)
        assert recording.events[0].session_id == label.session_id
        if not label.names_agent(steps_of(recording)[label.step].agent):
            odd.add((path.parent.name, path.stem))
    assert odd == {("algorithm-generated", "14"), ("hand-crafted", "20"), ("hand-crafted", "49")}


@pytest.mark.data
def test_the_second_teams_labels_are_0_based_and_belong_to_hand_crafted_runs(shared_data: Path) -> None:
    labels = list(read_agentrx_labels(shared_data / "agentrx" / "magentic_ground_truth.json"))
    lengths = {}
    for path in (shared_data / "whowhen" / "hand-crafted").glob("*.json"):
        (recording,) = load_recordings(path)
        lengths[recording.events[0].session_id] = len(steps_of(recording))
    assert len(labels) >= 29
    for label in labels:
        assert 0 <= label.step < lengths[label.trajectory_id]
