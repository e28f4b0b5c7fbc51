"""``cockpithat suspicions``: passed sessions of files, screened as in the stream."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.attribution import LocalAttribution
from cockpithat.commands.inputs import Inputs
from cockpithat.commands.suspicions import Screened, write_suspicions
from cockpithat.contract.reports import Suspicion
from cockpithat.formats import load
from cockpithat.resources import resource

DEMO = sorted(resource("data/demo").glob("*.yaml"))


def run(
    files: list[Path], *, as_json: bool = True, settings: AttributionSettings | None = None
) -> tuple[str, Screened, list[str]]:
    told: list[str] = []
    out = StringIO()
    counts = write_suspicions(
        Inputs(files, tell=told.append), LocalAttribution(settings), out, as_json=as_json
    )
    return out.getvalue(), counts, told


def test_a_line_is_the_suspicion_that_the_stream_publishes_and_its_file() -> None:
    output, counts, told = run(DEMO)
    passed = [(path, trace) for path in DEMO for trace in load(path) if not trace.is_judged]
    local = LocalAttribution()
    expected = [(str(path), local.screen(trace)) for path, trace in passed]
    found = [
        (line.pop("file"), Suspicion.model_validate(line)) for line in map(json.loads, output.splitlines())
    ]
    assert found == [(path, suspicion) for path, suspicion in expected if suspicion is not None]
    assert [suspicion.session_id for _, suspicion in found] == ["wipers-stay-off"]
    assert (counts.sessions, counts.passed, counts.suspicions, counts.failures) == (10, len(passed), 1, 0)
    assert told == []


def test_the_table_names_the_hazard_and_what_was_not_screened() -> None:
    output, counts, _ = run(DEMO, as_json=False)
    assert "wipers-stay-off" in output and "1 suspicion" in output
    others = counts.sessions - counts.passed
    assert others > 0 and f"{others} did not pass" in output


def test_settings_count_as_in_the_worker() -> None:
    output, counts, _ = run(
        DEMO, settings=AttributionSettings.model_validate({"screening": {"false_alarms_per_1000": 0}})
    )
    assert (output, counts.suspicions) == ("", 0)


def test_a_bad_file_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type": "unheard of"}\n')
    output, counts, told = run([bad, *DEMO])
    assert counts.failures == 1 and counts.suspicions == 1 and output
    assert len(told) == 1 and "bad.jsonl" in told[0]


@pytest.mark.parametrize("as_json", [True, False])
def test_text_of_a_trace_cannot_move_the_cursor(tmp_path: Path, as_json: bool) -> None:
    source = next(path for path in DEMO if "wipers" in path.name)
    text = source.read_text().replace("scenario: wipers-stay-off", 'scenario: "wipers\\u001b[2J"')
    hostile = tmp_path / source.name
    hostile.write_text(text)
    output, counts, _ = run([hostile], as_json=as_json)
    assert (counts.sessions, counts.suspicions) == (1, 1) and "\x1b" not in output
