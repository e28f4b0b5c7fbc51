"""The consensus against the paper: equations 3, 4 and 5, and every case the paper leaves open."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cockpithat.consensus import (
    ConsensusSettings,
    decide,
    level,
    mechanical_resolution,
    severity_prior,
    uplift,
)
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence, Hypothesis

PAPER = ConsensusSettings()
PLAN, INVENT = Category.PLANNING_FAILURE, Category.INVENTION_OF_NEW_INFORMATION


def vote(
    analyst: str,
    step: int | None,
    agent: str | None = "A",
    *,
    c: float = 0.5,
    category: Category | None = PLAN,
    asil: Asil = Asil.UNRATED,
    quoted: bool = False,
    answered: bool = True,
) -> Hypothesis:
    evidence = (Evidence(kind="quote", step=step, text="as said"),) if quoted else ()
    return Hypothesis(
        analyst=analyst, step=step, agent=agent, category=category, asil=asil, confidence=c,
        evidence=evidence, answered=answered,
    )  # fmt: skip


class TestEquation3SeverityPrior:
    def test_the_most_severe_rating_wins_however_few_hold_it(self) -> None:
        votes = [vote("safety", 1, asil=Asil.D), *(vote(f"g{i}", 1, asil=Asil.A, c=0.9) for i in range(3))]
        assert severity_prior(votes, PAPER) is Asil.D

    def test_below_delta_conf_a_rating_does_not_count_and_at_it_it_does(self) -> None:
        assert severity_prior([vote("safety", 1, asil=Asil.D, c=0.29)], PAPER) is Asil.UNRATED
        assert severity_prior([vote("safety", 1, asil=Asil.D, c=0.3)], PAPER) is Asil.D

    def test_when_nobody_reaches_the_bound_the_floor_stands(self) -> None:
        decision = decide([vote("safety", 1, asil=Asil.D, c=0.1)], floor=Asil.B)
        assert decision.asil is Asil.B
        assert decision.raised_by is None

    def test_an_analyst_that_did_not_answer_does_not_rate(self) -> None:
        assert severity_prior([vote("safety", 1, asil=Asil.D, c=0.9, answered=False)], PAPER) is Asil.UNRATED


class TestEquation4Uplift:
    def test_the_papers_two_figures(self) -> None:
        assert uplift(True, Asil.A, 4, PAPER) == 1.0
        assert uplift(True, Asil.D, 4, PAPER) == pytest.approx(2.16, abs=0.005)

    def test_the_schedule_between_them(self) -> None:
        assert uplift(True, Asil.B, 4, PAPER) == pytest.approx(1 + 0.5 * (math.exp(0.4) - 1))
        assert uplift(True, Asil.C, 4, PAPER) == pytest.approx(1 + 0.5 * (math.exp(0.8) - 1))

    def test_only_the_safety_analyst_is_uplifted(self) -> None:
        assert [uplift(False, asil, 4, PAPER) for asil in Asil] == [1.0] * len(Asil)

    def test_below_a_there_is_no_uplift_and_no_penalty(self) -> None:
        assert level(Asil.QM) == level(Asil.UNRATED) == level(Asil.A) == 1
        assert uplift(True, Asil.QM, 4, PAPER) == uplift(True, Asil.UNRATED, 4, PAPER) == 1.0

    def test_the_cap_is_kappa_times_the_others(self) -> None:
        steep = ConsensusSettings(beta=3.0)
        assert uplift(True, Asil.D, 4, steep) == 1 + 1.0 * 3
        assert uplift(True, Asil.D, 1, PAPER) == 1.0, "alone, there is no one to be lifted above"


class TestEquation5Marginals:
    def test_shares_are_weighted_by_confidence_and_uplift(self) -> None:
        votes = [
            vote("safety", 3, "S", c=0.8, asil=Asil.D),
            vote("x", 5, "X", c=0.6),
            vote("y", 5, "X", c=0.4),
        ]
        decision = decide(votes)
        omega = uplift(True, Asil.D, 3, PAPER)
        assert decision.step == 3
        assert decision.marginals.step == pytest.approx(0.8 * omega / (0.8 * omega + 1.0))
        assert [h.weight for h in decision.hypotheses_with_weight] == pytest.approx([0.8 * omega, 0.6, 0.4])

    def test_each_dimension_is_decoded_on_its_own(self) -> None:
        votes = [
            vote("a", 1, "X", category=PLAN, c=0.5),
            vote("b", 1, "Y", category=INVENT, c=0.4),
            vote("c", 2, "Y", category=INVENT, c=0.3),
        ]
        decision = decide(votes)
        assert (decision.step, decision.agent, decision.category) == (1, "Y", INVENT)
        assert not any("proposed together" in r for r in decision.reasons), "b proposed step 1 with Y"

    def test_confidence_is_the_weakest_marginal(self) -> None:
        decision = decide([vote("a", 1, "X", c=0.6), vote("b", 1, "Y", c=0.4)])
        assert decision.marginals.step == pytest.approx(1.0)
        assert decision.weakest == decision.marginals.agent == pytest.approx(0.6)

    def test_an_analyst_without_an_opinion_stays_in_the_denominator(self) -> None:
        decision = decide([vote("a", 1, c=0.5), vote("b", None, None, category=None, c=0.5)])
        assert decision.marginals.step == pytest.approx(0.5)


class TestCasesThePaperLeavesOpen:
    @pytest.mark.parametrize("votes", [[], [vote("a", 1, c=0.0)], [vote("a", 1, answered=False)]])
    def test_total_weight_zero_chooses_nothing(self, votes: list[Hypothesis]) -> None:
        decision = decide(votes, floor=Asil.C)
        assert (decision.step, decision.agent, decision.category, decision.weakest) == (None, None, None, 0.0)
        assert decision.contested
        assert decision.asil is Asil.C
        assert any("no analyst" in reason for reason in decision.reasons)

    def test_who_did_not_answer_has_no_weight_and_is_named(self) -> None:
        decision = decide([vote("a", 1, c=0.4), vote("slow", 9, c=0.9, answered=False)])
        assert decision.step == 1
        assert decision.marginals.step == pytest.approx(1.0)
        assert "no answer from slow" in decision.reasons

    def test_k_counts_only_those_that_answered(self) -> None:
        absent = [vote(f"g{i}", 1, answered=False) for i in range(3)]
        alone = decide([vote("safety", 1, c=0.5, asil=Asil.D), *absent])
        assert alone.hypotheses_with_weight[0].weight == 0.5, "the cap is kappa (K - 1) = 0"

    def test_a_tie_goes_to_evidence_that_checks_out(self) -> None:
        decision = decide([vote("a", 2), vote("b", 7, quoted=True)])
        assert decision.step == 7
        assert decision.ties["step"] == ("2", "7")

    def test_evidence_that_does_not_check_out_breaks_no_tie(self) -> None:
        decision = decide([vote("a", 2), vote("b", 7, quoted=True)], supports=lambda e: False)
        assert decision.step == 2

    def test_then_to_the_safety_analyst_then_to_the_earliest_step(self) -> None:
        assert decide([vote("a", 2), vote("safety", 7)]).step == 7
        arbitrary = decide([vote("a", 10), vote("b", 9)])
        assert arbitrary.step == 9
        assert arbitrary.contested

    def test_step_and_agent_that_no_one_proposed_together_are_kept_and_contested(self) -> None:
        votes = [vote("a", 1, "X", c=0.5), vote("b", 2, "Y", c=0.4), vote("c", 3, "Y", c=0.4)]
        decision = decide(votes, settings=ConsensusSettings(delta_cons=dict.fromkeys(Asil, 0.0)))
        assert (decision.step, decision.agent) == (1, "Y")
        assert decision.contested
        assert any("proposed together" in reason for reason in decision.reasons)

    def test_the_floor_is_never_lowered_and_raising_names_who_raised(self) -> None:
        low = decide([vote("safety", 1, asil=Asil.QM, c=1.0)], floor=Asil.D)
        assert (low.asil, low.raised_by) == (Asil.D, None)
        high = decide([vote("x", 1, asil=Asil.D, c=0.5)], floor=Asil.B)
        assert (high.asil, high.floor, high.raised_by) == (Asil.D, Asil.B, "x")


class TestDisagreementResolution:
    def test_the_threshold_rises_with_severity(self) -> None:
        ordered = [PAPER.delta_cons[asil] for asil in sorted(Asil, key=lambda a: a.rank)]
        assert ordered == sorted(ordered)
        with pytest.raises(ValidationError, match="must not fall"):
            ConsensusSettings(delta_cons={**PAPER.delta_cons, Asil.D: 0.1})
        with pytest.raises(ValidationError, match="lacks D"):
            ConsensusSettings(delta_cons={k: v for k, v in PAPER.delta_cons.items() if k is not Asil.D})

    def test_the_same_split_is_enough_without_a_hazard_and_not_at_asil_d(self) -> None:
        split = [vote("a", 1, c=0.6), vote("b", 2, c=0.4)]
        assert not decide(split).needs_resolution
        assert decide(split, floor=Asil.D).needs_resolution

    def test_the_mechanical_rule_prefers_cited_evidence(self) -> None:
        votes = [vote("loud", 2, "X", c=0.6), vote("quoting", 7, "Y", c=0.5, quoted=True)]
        assert decide(votes, floor=Asil.D).step == 2
        resolved = decide(votes, floor=Asil.D, resolve=mechanical_resolution)
        assert (resolved.step, resolved.resolved, resolved.contested) == (7, True, False)

    def test_it_changes_nothing_when_no_one_cites(self) -> None:
        votes = [vote("a", 2, c=0.6), vote("b", 7, c=0.5)]
        decision = decide(votes, floor=Asil.D, resolve=mechanical_resolution)
        assert (decision.step, decision.resolved, decision.contested) == (2, False, True)

    def test_an_alarm_without_a_quote_loses_its_vote_and_not_its_severity(self) -> None:
        votes = [vote("safety", 2, "X", c=0.4, asil=Asil.D), vote("b", 7, "Y", c=0.9, quoted=True)]
        decision = decide(votes, resolve=mechanical_resolution)
        assert (decision.step, decision.asil, decision.raised_by) == (7, Asil.D, "safety")

    def test_a_protocol_of_ones_own_can_be_plugged_in(self) -> None:
        decision = decide([vote("a", 1), vote("b", 2)], floor=Asil.D, resolve=lambda h, d, s: [h[1]])
        assert (decision.step, decision.resolved) == (2, True)


votes_strategy = st.lists(
    st.builds(
        Hypothesis,
        analyst=st.sampled_from(["safety", "a", "b", "c"]),
        step=st.none() | st.integers(0, 5),
        agent=st.none() | st.sampled_from(["X", "Y"]),
        category=st.none() | st.sampled_from(list(Category)),
        asil=st.sampled_from(list(Asil)),
        confidence=st.floats(0, 1, allow_nan=False),
        answered=st.booleans(),
    ),
    max_size=6,
)


@given(votes_strategy, st.sampled_from(list(Asil)))
def test_marginals_are_shares_and_the_floor_holds_always(votes: list[Hypothesis], floor: Asil) -> None:
    decision = decide(votes, floor=floor, resolve=mechanical_resolution)
    assert decision.asil.rank >= floor.rank
    for share in (decision.marginals.step, decision.marginals.agent, decision.marginals.category):
        assert 0.0 <= share <= 1.0
    assert decision == decide(votes, floor=floor, resolve=mechanical_resolution)
