"""Rankings, conformal sets and their coverage, by construction and on the runs at hand."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpithat.bench.calibrating import calibration_of, ranked, split
from cockpithat.bench.datasets import Source, load_dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import Log
from cockpithat.bench.runner import Plan, header_of, run
from cockpithat.bench.statistics import binomial_interval
from cockpithat.calibration.conformal import Scale, Shape, jitter, score_of, steps_within, threshold
from cockpithat.calibration.coverage import check
from cockpithat.calibration.method import Calibrated, RangePolicy
from cockpithat.calibration.model import (
    Calibration,
    CalibrationError,
    Ranked,
    calibrate,
    read_calibration,
    write_calibration,
)
from cockpithat.calibration.ranking import contiguous, ranking_of
from cockpithat.contract.reports import Candidate, Report
from cockpithat.contract.trace import Trace
from cockpithat.methods.registry import create, names
from tests.bench_harness.making import Scripted, trace_of

LEVELS = (0.5, 0.8, 0.9)


def report(step: int | None, candidates: list[int]) -> Report:
    trace = trace_of("t")
    return Report.model_validate(
        {
            "report_id": "r",
            "trace_id": trace.trace_id,
            "vehicle_id": "v",
            "session_id": "t",
            "outcome": "failure",
            "method": "scripted",
            "analysts": "local",
            "step": step,
            "candidates": [Candidate(step=i, agent="x", score=0.5) for i in candidates],
            "provenance": {"product_version": "0", "rules_id": "r", "rules_version": "1"},
        }
    )


def test_a_ranking_holds_the_verdict_then_candidates_then_what_lies_near_them() -> None:
    assert ranking_of(report(4, [4, 0]), 8) == (4, 0, 1, 3, 5, 2, 6, 7)
    assert ranking_of(report(3, []), 6) == (3, 2, 4, 1, 5, 0)  # a cause comes before its effect
    assert ranking_of(report(None, []), 3) == (0, 1, 2)
    assert ranking_of(report(99, [2]), 3) == (2, 1, 0)  # a step that is not there is no step
    assert ranking_of(report(None, []), 0) == ()


@given(st.permutations(range(9)))
def test_every_beginning_of_a_contiguous_order_is_a_range(ranking: list[int]) -> None:
    order = contiguous(ranking)
    assert sorted(order) == list(range(9)) and order[0] == ranking[0]
    for size in range(1, 10):
        held = order[:size]
        assert max(held) - min(held) == size - 1


def test_a_range_grows_towards_what_is_ranked_better() -> None:
    assert contiguous((3, 1, 0, 2, 4, 5)) == (3, 2, 1, 0, 4, 5)
    assert contiguous(()) == ()


def test_the_threshold_is_the_conformal_quantile() -> None:
    assert threshold([3, 1, 2, 4], 0.5) == 3  # ceil(5 * 0.5) = 3rd smallest
    assert threshold([3, 1, 2, 4], 0.8) == 4
    assert threshold([3, 1, 2, 4], 0.9) == math.inf  # four runs cannot promise 90%
    with pytest.raises(ValueError, match="between 0 and 1"):
        threshold([1.0], 1.0)


@given(
    st.permutations(range(8)),
    st.integers(0, 7),
    st.floats(0.01, 9),
    st.text(max_size=8),
    st.sampled_from(list(Scale)),
)
def test_a_step_is_in_the_set_if_its_score_is_within_the_limit(
    order: list[int], step: int, limit: float, trace_id: str, scale: Scale
) -> None:
    score = score_of(order, step, trace_id, scale)
    held = steps_within(order, limit, trace_id, scale)
    assert 1 <= len(held) <= 8
    if abs(score - limit) > 1e-6 and step != order[0]:
        assert (step in held) == (score <= limit)


def test_jitter_is_even_and_depends_on_the_trace_only() -> None:
    values = [jitter(f"trace-{i}") for i in range(2_000)]
    assert all(0 <= value < 1 for value in values)
    assert sum(values) / len(values) == pytest.approx(0.5, abs=0.02)
    assert jitter("trace-1") == values[1]


def simulated(n: int, seed: int) -> list[Ranked]:
    """Traces of unequal length, whose decisive step is ranked first in a third of them."""
    dice = random.Random(seed)
    runs = []
    for i in range(n):
        length = dice.randrange(5, 60)
        ranking = dice.sample(range(length), length)
        place = 0 if dice.random() < 1 / 3 else min(int(dice.expovariate(0.15)), length - 1)
        runs.append(Ranked(f"{seed}-{i}", tuple(ranking), ranking[place]))
    return runs


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", list(Shape))
def test_coverage_is_exact_on_exchangeable_runs(scale: Scale, level: float, shape: Shape) -> None:
    """Not only at least the level: sets are no larger than they must be."""
    found = [
        check(
            calibrate(simulated(700, seed), method="m", analysts="local", scale=scale),
            simulated(700, 100 + seed),
            shape,
            level,
        )
        for seed in range(5)
    ]
    # Standard error of this mean: sqrt(0.25 * 2 / 700 / 5) = 0.012 at the level 0.5, less at the others.
    assert sum(f.share for f in found) / len(found) == pytest.approx(level, abs=0.03)
    assert sum(f.expected_split[0] <= f.hits <= f.expected_split[1] for f in found) >= 4


def test_coverage_is_not_kept_where_runs_are_of_another_kind() -> None:
    made = calibrate(simulated(400, 1), method="m", analysts="local")
    reversed_runs = [Ranked(r.trace_id, r.ranking[::-1], r.step) for r in simulated(400, 2)]
    assert not check(made, reversed_runs, Shape.SET, 0.8).kept


LOCAL = [name for name, analysts in names() if analysts == "local"]


@pytest.fixture(scope="module")
def whowhen_logs(shared_data: Path) -> dict[str, Log]:
    dataset = load_dataset(Source(shared_data / "whowhen"))
    return {name: _log(dataset, name) for name in LOCAL}


def _log(dataset, name: str) -> Log:  # type: ignore[no-untyped-def]
    method = create(name)
    header = header_of(dataset, Path("data"), method, Plan(), calibration=None)
    return Log(Path(name), header, tuple(run(dataset.samples, method, Plan())))


@pytest.mark.data
@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("level", LEVELS)
def test_coverage_on_unseen_whowhen_runs_lies_in_the_binomial_interval(
    whowhen_logs: dict[str, Log], name: str, level: float
) -> None:
    log = whowhen_logs[name]
    part, unseen = split(log.records, 0.5)
    assert not {r.id for r in part} & {r.id for r in unseen}
    found = check(calibration_of([log], part), ranked(unseen), Shape.RANGE, level)
    low, high = found.expected_split
    assert low <= found.hits <= high, found
    # One split of 123 runs is noisy on both sides; over many the level itself must come out.
    rows = list(log.records)
    total = 0
    for seed in range(60):
        random.Random(seed).shuffle(rows)
        half = len(rows) // 2
        made = calibration_of([log], rows[:half])
        total += check(made, ranked(rows[half:]), Shape.RANGE, level).hits
    low, high = binomial_interval(len(rows) - half, level)
    assert low <= total / 60 <= high
    assert total / 60 / (len(rows) - half) == pytest.approx(level, abs=0.03)


def test_a_better_ranking_needs_fewer_steps_for_the_same_coverage() -> None:
    runs = simulated(600, 3)
    blind = [Ranked(r.trace_id, tuple(sorted(r.ranking)), r.step) for r in runs]
    sizes = [
        check(calibrate(part[:300], method="m", analysts="l"), part[300:], Shape.SET, 0.8).mean_size
        for part in (runs, blind)
    ]
    assert sizes[0] < 0.7 * sizes[1]


def test_a_calibration_file_comes_back_as_it_went(tmp_path: Path) -> None:
    made = calibrate([*simulated(20, 1), Ranked("lost", (0, 1), 7)], method="m", analysts="local")
    assert made.scores[Shape.SET][-1] is None  # its step was not in the trace: never held
    write_calibration(made, tmp_path / "c.json")
    again = read_calibration(tmp_path / "c.json")
    assert again == made and again.digest == made.digest
    assert made.threshold(Shape.SET, 0.96) == math.inf


@pytest.mark.parametrize("content", ["", "{}", '{"format": "other"}', "[1]"])
def test_a_file_that_is_none_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(CalibrationError, match=r"c\.json: no calibration .*bench calibrate"):
        read_calibration(path)
    with pytest.raises(CalibrationError, match="cannot be read"):
        read_calibration(tmp_path / "absent.json")


def scripted_calibration(places: list[int], digest: str = "c0") -> tuple[Scripted, Calibration]:
    """A method that always says step 2, calibrated on runs whose decisive step had these places."""
    method = Scripted(lambda _: ("Planner", 2), digest=digest)
    ranking = ranking_of(report(2, []), 6)
    runs = [Ranked(f"c{i}", ranking, contiguous(ranking)[place - 1]) for i, place in enumerate(places)]
    return method, calibrate(runs, method="scripted", analysts="local", config_digest=digest)


async def test_a_narrow_range_leaves_a_report_as_sure_as_it_was() -> None:
    method, made = scripted_calibration([1] * 18 + [2] * 2)
    said = await Calibrated(method, made).attribute(trace_of("t"))
    assert said.step_range is not None
    assert said.step_range.steps[0] == 2 and len(said.step_range.steps) <= 2
    assert (said.step_range.coverage, said.step_range.calibration) == (0.8, made.digest)
    assert not said.contested and not said.review.required


async def test_a_range_over_most_of_the_trace_makes_a_report_contested() -> None:
    method, made = scripted_calibration([1, 2, 3, 4, 5, 6] * 5)
    said = await Calibrated(method, made).attribute(trace_of("t"))
    assert said.contested and said.review.required
    assert "of 6 steps" in said.review.reasons[-1]
    assert said.step_range is not None and said.step_range.first <= 2 <= said.step_range.last
    lenient = RangePolicy(max_share=1.0)
    assert not (await Calibrated(method, made, lenient).attribute(trace_of("t"))).contested


async def test_a_contested_vote_stays_contested_whatever_the_range_says() -> None:
    method, made = scripted_calibration([1] * 20)

    class Torn(Scripted):
        async def attribute(self, trace: Trace) -> Report:
            return (await super().attribute(trace)).model_copy(update={"contested": True})

    torn = Torn(method.verdict)
    assert (await Calibrated(torn, made).attribute(trace_of("t"))).contested


async def test_a_session_without_steps_has_no_range() -> None:
    method, made = scripted_calibration([1] * 20)
    assert (await Calibrated(method, made).attribute(trace_of("t", steps=0))).step_range is None


def test_a_calibration_of_another_method_or_configuration_is_refused() -> None:
    method, made = scripted_calibration([1] * 20)
    with pytest.raises(CalibrationError, match="not for longest-step"):
        Calibrated(create("longest-step"), made)
    with pytest.raises(CalibrationError, match="another configuration"):
        Calibrated(Scripted(method.verdict, digest="c1"), made)


def test_local_methods_stay_local_with_a_calibration() -> None:
    method = create("longest-step")
    trace = trace_of("t")
    runs = [Ranked(f"c{i}", ranking_of(method.judge(trace), 6), i % 6) for i in range(30)]  # type: ignore[attr-defined]
    made = calibrate(runs, method="longest-step", analysts="local")
    report = Calibrated(method, made).judge(trace)
    assert report.step_range is not None and report.method == "longest-step"


def test_logs_of_different_methods_make_no_calibration(whowhen_logs: dict[str, Log]) -> None:
    logs = [whowhen_logs["random"], whowhen_logs["longest-step"]]
    with pytest.raises(BenchError, match="one method"):
        calibration_of(logs, logs[0].records)
