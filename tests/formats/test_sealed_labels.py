"""No label reaches a trace: changing every gold field of a file changes nothing in what is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.trace import Trace
from cockpithat.formats import ReadOptions, load
from cockpithat.formats.state_map import load_state_map

MARK = "GOLD-e7b1"
WHOWHEN_GOLD = (
    "mistake_agent",
    "mistake_step",
    "mistake_reason",
    "mistake_type",
    "ground_truth",
    "labels",
    "level",
)
CAR_BENCH_INPUT = {"context_init_config"}


def dumps(traces: Iterator[Trace]) -> list[str]:
    return [trace.model_dump_json() for trace in traces]


def marked(value: Any) -> Any:
    """The same shape with every string replaced by the mark and every number by a telling one."""
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item) for item in value]
    return 987_654 if isinstance(value, int | float) and not isinstance(value, bool) else MARK


@pytest.mark.data
def test_whowhen_labels_do_not_reach_the_trace(shared_data: Path, tmp_path: Path) -> None:
    for split in ("algorithm-generated", "hand-crafted"):
        for source in sorted((shared_data / "whowhen" / split).glob("*.json"))[:10]:
            run = json.loads(source.read_text(encoding="utf-8"))
            gold = {key: marked(run[key]) for key in WHOWHEN_GOLD if key in run}
            assert {"mistake_agent", "mistake_step", "mistake_reason", "ground_truth"} <= gold.keys()
            copy = tmp_path / source.name
            copy.write_text(json.dumps(run | gold), encoding="utf-8")
            changed = dumps(load(copy))
            assert changed == dumps(load(source))
            assert MARK not in changed[0]


@pytest.mark.data
def test_car_bench_references_and_rewards_do_not_reach_the_trace(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "car-bench"
    options = ReadOptions(state_map=load_state_map(folder / "carbench_state_to_vss.json"))
    source = folder / "hallucination_train_v2_gpt-5.2_0127133511.json"
    runs = json.loads(source.read_text(encoding="utf-8"))
    for run in runs:
        task = run["info"]["task"]
        assert "actions" in task and "instruction" in task and "reward_info" in run["info"]
        visible = {key: value for key, value in task.items() if key in CAR_BENCH_INPUT}
        run["info"] = marked(run["info"]) | {"task": marked(task) | visible}
    copy = tmp_path / source.name
    copy.write_text(json.dumps(runs), encoding="utf-8")
    changed = dumps(load(copy, options=options))
    assert changed == dumps(load(source, options=options))
    assert not any(MARK in dump or "987654" in dump for dump in changed)
