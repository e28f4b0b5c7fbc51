"""The ranker: readable weights, what moved a score, the floor, and what it must not depend on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.reporting import alert_for
from cockpithat.analysis.rules import RulesError
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.base import Asil, Category
from cockpithat.formats.registry import load
from cockpithat.ranking.carbench import read_carbench_labels
from cockpithat.ranking.features import COCKPIT, DIALOGUE, StepFeatures
from cockpithat.ranking.model import DomainWeights, RankerWeights, load_ranker, rank_features
from cockpithat.resources import resource
from cockpithat.simulator.session import held_out_families
from tests.analysis.traces import lights_off, step, trace

MISREAD = (
    step("Driver", "Cruise at 120, please."),
    step(
        "NavigationAgent",
        "Looking.",
        call=("get_limit", {"at": "ahead"}),
        output=("get_limit", {"limit_kmh": 80}),
    ),
    step("NavigationAgent", "We may drive 120 (limit_kmh 120)."),
    step("VehicleAgent", "", intended={"Vehicle.ADAS.CruiseControl.SpeedSet": 120}, call=("set", {"v": 120})),
    step("Driver", "Why are we so fast?"),
    step("Director", "Sorry about that."),
)


def features(*rows: dict[str, float]) -> StepFeatures:
    return StepFeatures(COCKPIT, tuple(range(len(rows))), tuple(f"a{i}" for i in range(len(rows))), rows)


def test_a_reading_stated_otherwise_than_read_is_where_it_began() -> None:
    report = LocalAttribution().judge(trace(*MISREAD))
    assert (report.step, report.agent) == (2, "NavigationAgent")
    assert report.category is Category.MISINTERPRETATION_OF_TOOL_OUTPUT
    assert any(e.kind == "reading_changed" and e.step == 2 for e in report.evidence)


def test_the_ranker_says_which_evidence_moved_the_score() -> None:
    report = LocalAttribution().judge(trace(*MISREAD))
    (vote,) = [h for h in report.hypotheses if h.analyst == "ranker"]
    assert "clue_reading_changed +" in vote.rationale


def test_names_of_agents_do_not_matter() -> None:
    renamed = [{**s, "agent": {"NavigationAgent": "Zed9"}.get(s["agent"], s["agent"])} for s in MISREAD]
    report = LocalAttribution().judge(trace(*renamed))
    assert (report.step, report.agent) == (2, "Zed9")


def test_scores_are_sums_of_weights_times_values() -> None:
    weights = DomainWeights(steps={"x": 2.0, "y": -1.0}, agents={}, mix=0.0)
    ranking = rank_features(features({"x": 1.0}, {"y": 1.0}, {}), weights)
    assert ranking.step == 0
    assert ranking.by_step[0] > ranking.by_step[2] > ranking.by_step[1]
    assert [m.feature for m in ranking.moved(0)] == ["x", "y"]


def test_the_file_in_force_is_plain_numbers_by_name() -> None:
    content = json.loads(resource("data/ranker/weights.json").read_text(encoding="utf-8"))
    weights = RankerWeights.model_validate(content)
    assert set(weights.domains) == {DIALOGUE, COCKPIT}
    assert "families" in weights.trained_on[COCKPIT] and "12 families" in weights.trained_on[COCKPIT]
    assert len(held_out_families()) == 4


def test_other_weights_are_another_configuration(tmp_path: Path) -> None:
    content = load_ranker().weights.model_dump(mode="json")
    content["domains"][COCKPIT]["steps"] = {"opening": 9.0}
    own = tmp_path / "weights.json"
    own.write_text(json.dumps(content), encoding="utf-8")
    changed = LocalAttribution(AttributionSettings(ranker_file=own))
    assert changed.provenance.config_digest != LocalAttribution().provenance.config_digest
    examination = changed.examine(trace(*MISREAD))
    assert examination.ranking is not None and examination.ranking.step == 1


def test_a_file_that_is_no_weights_is_refused_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(RulesError) as caught:
        load_ranker(bad)
    assert "\n" not in str(caught.value) and "cockpithat train" in str(caught.value)


def test_a_rating_of_the_rankers_own_is_off_and_pages_nobody_when_on() -> None:
    """A loud radio is rated C by the situation. Such an alert is a warning; one that a rule gives pages."""
    (loud,) = load(resource("data/demo/08_climate_memory_sets_the_volume.yaml"))
    usual, rating = (
        LocalAttribution(AttributionSettings(ranker_rates=rates)).judge(loud) for rates in (False, True)
    )
    assert (usual.asil, usual.severity.raised_by) == (Asil.UNRATED, None)
    assert alert_for(usual) is None
    assert (rating.asil, rating.severity.raised_by) == (Asil.C, "ranker")
    alert = alert_for(rating)
    assert alert is not None and alert.labels["severity"] == "warning"
    assert "No hazard rule says C" in alert.annotations["description"]
    lights = LocalAttribution(AttributionSettings(ranker_rates=True)).judge(lights_off())
    paged = alert_for(lights)
    assert paged is not None and paged.labels["severity"] == "critical"
    assert "No hazard rule" not in paged.annotations["description"]


class TestFitting:
    """Training needs numpy; where it is not installed these say so."""

    @pytest.fixture(autouse=True)
    def _numpy(self) -> None:
        pytest.importorskip("numpy")

    def test_what_marks_the_right_option_gets_the_weight(self) -> None:
        from cockpithat.ranking.fitting import Choice, fit_choices

        choices = [
            Choice([{"good": 1.0, "noise": float(i % 2)}, {"noise": float(i % 3)}], (0,)) for i in range(30)
        ]
        weights = fit_choices(choices, penalty=1.0)
        assert weights["good"] > 1.0 and abs(weights["noise"]) < weights["good"] / 3

    def test_a_strong_penalty_leaves_the_floor(self) -> None:
        from cockpithat.ranking.fitting import Choice, fit_choices

        choices = [Choice([{"good": 1.0}, {"longest": 1.0}], (0,))] * 10
        weights = fit_choices(choices, penalty=1e9, prior={"longest": 3.0})
        assert weights["longest"] == pytest.approx(3.0, abs=1e-3)
        assert weights["good"] == pytest.approx(0.0, abs=1e-3)

    def test_the_same_data_give_the_same_weights(self) -> None:
        from cockpithat.ranking.fitting import fit_classes

        rows = [{"a": float(i % 2), "b": float(i % 3)} for i in range(40)]
        labels = ["x" if i % 2 else "y" for i in range(40)]
        first = fit_classes(rows, labels, penalty=1.0, classes=["x", "y"])
        assert first == fit_classes(rows, labels, penalty=1.0, classes=["x", "y"])
        assert first["x"]["a"] > first["x"]["b"]


def test_car_bench_steps_follow_from_the_reference_actions(shared_data: Path) -> None:
    files = [
        p for p in sorted((shared_data / "car-bench").glob("*.json")) if "claude" in p.name or "gpt" in p.name
    ]
    labels = [label for path in files for label in read_carbench_labels(path)]
    failed = [label for label in labels if label.failed]
    assert (len(labels), len(failed)) == (103, 28)
    assert sum(label.step is not None for label in failed) == 21
    assert all(label.step is None for label in labels if not label.failed)
