"""JSON, dot and HTML of a trace's graph."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from cockpithat.contract.trace import Trace
from cockpithat.graph import graph_of
from cockpithat.graph.render import to_dot, to_html, to_json
from tests.graph.making import steps
from tests.graph.pages import ATTACKS, DOOR, cockpit_trace, hostile_trace, verdict


def test_json_holds_steps_edges_shape_and_the_verdicts_step() -> None:
    record = json.loads(to_json(cockpit_trace(), verdict()))
    assert [step["agent"] for step in record["steps"]][:3] == ["driver", "Director", "VehicleAgent"]
    assert record["steps"][2]["changes"][0]["path"] == DOOR
    assert {(edge["source"], edge["target"]) for edge in record["edges"]} >= {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert record["edges"][0]["evidence"] == [{"signal": "control", "what": "Director answers driver"}]
    assert (record["verdict"], record["lost_to_lookback"]) == (2, 0)
    assert json.loads(to_json(cockpit_trace()))["verdict"] is None


def test_a_graph_that_came_with_the_trace_is_the_one_shown() -> None:
    trace = cockpit_trace()
    graph = graph_of(trace)
    kept = graph.model_copy(update={"edges": graph.edges[:1]})
    assert len(json.loads(to_json(trace.model_copy(update={"graph": kept})))["edges"]) == 1


def test_dot_has_a_cluster_per_agent_and_marks_the_verdict() -> None:
    dot = to_dot(cockpit_trace(), verdict())
    assert dot.count("subgraph cluster_") == 4
    assert re.search(r's1 -> s2 \[color="#7a45b3", style=bold, tooltip="1 → 2\\ncontrol: Director calls', dot)
    assert re.search(r's2 \[label="2 tool_call.*penwidth=3\]', dot)


def test_dot_strings_cannot_be_broken_out_of() -> None:
    """Outside of quoted strings there is nothing but our own words."""
    dot = to_dot(hostile_trace())
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot)
    assert bare.count("digraph") == 1
    assert "owned" not in bare
    assert bare.count("{") == bare.count("}")


@pytest.mark.skipif(
    shutil.which("dot") is None, reason="Graphviz is not installed: an extra check where it is"
)
@pytest.mark.parametrize("trace", [cockpit_trace(), hostile_trace()], ids=["cockpit", "hostile"])
def test_graphviz_reads_the_dot(trace: Trace) -> None:
    drawn = subprocess.run(["dot", "-Tsvg"], input=to_dot(trace), capture_output=True, text=True, check=False)
    assert drawn.returncode == 0, drawn.stderr
    assert "<svg" in drawn.stdout


class _Page(HTMLParser):
    """Every tag and attribute of a page, and the data block."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.data = ""
        self._in_data = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._in_data = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False


def test_the_page_needs_nothing_from_anywhere() -> None:
    page = _Page(to_html(cockpit_trace(), verdict()))
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    names = [name for name, _ in page.attributes]
    assert "src" not in names
    assert all(value.startswith("#step-") for name, value in page.attributes if name == "href")
    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def test_the_page_names_the_verdict_and_says_it_is_indicative() -> None:
    html = to_html(cockpit_trace(), verdict())
    assert "safety safeguard failure · ASIL C · confidence 0.61 · contested" in html
    assert "Indicative rating" in html
    assert "A door opens at speed" in html
    assert html.count('class="row verdict-row"') == 1
    assert 'class="verdict"' not in to_html(cockpit_trace())


def test_hostile_text_stays_text_in_the_page() -> None:
    calm, hostile = _Page(to_html(cockpit_trace())), _Page(to_html(hostile_trace()))
    assert set(hostile.tags) <= set(calm.tags) | {"rect", "span", "p", "b"}
    assert hostile.tags.count("script") == 2
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    told = json.loads(hostile.data)["steps"][0]["text"]
    for attack in ATTACKS[:-1]:
        assert attack in told
    assert "\x00" not in told


def test_very_long_texts_are_cut_and_the_page_says_so() -> None:
    trace = cockpit_trace().model_copy(update={"steps": tuple(steps(("A", "x" * 300_000), ("B", "y")))})
    html = to_html(trace)
    assert len(html) < 100_000
    assert "280,000 more characters are not shown" in html


def test_a_trace_without_steps_has_a_page_too() -> None:
    empty = cockpit_trace().model_copy(update={"steps": ()})
    assert "<main" in to_html(empty)
    assert json.loads(to_json(empty))["edges"] == []
    assert to_dot(empty).startswith("digraph")


def test_a_verdict_outside_the_trace_marks_no_step() -> None:
    report = verdict().model_copy(update={"step": 99})
    assert 'class="row verdict-row"' not in to_html(cockpit_trace(), report)
    assert "no step" in to_html(cockpit_trace(), report)
