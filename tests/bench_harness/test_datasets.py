"""Loaders on the real data: counts, index base, names, and the figures that are known of these parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpithat.analysis.roles import agent_key
from cockpithat.bench.datasets import Dataset, Source, load_dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.results import figures_of
from cockpithat.bench.runner import Plan, run
from cockpithat.contract.base import Category
from cockpithat.methods.registry import create
from cockpithat.simulator import SimulateSettings, simulate, write

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def whowhen(shared_data: Path) -> Dataset:
    second = shared_data / "agentrx" / "magentic_ground_truth.json"
    return load_dataset(Source(shared_data / "whowhen", second=second))


def part(dataset: Dataset, group: str) -> Dataset:
    samples = tuple(sample for sample in dataset.samples if sample.group == group)
    return Dataset(dataset.format, samples, dataset.digest, dataset.index_base, dataset.name_rule)


def test_whowhen_has_both_splits_and_counts_from_0(whowhen: Dataset) -> None:
    assert whowhen.groups == ("algorithm-generated", "hand-crafted")
    assert [len(part(whowhen, group).samples) for group in whowhen.groups] == [84, 39]
    silent = {
        sample.id
        for sample in whowhen.samples
        if agent_key(sample.trace.steps[sample.target.step].agent) != agent_key(sample.target.agent)
    }
    # Known dirt of the labels; with any other index base most runs would be here.
    assert silent == {"algorithm-generated/14", "hand-crafted/20", "hand-crafted/49"}
    assert len({sample.id for sample in whowhen.samples}) == 123


@pytest.mark.parametrize(
    ("method", "group", "agent", "step"),
    [
        ("longest-step", "algorithm-generated", 53.6, 26.2),
        ("longest-step", "hand-crafted", 56.4, 20.5),
        ("most-characters", "algorithm-generated", 65.5, 28.6),
        ("most-characters", "hand-crafted", 48.7, 15.4),
        ("chance", "algorithm-generated", 29.5, 11.9),
        ("chance", "hand-crafted", 28.4, 4.2),
    ],
)
def test_the_trivial_baselines_give_their_known_figures(
    whowhen: Dataset, method: str, group: str, agent: float, step: float
) -> None:
    name = "random" if method == "chance" else method
    figures = figures_of(run(part(whowhen, group).samples, create(name), Plan()))
    found = figures["chance"] if method == "chance" else figures
    assert (round(100 * found["agent"], 1), round(100 * found["step"], 1)) == (agent, step)


def test_one_draw_of_the_random_method_lies_where_the_expectation_says(whowhen: Dataset) -> None:
    figures = figures_of(run(whowhen.samples, create("random"), Plan()))
    for name in ("agent", "step"):
        low, high = figures["ci95"][name]
        assert low <= figures["chance"][name] <= high


def test_the_scripts_rule_lifts_a_random_guess_on_hand_crafted_runs(whowhen: Dataset) -> None:
    figures = figures_of(run(part(whowhen, "hand-crafted").samples, create("random"), Plan()))
    assert 100 * figures["chance"]["step"] == pytest.approx(4.2, abs=0.05)
    assert 100 * figures["chance"]["official_step"] == pytest.approx(9.3, abs=0.05)


def test_two_teams_agree_on_the_30_runs_at_hand_as_little_as_on_all_44(whowhen: Dataset) -> None:
    second = figures_of(run(whowhen.samples, create("longest-step"), Plan()))["second_annotator"]
    assert second["n"] == 30  # hand-crafted ones only, though questions recur among the generated
    low, high = second["annotators"]["ci95"]["agent"]
    assert low <= 27 / 44 <= high
    low, high = second["annotators"]["ci95"]["step"]
    assert low <= 16 / 44 <= high


def test_tau_runs_count_from_1_with_the_system_prompt(shared_data: Path) -> None:
    dataset = load_dataset(Source(shared_data / "agentrx"))
    assert (dataset.format, len(dataset.samples)) == ("agentrx", 12)
    labels = json.loads((shared_data / "agentrx" / "tau_ground_truth.json").read_text(encoding="utf-8"))
    first = next(label for label in labels if label["trajectory_id"] == 2)
    assert first["root_cause"]["failure_id"] == 2 and first["failures"][1]["step_number"] == 7
    sample = dataset.samples[0]
    assert (sample.id, sample.target.step) == ("tau_trajectories/2", 6)
    assert sample.trace.steps[0].mode == "system"
    assert sample.target.failures == (2, 6)
    assert sample.target.category == Category.MISINTERPRETATION_OF_TOOL_OUTPUT
    odd = [
        s.id
        for s in dataset.samples
        if agent_key(s.trace.steps[s.target.step].agent) != agent_key(s.target.agent)
    ]
    assert odd == ["tau_trajectories/80"]  # its label names the step of the user that answers the assistant


def test_hand_crafted_runs_can_be_scored_against_the_second_team(shared_data: Path) -> None:
    labels = shared_data / "agentrx" / "magentic_ground_truth.json"
    dataset = load_dataset(Source(shared_data / "whowhen" / "hand-crafted", labels=labels), "agentrx")
    assert len(dataset.samples) == 30
    assert dataset.notes == ("9 runs have no label and are left out",)


def test_cockpitbench_takes_failed_sessions_and_the_annotators_consensus(tmp_path: Path) -> None:
    settings = SimulateSettings(traces=4, passed=2, silent_hazards=1, seed=5)
    write(simulate(settings), tmp_path, settings)
    dataset = load_dataset(Source(tmp_path))
    assert (dataset.format, len(dataset.samples)) == ("cockpitbench", 4)
    assert dataset.notes == ("3 sessions did not fail and are left out",)
    for sample in dataset.samples:
        assert sample.target.category is not None and sample.target.asil is not None
        assert sample.trace.steps[sample.target.step].agent == sample.target.agent
    assert any(sample.second for sample in dataset.samples)


def test_unusable_data_sets_say_what_to_do(tmp_path: Path, shared_data: Path) -> None:
    with pytest.raises(BenchError, match="no such file"):
        load_dataset(Source(tmp_path / "absent"))
    with pytest.raises(BenchError, match="--format"):
        load_dataset(Source(tmp_path))
    with pytest.raises(BenchError, match="choose from auto, whowhen"):
        load_dataset(Source(tmp_path), "whatever")
    with pytest.raises(BenchError, match="--labels"):
        load_dataset(Source(shared_data / "car-bench" / "tools.json"), "agentrx")


def test_another_byte_of_data_is_another_digest(shared_data: Path, tmp_path: Path) -> None:
    source = min((shared_data / "whowhen" / "hand-crafted").glob("*.json"))
    copy = tmp_path / source.name
    copy.write_bytes(source.read_bytes())
    assert load_dataset(Source(copy)).digest == load_dataset(Source(source)).digest
    copy.write_bytes(source.read_bytes() + b"\n")
    assert load_dataset(Source(copy)).digest != load_dataset(Source(source)).digest
