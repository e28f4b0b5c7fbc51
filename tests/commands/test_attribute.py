"""``cockpithat attribute`` and ``graph``: what a person and a program read, and what a bad file does."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cockpithat.attribution import LocalAttribution
from cockpithat.commands.attribute import Attribution, judge, write_reports
from cockpithat.commands.graph import RENDERERS, choose_session
from cockpithat.commands.inputs import Inputs
from cockpithat.commands.terminal import counted, printable, reason
from cockpithat.contract.reports import Report, ReviewDecision
from cockpithat.contract.trace import Trace
from cockpithat.formats import FormatError, load
from cockpithat.methods.registry import create
from cockpithat.resources import resource

DEMO = sorted(resource("data/demo").glob("*.yaml"))
REQUIRED = {
    "session_id", "method", "analysts", "step", "agent", "category", "asil", "confidence", "contested",
    "review", "candidates", "evidence", "tokens", "seconds",
}  # fmt: skip

# What each session of the demo is meant to show: the one place where it is written down.
MEANT = {
    "low-beam-off-at-night": ("VehicleAgent", 4, "safety_safeguard_failure"),
    "door-opens-before-standstill": ("VehicleAgent", 6, "plan_adherence_failure"),
    "charger-that-does-not-exist": ("NavigationAgent", 5, "invention_of_new_information"),
    "trip-planned-without-charging": ("Director", 4, "planning_failure"),
    "tyre-pressure-read-as-fine": ("VehicleAgent", 4, "misinterpretation_of_tool_output"),
    "correction-not-heard": ("Director", 3, "driver_agent_interaction"),
    "route-into-flooded-road": ("NavigationAgent", 5, "environmental_misgrounding"),
    "climate-memory-sets-the-volume": ("MemoryAgent", 2, "cross_domain_contamination"),
}


def run(
    files: list[Path], *, as_json: bool = True, everything: bool = False
) -> tuple[str, Attribution, list[str]]:
    """Output, counts and what was told, of one run of the command."""
    told: list[str] = []
    out = StringIO()
    counts = write_reports(
        Inputs(files, tell=told.append), create("cockpithat"), out, as_json=as_json, everything=everything
    )
    return out.getvalue(), counts, told


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_json_lines_hold_a_full_report_for_each_failed_session() -> None:
    output, counts, told = run(DEMO)
    lines = lines_of(output)
    assert told == []
    assert (counts.sessions, counts.judged, counts.failures) == (10, 8, 0)
    assert {line["session_id"] for line in lines} == set(MEANT)
    for line in lines:
        assert line.keys() >= REQUIRED
        assert {"step", "agent", "score"} <= line["candidates"][0].keys()
        assert line["tokens"] == {"input": 0, "output": 0}
        assert Path(line["file"]) in DEMO
        Report.model_validate(line)


def test_all_judges_sessions_that_passed_too() -> None:
    output, counts, _ = run(DEMO, everything=True)
    assert counts.judged == 10
    assert {line["session_id"] for line in lines_of(output)} > set(MEANT)


def test_the_local_analysts_find_what_the_demo_sessions_show() -> None:
    """Not proof of accuracy: the sessions are the project's own, eight of them, written to be clear."""
    found = {line["session_id"]: line for line in lines_of(run(DEMO)[0])}
    agents = sum(found[name]["agent"] == agent for name, (agent, _, _) in MEANT.items())
    steps = sum(found[name]["step"] == step for name, (_, step, _) in MEANT.items())
    categories = sum(found[name]["category"] == category for name, (_, _, category) in MEANT.items())
    assert len({category for _, _, category in MEANT.values()}) == 8
    assert (agents, categories) >= (7, 7)
    assert steps >= 6
    assert sum(line["asil"] in {"C", "D"} for line in found.values()) >= 2


