"""What the consensus does with analysts of known skill. Larger runs: tests/bench/bench_consensus.py."""

from __future__ import annotations

import pytest

from cockpithat.contract.base import Asil
from tests.support.simulated_analysts import rate, vote

N, SEED = 600, 11


def test_the_severity_prior_recalls_more_c_and_d_than_a_majority_and_rates_higher() -> None:
    """Equation 3: specialists' alarms are not outvoted; the price is over-rating, which is stated."""
    prior, majority = rate(N, SEED, prior=True), rate(N, SEED, prior=False)
    assert prior.recall > majority.recall + 0.03
    assert prior.overrating > majority.overrating


@pytest.mark.parametrize("p", [0.3, 0.4, 0.5, 0.6, 0.7])
def test_consensus_beats_the_mean_analyst_when_they_err_independently(p: float) -> None:
    hits = vote(N, SEED, (p,) * 4)
    assert hits.step > hits.mean_step and hits.agent > hits.mean_agent


@pytest.mark.parametrize("p", [0.3, 0.5, 0.7])
def test_consensus_is_not_worse_when_they_err_together(p: float) -> None:
    hits = vote(N, SEED, (p,) * 4, together=1.0)
    assert hits.step >= hits.mean_step - 1e-6 and hits.agent >= hits.mean_agent - 1e-6


def test_uplift_helps_with_a_better_safety_analyst_and_costs_with_a_worse_one() -> None:
    severe = (Asil.C, Asil.D)
    for skill, helps in ((0.95, True), (0.25, False)):
        skills = (skill, 0.5, 0.5, 0.5)
        raised = vote(N, SEED, skills, ratings=severe)
        equal = vote(N, SEED, skills, uplift=False, ratings=severe)
        assert (raised.agent > equal.agent) is helps
        assert (raised.step > equal.step) is helps
