"""CockpitBench as published, made once for all tests of this folder."""

from __future__ import annotations

import pytest

from cockpithat.simulator import SimulatedSession, SimulateSettings, simulate


@pytest.fixture(scope="session")
def bench() -> list[SimulatedSession]:
    """The 212 failed sessions of seed 0."""
    return list(simulate(SimulateSettings(seed=0)))


@pytest.fixture(scope="session")
def unflagged() -> list[SimulatedSession]:
    """Sessions without a failure flag: 24 that go well and 16 silent hazards."""
    return list(simulate(SimulateSettings(traces=0, passed=24, silent_hazards=16, seed=3)))
