"""Strict scoring on cases made by hand, beside the script's verdict on the same answers."""

from __future__ import annotations

import pytest

from cockpithat.bench.samples import Target
from cockpithat.bench.scoring import Answer, chance, score
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.trace import Step, Trace


def target(agent: str = "WebSurfer", step: int = 1, **more: object) -> Target:
    return Target.model_validate(
        {"agent": agent, "step": step, "agent_text": agent, "step_text": str(step), **more}
    )


def test_gold_1_against_predicted_12() -> None:
    scores = score(Answer(agent="WebSurfer", step=12), target(step=1))
    assert (scores.step, scores.official_step, scores.distance) == (False, True, 11)
    back = score(Answer(agent="WebSurfer", step=1), target(step=12))
    assert (back.step, back.official_step) == (False, False)


@pytest.mark.parametrize(
    ("predicted", "gold", "strict", "official"),
    [
        ("WebSurfer", "WebSurfer", True, True),
        ("Websurfer", "WebSurfer", True, False),  # known dirt: the label spells it otherwise
        ("Data-Analyst", "Data-Analyst", True, False),  # the script reads "Data"
        ("Coder_2", "Coder", False, True),  # another agent, whose name holds the gold one
        ("Orchestrator", "WebSurfer", False, False),
        (None, "WebSurfer", False, False),
    ],
)
def test_names(predicted: str | None, gold: str, strict: bool, official: bool) -> None:
    scores = score(Answer(agent=predicted, step=1), target(gold))
    assert (scores.agent, scores.official_agent) == (strict, official)


def test_an_unparsed_answer_keeps_its_agent_strictly_and_loses_it_by_the_script() -> None:
    scores = score(Answer(agent="WebSurfer", step=None), target())
    assert (scores.agent, scores.step, scores.joint) == (True, False, False)
    assert (scores.official_agent, scores.official_step, scores.distance) == (False, False, None)


def test_a_failed_run_is_a_miss_in_everything() -> None:
    gold = target(category=Category.PLANNING_FAILURE, asil=Asil.A, failures=(1, 4))
    missed = score(None, gold).model_dump()
    assert missed.pop("distance") is None
    assert set(missed.values()) == {False}


def test_what_the_label_does_not_say_is_not_scored() -> None:
    scores = score(
        Answer(agent="WebSurfer", step=1, category=Category.PLANNING_FAILURE, asil=Asil.D), target()
    )
    assert (scores.category, scores.asil, scores.any_failure) == (None, None, None)
    assert scores.joint


def test_any_labelled_failure_counts_by_agentrx_rule() -> None:
    gold = target(step=4, failures=(1, 4, 9))
    assert score(Answer(step=9), gold).any_failure and not score(Answer(step=9), gold).step
    assert not score(Answer(step=8), gold).any_failure


def test_chance_is_the_exact_expectation_of_a_uniform_guess() -> None:
    steps = tuple(
        Step(index=i, seq=i, event_id=str(i), ts=i, agent="A" if i % 2 else "B-1") for i in range(12)
    )
    trace = Trace(trace_id="t", vehicle_id="v", session_id="s", steps=steps)
    level = chance(trace, target("A", 1))
    assert (level.agent, level.step, level.joint) == (1 / 2, 1 / 12, 1 / 24)
    assert level.official_step == 3 / 12  # 1, 10 and 11 hold a 1
    assert chance(trace, target("B-1", 1)).official_agent == 0  # unreadable for the script
    assert chance(trace, target("Ghost", 40)).step == 0