def test_a_bad_file_is_told_and_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"history": [', encoding="utf-8")
    output, counts, told = run([bad, DEMO[0], tmp_path / "absent.json", DEMO[1]])
    assert len(lines_of(output)) == 2
    assert counts.failures == 2
    assert [line.startswith(str(tmp_path)) for line in told] == [True, True]


def test_a_session_that_a_method_fails_on_does_not_stop_the_others() -> None:
    class Fragile:
        name = analysts = "fragile"

        async def attribute(self, trace: Trace) -> Report:
            if trace.session_id.startswith("door"):
                raise KeyError("secret text of the trace")
            return LocalAttribution().judge(trace)

    told: list[str] = []
    counts = Attribution()
    judged = list(judge(Inputs(DEMO, tell=told.append), Fragile(), counts))
    assert len(judged) == 7
    assert counts.failures == 1
    assert "KeyError" in told[0] and "secret" not in told[0]


def test_the_table_names_session_agent_category_and_rating() -> None:
    output, _, _ = run(DEMO, as_json=False)
    for name, (agent, _, _) in MEANT.items():
        assert name in output
        assert agent in output
    assert "indicative" in output
    assert "10 sessions read, 8 judged" in output


def test_the_table_says_why_a_person_should_look() -> None:
    report = LocalAttribution().judge(next(iter(load(DEMO[0]))))
    doubt = "a hazard of ASIL C can't be excluded: Someone drives blind"
    asks = report.model_copy(
        update={
            "summary": f"{report.summary.removesuffix(' A person should look.')} A person should look.",
            "review": ReviewDecision(required=True, reasons=("contested", doubt)),
        }
    )
    assert reason(asks).endswith(f"A person should look: {doubt}; contested.")
    assert reason(asks).count("A person should look") == 1
    asks_nobody = asks.model_copy(update={"summary": "Clear.", "review": ReviewDecision()})
    assert reason(asks_nobody) == "Clear."


def test_a_long_verdict_does_not_cut_the_reasons_to_look_away() -> None:
    report = LocalAttribution().judge(next(iter(load(DEMO[0]))))
    long = report.model_copy(
        update={"summary": "word " * 500, "review": ReviewDecision(required=True, reasons=("contested",))}
    )
    assert reason(long).endswith("A person should look: contested.")


def test_one_is_not_counted_in_the_plural() -> None:
    assert (counted(1, "suspicion"), counted(2, "suspicion"), counted(0, "alert")) == (
        "1 suspicion",
        "2 suspicions",
        "0 alerts",
    )


def test_trace_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\u202ed\x07") == "a [31mb c d"
    assert len(printable("x" * 1000, 50)) == 50


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_a_graph_is_rendered_in_each_form(name: str) -> None:
    text = RENDERERS[name](choose_session(DEMO[0], load(DEMO[0]), None), None)
    assert "VehicleAgent" in text
    assert len(text) > 500


def test_a_file_with_several_sessions_asks_which(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    chat = [{"role": "user", "content": "hi"}]
    path.write_text(json.dumps([{"id": name, "messages": chat} for name in ("one", "two")]), encoding="utf-8")
    with pytest.raises(FormatError, match=r"2 sessions.*--session: one, two"):
        choose_session(path, load(path), None)
    assert choose_session(path, load(path), "two").session_id == "two"
    with pytest.raises(FormatError, match="no session 'three'"):
        choose_session(path, load(path), "three")


@pytest.mark.data
def test_the_longest_real_runs_are_judged(shared_data: Path) -> None:
    """305,000 characters in a run, 88,000 in a step."""
    files = sorted((shared_data / "whowhen" / "hand-crafted").glob("*.json"), key=lambda p: -p.stat().st_size)
    output, counts, told = run(files[:3])
    assert told == []
    assert counts.judged == 3
    for line in lines_of(output):
        assert line["seconds"] < 20


def test_several_sessions_at_a_time_come_out_in_file_order_and_the_method_is_closed() -> None:
    class Slow:
        name = analysts = "slow"
        running = most = 0
        closed = False

        async def attribute(self, trace: Trace) -> Report:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.02 if trace.session_id.startswith("low") else 0)
            self.running -= 1
            return LocalAttribution().judge(trace)

        async def close(self) -> None:
            self.closed = True

    method = Slow()
    judged = list(judge(Inputs(DEMO), method, Attribution(), jobs=3))
    assert [item.path for item in judged] == DEMO[:8]
    assert method.most == 3
    assert method.closed
