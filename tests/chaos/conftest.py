"""The full form runs with ``--chaos-full`` (``make test-chaos``), else a short form of the main test."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-full", action="store_true", help="the full chaos tests, about 15 minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: only with --chaos-full (make test-chaos)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--chaos-full", default=False):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@dataclass(frozen=True)
class Scale:
    """How much of everything there is."""

    sessions: int
    seconds: float  # within which the disturbed run's load is sent
    kills: int
    rebalances: int
    silence_ms: int  # wall clock that closes a session without an end; longer than any stall of the run
    seed: int = 20_260_301


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    """The full form's or the short form's."""
    if request.config.getoption("--chaos-full", default=False):
        return Scale(sessions=2_000, seconds=300, kills=20, rebalances=5, silence_ms=30_000)
    return Scale(sessions=112, seconds=14, kills=3, rebalances=1, silence_ms=8_000)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Collects figures, prints them, and appends them to the file that ``CHAOS_FIGURES`` names."""
    collected: dict[str, Any] = {"test": request.node.name}
    yield collected.update
    line = json.dumps(collected)
    print(line)
    if path := os.environ.get("CHAOS_FIGURES"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
