"""AgentRx's numbered form: one number is one step, and a gap in the numbers is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.formats import FormatError, load

STEPS: list[dict[str, Any]] = [
    {"index": 1, "substeps": [{"sub_index": 1, "role": "Orchestrator (thought)", "content": "Plan."}]},
    {
        "index": 2,
        "substeps": [
            {"sub_index": 1, "role": "WebSurfer", "content": "I clicked."},
            {"sub_index": 2, "role": "browser", "content": "404"},
        ],
    },
    {"index": 3, "substeps": []},
]


def written(folder: Path, content: Any) -> Path:
    path = folder / "run-7.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_run_with_its_instruction(tmp_path: Path) -> None:
    run = {"trajectory_id": "t-1", "instruction": "Find it.", "steps": STEPS}
    (trace,) = load(written(tmp_path, run))
    assert (trace.session_id, trace.task, trace.failed) == ("t-1", "Find it.", True)
    assert [(s.index, s.agent, s.text) for s in trace.steps] == [
        (0, "Orchestrator", "Plan."),
        (1, "WebSurfer", "I clicked.\n404"),
        (2, "unknown", ""),
    ]


def test_a_bare_list_of_steps_is_one_run_and_a_list_of_runs_is_several(tmp_path: Path) -> None:
    (trace,) = load(written(tmp_path, STEPS))
    assert (trace.session_id, len(trace.steps)) == ("run-7", 3)
    runs = [{"trajectory_id": name, "steps": STEPS} for name in ("a", "b")]
    assert [t.session_id for t in load(written(tmp_path, runs))] == ["a", "b"]


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([STEPS[0], STEPS[2]], "index 3 where 2 is due"),
        ([{**STEPS[0], "index": 0}], "index 0 where 1 is due"),
        ([{"index": 1, "substeps": "none"}], "'substeps' is a string"),
        ([STEPS[0], 7], "expected an object"),
    ],
)
def test_a_broken_run_is_told_with_its_place(tmp_path: Path, steps: list[Any], what: str) -> None:
    with pytest.raises(FormatError, match=what):
        list(load(written(tmp_path, {"steps": steps}), "agentrx"))
