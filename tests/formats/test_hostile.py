"""Files whose shape is broken at random places: each is read, or refused in one line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cockpithat.formats import FormatError, ReadOptions, load, load_recordings
from cockpithat.formats.state_map import load_state_map
from cockpithat.resources import resource

ODD: list[Any] = [None, True, 0, -1, 10**15, 1e300, "", " ", "x" * 400, "\u0000", "\x1b[2J", "−", "NaN"]
ODD += [[], {}, [[]], [None], {"": {}}]


def broken(value: Any, dice: random.Random) -> Any:
    """The value with one place in it replaced, removed or doubled."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(sorted(value))
        if dice.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: broken(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.85:
        position = dice.randrange(len(value))
        copy = [*value[:position], broken(value[position], dice), *value[position + 1 :]]
        return [*copy, copy[position]] if dice.random() < 0.1 else copy
    return dice.choice(ODD)


def read_or_refuse(path: Path, options: ReadOptions) -> str:
    try:
        for trace in load(path, options=options):
            trace.model_dump_json()
    except FormatError as error:
        assert str(error).isprintable()
        return "refused"
    return "read"


def samples(shared_data: Path) -> dict[str, Any]:
    def parsed(path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))

    demo = resource("data/demo/08_climate_memory_sets_the_volume.yaml")
    (recording,) = load_recordings(demo)
    (trace,) = load(demo)
    events = [record.model_dump(mode="json") for record in (*recording.events, *recording.snapshots)]
    return {
        "whowhen": parsed(shared_data / "whowhen" / "hand-crafted" / "12.json"),
        "openai_chat": parsed(shared_data / "car-bench" / "base_claude-sonnet-4-5.json")[:2],
        "events": events,
        "trace": [trace.model_dump(mode="json")],
    }


@pytest.mark.data
@pytest.mark.parametrize("kind", ["whowhen", "openai_chat", "events", "trace"])
def test_a_file_broken_anywhere_is_read_or_refused(kind: str, shared_data: Path, tmp_path: Path) -> None:
    state_map = load_state_map(shared_data / "car-bench" / "carbench_state_to_vss.json")
    options = ReadOptions(state_map=state_map)
    sample = samples(shared_data)[kind]
    path = tmp_path / "broken.json"
    outcomes = set()
    for seed in range(150):
        dice = random.Random(seed)
        value = sample
        for _ in range(dice.randint(1, 4)):
            value = broken(value, dice)
        path.write_text(json.dumps(value), encoding="utf-8")
        outcomes.add(read_or_refuse(path, options))
    assert outcomes == {"read", "refused"}
