"""Real traces: twenty Who&When runs, twenty cockpit sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.resources import resource


@pytest.fixture(scope="session")
def whowhen(shared_data: Path) -> list[Trace]:
    """Ten hand-crafted and ten algorithm-generated runs, the short ones first to keep the tests quick."""
    traces: list[Trace] = []
    for split in ("hand-crafted", "algorithm-generated"):
        files = sorted((shared_data / "whowhen" / split).glob("*.json"), key=lambda path: path.stat().st_size)
        traces.extend(trace for path in files[:10] for trace in load(path))
    return traces


@pytest.fixture(scope="session")
def demos() -> list[Trace]:
    """The ten scripted cockpit sessions that ship with the product, with vehicle state."""
    return [trace for path in sorted(resource("data/demo").glob("*.yaml")) for trace in load(path)]


@pytest.fixture(scope="session")
def cockpit(demos: list[Trace], shared_data: Path) -> list[Trace]:
    """The demo sessions and ten failed runs of a real in-car assistant."""
    car = [
        trace
        for path in sorted((shared_data / "car-bench").glob("*_*.json"))
        if path.name not in ("carbench_state_to_vss.json",)
        for trace in load(path)
        if trace.failed
    ]
    return [*demos, *car[:10]]
