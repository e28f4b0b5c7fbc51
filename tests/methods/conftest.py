"""Real traces for the methods: Who&When runs of both splits, and the demo's cockpit sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.resources import resource


@pytest.fixture(scope="session")
def whowhen(shared_data: Path) -> list[Trace]:
    """Three runs of each split; of the hand-crafted ones a short, a middling and a long one."""
    traces: list[Trace] = []
    for split, places in (("hand-crafted", (2, 15, 28)), ("algorithm-generated", (0, 40, 80))):
        files = sorted((shared_data / "whowhen" / split).glob("*.json"), key=lambda path: path.stat().st_size)
        traces.extend(trace for place in places for trace in load(files[place]))
    return traces


@pytest.fixture(scope="session")
def demos() -> list[Trace]:
    """The ten scripted cockpit sessions that ship with the product, with vehicle state."""
    return [trace for path in sorted(resource("data/demo").glob("*.yaml")) for trace in load(path)]
