"""Fixtures that every test folder shares: where the real data lies, and what a missing part means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

pytest_plugins = ["tests.support.kafka", "tests.support.prometheus", "tests.support.browser"]

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def missing(what: str) -> NoReturn:
    """Under ``CI=true`` a missing broker, browser or data set fails; elsewhere it skips and says why."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: required under CI=true")
    pytest.skip(what)


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the settings of the person who runs it, nor the width of a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for name in list(os.environ):
        if name.upper().startswith("COCKPITHAT_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real runs, CAN logs and VSS trees beside the checkout."""
    if not _DATA.is_dir():
        missing("real data not found: expected ../shared/data beside the checkout")
    return _DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests wait for a broker come first: the others fill what processor time they leave."""
    waits = {item.path for item in items if item.get_closest_marker("kafka") is not None}
    items.sort(key=lambda item: item.path not in waits)
