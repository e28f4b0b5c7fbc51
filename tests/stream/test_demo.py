"""The demo: the whole way through the embedded broker and a real worker, and what counts as success."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cockpithat.contract.base import CloseReason, Outcome
from cockpithat.contract.reports import SessionStatus, SessionSummary
from cockpithat.formats import load_recordings
from cockpithat.resources import resource
from stream.demo import Expected, Results, expect


def test_the_demo_shows_every_category_and_exits_0() -> None:
    """A wrong setting in the surrounding shell does not reach it."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "stream.cli", "demo"],
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "COCKPITHAT_KAFKA__BOOTSTRAP_SERVERS": "nowhere.invalid:9092"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "everything expected arrived" in done.stderr
    for category in (
        "invention of new information",
        "planning failure",
        "plan adherence failure",
        "misinterpretation of tool output",
        "driver agent interaction",
        "environmental misgrounding",
        "safety safeguard failure",
        "cross domain contamination",
    ):
        assert category in done.stdout
    assert "10 sessions: 8 attributed, 2 passed; 2 alerts, 1 suspicion, " in done.stdout
    assert time.monotonic() - began < 60


@pytest.fixture(scope="module")
def expected() -> Expected:
    """What the library says about the demo's sessions."""
    files = sorted(resource("data/demo").glob("*.yaml"))
    return expect([recording for path in files for recording in load_recordings(path)])


def test_expectations_come_from_the_library(expected: Expected) -> None:
    assert len(expected.sessions) == 10
    assert len(expected.verdicts) == 8
    assert expected.suspicions == {"wipers-stay-off"}
    assert sum(verdict[3] in {"C", "D"} for verdict in expected.verdicts.values()) >= 2


def test_whatever_is_missing_is_named(expected: Expected) -> None:
    missing = Results().missing(expected)
    assert "wipers-stay-off: no suspicion" in missing
    assert "low-beam-off-at-night: no alert" in missing
    assert sum(line.endswith("no summary") for line in missing) == 10
    assert sum(line.endswith("no report") for line in missing) == 8


def test_a_dead_letter_or_a_wrong_status_is_no_success(expected: Expected) -> None:
    results = Results(dead_letters=2)
    assert results.wrong(expected) == ["2 records were dead-lettered"]
    summary = SessionSummary(
        summary_id="x",
        vehicle_id="v",
        session_id="low-beam-off-at-night",
        status=SessionStatus.PASSED,
        outcome=Outcome.FAILURE,
        failed=True,
        close_reason=CloseReason.END_EVENT,
        started_ts=0,
        ended_ts=1,
        steps=9,
    )
    wrong = Results(summaries={summary.session_id: summary}).wrong(expected)
    assert wrong == ["low-beam-off-at-night: summary says passed"]
