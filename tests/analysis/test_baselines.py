"""The zero-training floor on the real runs at hand: 84 and 39 runs, strict scoring."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cockpithat.attribution import LocalAttribution
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.labels import GoldLabel, read_whowhen_labels
from cockpithat.methods.baselines import LongestStep, MostCharacters, RandomGuess
from cockpithat.methods.registry import UnknownMethodError, create, names

pytestmark = pytest.mark.data
Rows = list[tuple[Trace, GoldLabel]]


@pytest.fixture(scope="session")
def runs(shared_data: Path) -> dict[str, Rows]:
    """Both splits; labels are read apart from the traces."""
    found: dict[str, Rows] = {}
    for split in ("algorithm-generated", "hand-crafted"):
        rows: Rows = []
        for path in sorted((shared_data / "whowhen" / split).glob("*.json")):
            rows += zip(load(path), read_whowhen_labels(path), strict=True)
        found[split] = rows
    assert {split: len(rows) for split, rows in found.items()} == {
        "algorithm-generated": 84,
        "hand-crafted": 39,
    }
    return found


def accuracy(judge: Callable[[Trace], Report], rows: Rows) -> tuple[float, float]:
    """Agent and step, percent, to one decimal."""
    reports = [(judge(trace), label) for trace, label in rows]
    agent = sum(label.names_agent(report.agent) for report, label in reports)
    step = sum(report.step == label.step for report, label in reports)
    return round(100 * agent / len(rows), 1), round(100 * step / len(rows), 1)


def test_the_baselines_give_the_published_figures(runs: dict[str, Rows]) -> None:
    longest, most = LongestStep().judge, MostCharacters().judge
    assert accuracy(longest, runs["algorithm-generated"]) == (53.6, 26.2)
    assert accuracy(longest, runs["hand-crafted"]) == (56.4, 20.5)
    assert accuracy(most, runs["algorithm-generated"]) == (65.5, 28.6)
    assert accuracy(most, runs["hand-crafted"]) == (48.7, 15.4)


def test_random_is_as_good_as_chance(runs: dict[str, Rows]) -> None:
    """The expectation of a uniform draw, and draws of the method itself that stay near it."""
    expected = {"algorithm-generated": (29.5, 11.9), "hand-crafted": (28.4, 4.2)}
    guess = RandomGuess().judge
    for split, rows in runs.items():
        agents = [
            sum(label.names_agent(a) for a in {s.agent for s in trace.steps})
            / len({s.agent for s in trace.steps})
            for trace, label in rows
        ]
        steps = [1 / len(trace.steps) for trace, _ in rows]
        chance = round(100 * sum(agents) / len(rows), 1), round(100 * sum(steps) / len(rows), 1)
        assert chance == expected[split]
        draws = [
            accuracy(guess, [(t.model_copy(update={"trace_id": f"{t.trace_id}{seed}"}), g) for t, g in rows])
            for seed in range(10)
        ]
        assert sum(agent for agent, _ in draws) / 10 == pytest.approx(chance[0], abs=6)
        assert sum(step for _, step in draws) / 10 == pytest.approx(chance[1], abs=4)


def test_the_local_panel_is_never_below_the_floor(runs: dict[str, Rows]) -> None:
    """At least the better of both baselines, agent and step, on both splits."""
    judge = LocalAttribution().judge
    agent, step = accuracy(judge, runs["algorithm-generated"])
    assert agent >= 65.5 and step >= 28.6
    agent, step = accuracy(judge, runs["hand-crafted"])
    assert agent >= 56.4 and step >= 20.5


def test_labels_do_not_reach_the_verdict(runs: dict[str, Rows], shared_data: Path, tmp_path: Path) -> None:
    """Other labels and another reference answer in the file, the same report."""
    source = shared_data / "whowhen" / "algorithm-generated" / "1.json"
    run = json.loads(source.read_text())
    run.update(mistake_agent="Nobody", mistake_step="3", mistake_reason="none", ground_truth="42")
    forged = tmp_path / "1.json"
    forged.write_text(json.dumps(run))
    local = LocalAttribution()

    def verdict(path: Path) -> dict[str, object]:
        (trace,) = load(path)
        # Events are digested whole; where they lie is the one thing that may differ.
        return local.judge(trace).model_dump(exclude={"seconds"})

    assert verdict(forged) == verdict(source)


def test_text_only_runs_are_unrated_and_say_when_nothing_concrete_was_found(runs: dict[str, Rows]) -> None:
    judge = LocalAttribution().judge
    for rows in runs.values():
        for trace, _ in rows:
            report = judge(trace)
            assert report.asil.value == "unrated"
            assert report.summary
            assert report.candidates[0].step == report.step


def test_methods_go_by_name_and_an_unknown_one_names_the_others() -> None:
    assert ("cockpithat", "local") in names()
    assert create("longest-step").name == "longest-step"
    with pytest.raises(UnknownMethodError, match="most-characters"):
        create("oracle")
