"""Faults and replay: every primitive changes what happens, and replay finds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import cockpithat.simulator.builder as builder_module
from cockpithat.simulator.builder import Builder, Built, Wish, wishes
from cockpithat.simulator.families import FAMILIES
from cockpithat.simulator.faults import VARIANTS, Variant
from cockpithat.simulator.run import Run, decisive_step, run
from cockpithat.simulator.scenario import Scenario
from tests.simulator.scenarios import with_fault


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v.category}-{v.name}")
def test_a_fault_alone_makes_the_difference_and_replay_finds_its_step(variant: Variant) -> None:
    """In every family that has the decision: unsafe with the fault, safe without, decisive by replay."""
    fitting = [family for family in FAMILIES if variant.fits(family)]
    assert fitting
    for family in fitting:
        scenario = with_fault(family, variant)
        failed = run(scenario)
        assert not failed.safe, family.name
        assert run(replace(scenario, fault=None)).safe, family.name
        earliest, _ = decisive_step(scenario, failed)
        assert earliest == failed.fault_step, family.name


def test_the_same_scenario_plays_the_same_way_recorded_or_not() -> None:
    scenario = with_fault(FAMILIES[0], VARIANTS[0])
    plain, recorded, again = run(scenario), run(scenario, record=True), run(scenario, record=True)
    assert recorded == again
    assert [(s.ts, s.agent, s.act) for s in plain.steps] == [(s.ts, s.agent, s.act) for s in recorded.steps]
    assert (plain.hazard_at, plain.fault_step, plain.rating) == (
        recorded.hazard_at,
        recorded.fault_step,
        recorded.rating,
    )


def test_replay_keeps_everything_before_the_corrected_step_word_for_word() -> None:
    scenario = with_fault(FAMILIES[4], VARIANTS[0])
    failed = run(scenario, record=True)
    assert failed.fault_step is not None
    replayed = run(scenario, correct_at=failed.fault_step, record=True)
    assert replayed.steps[: failed.fault_step] == failed.steps[: failed.fault_step]
    assert replayed.steps[failed.fault_step] != failed.steps[failed.fault_step]


def test_correcting_a_step_that_only_carries_the_error_is_never_earlier() -> None:
    """Later corrections may help too (whoever looks again saves the day); the label is the earliest."""
    variant = next(v for v in VARIANTS if v.name == "misread_reading")
    scenario = with_fault(FAMILIES[0], variant)
    failed = run(scenario)
    earliest, helpful = decisive_step(scenario, failed, whole=True)
    assert earliest == failed.fault_step == helpful[0]
    assert len(helpful) > 1


def test_consequences_propagate_through_other_agents() -> None:
    """The misreading agent and the one that then acts on the car are not the same."""
    variant = next(v for v in VARIANTS if v.name == "misread_reading")
    scenario = replace(with_fault(FAMILIES[0], variant), roster="functional", sides=())
    failed = run(scenario, record=True)
    assert failed.fault_step is not None
    reader = failed.steps[failed.fault_step].agent
    movers = [s.agent for s in failed.steps[failed.fault_step :] if s.calls and s.stage == "act"]
    assert movers and reader not in movers


def test_a_scenario_whose_earlier_steps_also_help_is_not_labelled_with_the_injected_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The label is what replay finds, not what was injected: the builder refuses when they differ."""
    wish = next(w for w in wishes(5, 212) if w.category is not None and w.turns < 10)
    honest = Builder(5, "en").build(wish)
    assert honest.decisive == honest.run.fault_step

    refused: list[str] = []

    def earlier(scenario: Scenario, failed: Run, *, whole: bool = False) -> tuple[int | None, list[int]]:
        if len(refused) < 2:
            refused.append(scenario.seed)
            return 0, [0]
        return decisive_step(scenario, failed, whole=whole)

    monkeypatch.setattr(builder_module, "decisive_step", earlier)
    rebuilt = Builder(5, "en").build(wish)
    assert len(refused) == 2 and rebuilt.scenario.seed not in refused


def _build(wish: Wish) -> Built:
    return Builder(9, "en").build(wish)


def test_a_built_scenario_meets_its_wish() -> None:
    for wish in wishes(9, 212)[:6]:
        built = _build(wish)
        assert built.run.rating is not None and built.run.rating.asil == wish.asil
        assert built.scenario.fault is not None and built.scenario.fault.category == wish.category
        assert abs(built.run.turns - wish.turns) <= 3
