"""What holds for every panel, whoever votes for what: checked on random panels."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cockpithat.consensus import ConsensusSettings, decide, mechanical_resolution, uplift
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence, Hypothesis

SETTINGS = ConsensusSettings()
ASILS = st.sampled_from(list(Asil))
CONFIDENCES = st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.floats(0.0, 1.0, allow_subnormal=False))


@st.composite
def panels(draw: st.DrawFn, least: int = 0) -> list[Hypothesis]:
    """Up to seven analysts, one of them perhaps the safety analyst; few values, so that ties come up."""
    size = draw(st.integers(least, 7))
    names = [
        "safety" if number == 0 and draw(st.booleans()) else f"analyst-{number}" for number in range(size)
    ]
    return [
        Hypothesis(
            analyst=name,
            step=draw(st.none() | st.integers(0, 3)),
            agent=draw(st.none() | st.sampled_from(["A", "B", "C"])),
            category=draw(st.none() | st.sampled_from(list(Category)[:3])),
            asil=draw(ASILS),
            confidence=draw(CONFIDENCES),
            answered=draw(st.booleans()) or draw(st.booleans()),
            evidence=(Evidence(kind="quote", step=1, text="seen"),) if draw(st.booleans()) else (),
        )
        for name in names
    ]


FEW = settings(max_examples=150, deadline=None)


@FEW
@given(panels(), ASILS, st.booleans())
def test_no_vote_lowers_the_floor(panel: list[Hypothesis], floor: Asil, resolves: bool) -> None:
    resolve = mechanical_resolution if resolves else None
    decision = decide(panel, floor=floor, resolve=resolve)
    assert decision.asil.rank >= floor.rank
    # It is either the floor or what a confident analyst says, and then the report can name the analyst.
    confident = [h for h in panel if h.answered and h.confidence >= SETTINGS.delta_conf]
    assert decision.asil in {floor, *(h.asil for h in confident)}
    assert (decision.raised_by is None) == (decision.asil is floor)
    if decision.raised_by is not None:
        assert decision.raised_by in {h.analyst for h in confident if h.asil is decision.asil}


@FEW
@given(panels(), ASILS, ASILS)
def test_a_higher_floor_never_lowers_the_rating(panel: list[Hypothesis], one: Asil, other: Asil) -> None:
    low, high = sorted((one, other), key=lambda asil: asil.rank)
    assert decide(panel, floor=low).asil.rank <= decide(panel, floor=high).asil.rank


@FEW
@given(panels(least=1), st.data())
def test_one_analyst_more_severe_never_lowers_the_rating(
    panel: list[Hypothesis], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(panel) - 1))
    harsher = data.draw(st.sampled_from([a for a in Asil if a.rank >= panel[number].asil.rank]))
    changed = [*panel]
    changed[number] = panel[number].model_copy(update={"asil": harsher})
    assert decide(panel).asil.rank <= decide(changed).asil.rank


@FEW
@given(panels(), ASILS, st.randoms(use_true_random=False))
def test_the_order_of_the_analysts_does_not_matter(
    panel: list[Hypothesis], floor: Asil, dice: object
) -> None:
    shuffled = [*panel]
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (decide(p, floor=floor, resolve=mechanical_resolution) for p in (panel, shuffled))
    assert (one.step, one.agent, one.category, one.asil) == (
        other.step,
        other.agent,
        other.category,
        other.asil,
    )
    assert (one.contested, one.needs_resolution, one.resolved) == (
        other.contested,
        other.needs_resolution,
        other.resolved,
    )
    assert one.ties == other.ties
    assert math.isclose(one.weakest, other.weakest, abs_tol=1e-9)


@FEW
@given(panels(), ASILS, st.sampled_from([0.5, 0.25, 0.125]))
def test_only_the_proportion_of_confidences_counts_in_the_vote(
    panel: list[Hypothesis], floor: Asil, factor: float
) -> None:
    """All confidences scaled alike leave every share as it is, as long as severity is the same."""
    loose = ConsensusSettings(delta_conf=0.0)  # else scaling may take an analyst below it
    scaled = [h.model_copy(update={"confidence": h.confidence * factor}) for h in panel]
    one, other = (decide(p, settings=loose, floor=floor) for p in (panel, scaled))
    assert (one.step, one.agent, one.category, one.asil) == (
        other.step,
        other.agent,
        other.category,
        other.asil,
    )
    assert math.isclose(one.weakest, other.weakest, abs_tol=1e-9)


@FEW
@given(panels(least=1))
def test_marginals_are_shares_and_a_choice_was_proposed(panel: list[Hypothesis]) -> None:
    decision = decide(panel)
    marginals = decision.marginals
    assert all(0.0 <= share <= 1.0 for share in (marginals.step, marginals.agent, marginals.category))
    voting = [h for h in panel if h.answered and h.confidence > 0]
    assert decision.step is None or decision.step in {h.step for h in voting}
    assert decision.agent is None or decision.agent in {h.agent for h in voting}
    assert decision.category is None or decision.category in {h.category for h in voting}
    assert (decision.step is None) == all(h.step is None for h in voting)
    assert decision.contested or decision.weakest >= decision.threshold


@FEW
@given(panels(least=1), st.data())
def test_an_analyst_that_did_not_answer_changes_no_verdict(
    panel: list[Hypothesis], data: st.DataObject
) -> None:
    absent = Hypothesis(
        analyst="absent",
        step=data.draw(st.integers(0, 3)),
        agent="A",
        category=Category.PLANNING_FAILURE,
        asil=Asil.D,
        confidence=1.0,
        answered=False,
    )
    one, other = decide(panel), decide([*panel, absent])
    assert replace(one, hypotheses_with_weight=(), reasons=()) == replace(
        other, hypotheses_with_weight=(), reasons=()
    )


@FEW
@given(ASILS, ASILS, st.integers(0, 9), st.integers(0, 9))
def test_the_uplift_grows_with_severity_and_panel_and_is_capped(
    one: Asil, other: Asil, few: int, many: int
) -> None:
    low, high = sorted((one, other), key=lambda asil: asil.rank)
    few, many = sorted((few, many))
    assert 1.0 <= uplift(True, low, few, SETTINGS) <= uplift(True, high, many, SETTINGS)
    assert uplift(True, high, many, SETTINGS) <= 1.0 + SETTINGS.kappa * max(many - 1, 0)
    assert uplift(False, high, many, SETTINGS) == 1.0
