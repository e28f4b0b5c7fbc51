"""Figures of runs made by hand: every number can be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpithat.bench.compare import compare
from cockpithat.bench.datasets import Dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import Log
from cockpithat.bench.results import results
from cockpithat.bench.runner import Plan, header_of, run
from cockpithat.bench.samples import Sample
from cockpithat.bench.statistics import wilson
from cockpithat.bench.tables import show_comparison, show_results
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.trace import Trace
from tests.bench_harness.making import Scripted, Verdict, sample_of


def log_of(samples: list[Sample], method: Scripted, plan: Plan | None = None) -> Log:
    plan = plan or Plan()
    dataset = Dataset("whowhen", tuple(samples), "d", "0-based", "names")
    header = header_of(dataset, Path("data"), method, plan, calibration=None)
    return Log(Path(method.name), header, tuple(run(samples, method, plan)))


def always(agent: str | None, step: int | None) -> Scripted:
    return Scripted(lambda _: (agent, step))


def test_shares_distances_tokens_and_intervals() -> None:
    samples = [sample_of(f"s{i}", step=i) for i in range(5)]  # Planner 0, Coder 1, Planner 2, ...
    log = log_of(samples, always("Coder", 1))
    figures = results(log.header, log.records)
    assert (figures["n"], figures["agent"], figures["step"], figures["joint"]) == (5, 0.4, 0.2, 0.2)
    assert figures["step_within"] == {"1": 0.6, "2": 0.8, "3": 1.0, "4": 1.0, "5": 1.0}
    assert figures["official"] == {"agent": 0.4, "step": 0.2}
    assert figures["ci95"]["agent"] == wilson(2, 5)
    assert figures["chance"]["step"] == pytest.approx(1 / 6)
    assert (figures["tokens"], figures["tokens_per_trace"]) == (550, 110)
    assert figures["seconds"] >= 0 and figures["ground_truth_shown"] is False
    assert "category" not in figures and "by_asil" not in figures


def test_groups_are_shown_beside_the_whole() -> None:
    samples = [sample_of("a", 1, group="x"), sample_of("b", 1, group="x"), sample_of("c", 0, group="y")]
    log = log_of(samples, always("Coder", 1))
    figures = results(log.header, log.records)
    assert figures["step"] == pytest.approx(2 / 3)
    assert {name: part["step"] for name, part in figures["groups"].items()} == {"x": 1.0, "y": 0.0}


def test_rows_by_category_and_rating_with_equation_6() -> None:
    planning, plan = Category.PLANNING_FAILURE, Category.PLAN_ADHERENCE_FAILURE
    labels = [(planning, Asil.B), (planning, Asil.B), (plan, Asil.B), (plan, Asil.D), (plan, Asil.D)]
    samples = [sample_of(f"s{i}", 1, category=c, asil=a) for i, (c, a) in enumerate(labels)]
    log = log_of(samples, always("Coder", 1))  # which always says planning failure and B
    figures = results(log.header, log.records)
    assert (figures["category"], figures["asil"], figures["asil_n"]) == (0.4, 0.6, 5)
    assert (figures["asil_underrated"], figures["asil_overrated"]) == (0.4, 0.0)
    b, d = figures["by_asil"]["B"], figures["by_asil"]["D"]
    assert (b["n"], b["asil"], b["category"]) == (3, 1.0, pytest.approx(2 / 3))
    assert b["entropy_bits"] == pytest.approx(0.9183, abs=1e-4) and b["dominant_share"] == pytest.approx(
        2 / 3
    )
    assert (d["entropy_bits"], d["dominant_share"], d["asil"]) == (0.0, 1.0, 0.0)
    assert figures["by_category"]["plan_adherence_failure"]["n"] == 3
    assert "H, bit" in show_results(figures)


def test_repeats_count_as_one_run_and_their_spread_is_reported() -> None:
    calls: dict[str, int] = {}

    def wavering(trace: Trace) -> Verdict:
        calls[trace.session_id] = calls.get(trace.session_id, 0) + 1
        return ("Coder", 1) if trace.session_id == "firm" or calls[trace.session_id] != 2 else ("Planner", 2)

    log = log_of([sample_of("firm", 1), sample_of("soft", 1)], Scripted(wavering), Plan(repeat=3))
    figures = results(log.header, log.records)
    assert (figures["n"], figures["repeats"]) == (2, 3)
    assert figures["step"] == pytest.approx((1 + 2 / 3) / 2)
    stable = figures["stability"]
    assert (stable["runs"], stable["same_step"], stable["same_agent"]) == (2, 0.5, 0.5)
    assert stable["pairs_step"] == pytest.approx((1 + 1 / 3) / 2)
    assert stable["step_by_repeat"] == [1.0, 0.5, 1.0]
    assert figures["ci95"]["step"] == wilson(1 + 2 / 3, 2)


def test_agreement_with_a_second_annotator() -> None:
    samples = [
        sample_of("same", 1, second=("coder", 1)),
        sample_of("near", 1, second=("Coder", 2)),
        sample_of("far", 1, second=("Planner", 5)),
        sample_of("alone", 1),
    ]
    log = log_of(samples, always("Coder", 2))
    second = results(log.header, log.records)["second_annotator"]
    assert second["n"] == 3
    teams, method = second["annotators"], second["method"]
    assert (teams["agent"], teams["step"], teams["step_within_1"]) == pytest.approx((2 / 3, 1 / 3, 2 / 3))
    assert (method["agent"], method["step"]) == pytest.approx((2 / 3, 1 / 3))


def test_comparison_of_two_logs() -> None:
    samples = [sample_of(f"s{i}", 1 if i < 25 else 2) for i in range(40)]
    one, two = log_of(samples, always("Coder", 1)), log_of(samples[:-4], always("Planner", 2))
    comparison = compare(one, two)
    assert (comparison["n"], comparison["only_in_a"], comparison["only_in_b"]) == (36, 4, 0)
    row = comparison["figures"]["step"]
    assert (row["a"], row["b"], row["only_a"], row["only_b"]) == (25 / 36, 11 / 36, 25, 11)
    assert row["chi2"] == pytest.approx(10.889, abs=1e-3) and row["chi2_p"] == pytest.approx(
        0.00097, abs=1e-5
    )
    assert row["mcnemar_p"] == pytest.approx(0.02882, abs=1e-5)
    assert row["difference"] == pytest.approx(-14 / 36)
    low, high = row["ci95_difference"]
    assert low < -14 / 36 < high
    text = show_comparison(comparison)
    assert "4 runs are in one log only" in text and "<0.001" in text
    assert compare(one, one)["figures"]["step"]["mcnemar_p"] == 1.0


def test_runs_that_saw_the_truth_and_runs_that_did_not_are_told_apart() -> None:
    samples = [sample_of(f"s{i}", 1) for i in range(4)]
    shown = log_of(samples, always("Coder", 1), Plan(show_ground_truth=True))
    text = show_comparison(compare(log_of(samples, always("Coder", 1)), shown))
    assert "not comparable" in text


def test_logs_without_a_common_run_or_with_other_labels_are_refused() -> None:
    one = log_of([sample_of("a")], always("Coder", 1))
    with pytest.raises(BenchError, match="share no run"):
        compare(one, log_of([sample_of("b")], always("Coder", 1)))
    with pytest.raises(BenchError, match="other labels"):
        compare(one, log_of([sample_of("a", 3)], always("Coder", 1)))
