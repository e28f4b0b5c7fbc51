"""The methods that need no model, and the registry that names them all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.base import Asil
from cockpithat.contract.trace import Trace
from cockpithat.llm import LlmSettings, RoleSettings
from cockpithat.methods.agentrx.method import LocalAgentRx
from cockpithat.methods.falat.local_judge import LocalFalat, run
from cockpithat.methods.registry import (
    OptionError,
    UnknownMethodError,
    create,
    names,
    options_of,
    takes_ground_truth,
)
from cockpithat.panel.settings import PanelSettings
from tests.methods.test_wire import check

LOCAL = [name for name, analysts in names() if analysts == "local"]
WITH_MODEL = [name for name, analysts in names() if analysts == "llm"]


def endpoint() -> AttributionSettings:
    """An endpoint that nobody calls."""
    role = RoleSettings(base_url="http://127.0.0.1:9/v1", model="m")
    return AttributionSettings(panel=PanelSettings(llm=LlmSettings(analyst=role)))


@pytest.mark.parametrize("name", LOCAL)
def test_each_local_method_gives_a_valid_report_and_the_same_again(
    name: str, whowhen: list[Trace], demos: list[Trace]
) -> None:
    method: Any = create(name, "local")
    for trace in (*whowhen, *demos):
        report = method.judge(trace)
        check(trace, report)
        assert report.step is not None and report.agent is not None and report.degraded is None
        again = create(name, "local").judge(trace)  # type: ignore[attr-defined]
        assert report.model_copy(update={"seconds": 0.0}) == again.model_copy(update={"seconds": 0.0})
        assert report == asyncio.run(method.attribute(trace)).model_copy(update={"seconds": report.seconds})


@pytest.mark.parametrize("name", ["echo", "agentrx", "falat"])
def test_on_cockpit_sessions_they_find_what_the_hazard_rules_point_at(name: str, demos: list[Trace]) -> None:
    """The demo's sessions have observable causes: a method that looks at evidence meets most of them."""
    method: Any = create(name, "local")
    local = LocalAttribution()
    severe = [trace for trace in demos if local.judge(trace).severity.floor in (Asil.C, Asil.D)]
    assert len(severe) >= 3
    agree = sum(method.judge(trace).agent == local.judge(trace).agent for trace in severe)
    assert 2 * agree > len(severe)


@pytest.mark.parametrize("switch", ["hierarchy", "prior", "transitions"])
def test_local_falat_has_the_same_ablations(switch: str, demos: list[Trace]) -> None:
    full, without = LocalFalat(), LocalFalat(options={switch: False})
    assert full.provenance.config_digest != without.provenance.config_digest
    for trace in demos:
        check(trace, without.judge(trace))


def test_local_constraints_use_the_tool_schemas_they_are_given(tmp_path: Path, demos: list[Trace]) -> None:
    trace = next(t for t in demos if any(step.tool_calls for step in t.steps))
    name = next(step.tool_calls[0].name for step in trace.steps if step.tool_calls)
    schema = {"type": "object", "required": ["no_such_argument"], "properties": {"no_such_argument": {}}}
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({name: schema}), encoding="utf-8")
    plain = LocalAgentRx(options={"dynamic": False})
    given = LocalAgentRx(options={"dynamic": False, "tool_schemas": path})
    assert "lacks no_such_argument" in given.judge(trace).hypotheses[0].rationale
    assert "lacks" not in plain.judge(trace).hypotheses[0].rationale
    moved = tmp_path / "elsewhere.json"
    moved.write_bytes(path.read_bytes())
    same = LocalAgentRx(options={"dynamic": False, "tool_schemas": moved})
    assert same.provenance == given.provenance != plain.provenance, "a file counts by content"


def test_a_coroutine_that_waits_is_not_run_as_a_local_judgement() -> None:
    with pytest.raises(RuntimeError, match="waited"):
        run(asyncio.sleep(0))


def test_every_method_of_the_issue_is_registered() -> None:
    assert {"cockpithat", "echo", "agentrx", "falat", "random", "longest-step", "most-characters"} <= set(
        LOCAL
    )
    assert set(WITH_MODEL) == {
        *("cockpithat", "all-at-once", "step-by-step", "binary-search"),
        *("echo", "chief", "agentrx", "falat", "cascade"),
    }


@pytest.mark.parametrize("name", WITH_MODEL)
def test_each_method_with_a_model_says_what_it_needs_and_takes(name: str) -> None:
    with pytest.raises(ValueError, match=r"panel\.llm\.analyst\.base_url"):
        create(name, "llm")
    method = create(name, "llm", endpoint())
    assert (method.name, method.analysts) == (name, "llm")
    assert takes_ground_truth(method)
    for field in options_of(name, "llm").model_fields.values():
        assert field.description


def test_an_option_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(
        OptionError, match=r"^method 'falat', option 'windows': .*it takes .*window, "
    ) as caught:
        create("falat", "llm", endpoint(), {"windows": 3})
    assert "\n" not in str(caught.value)
    with pytest.raises(OptionError, match="no options"):
        create("random", "local", None, {"seed": 1})
    with pytest.raises(OptionError, match=r"tools\.json"):
        create("agentrx", "local", None, {"tool_schemas": "missing/tools.json"})
    with pytest.raises(UnknownMethodError, match="falat \\(local\\)"):
        create("nonsense", "local")


def test_options_change_a_reports_identity_and_bounds_do_not() -> None:
    def digest(**options: Any) -> str:
        return create("falat", "llm", endpoint(), options).provenance.config_digest  # type: ignore[attr-defined]

    assert digest() == digest(seconds=5, trace_tokens=9_000) != digest(window=6)
