"""The four renderings of section 3.2, and how a budget is shared out among steps."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpithat.channels.tags import Salience, Tag
from cockpithat.contract.events import PlanItem, ToolCall, ToolOutput
from cockpithat.contract.trace import Step, StepState, Trace
from cockpithat.formats.registry import load
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.slicing import build_context, build_index
from cockpithat.slicing.milestones import Milestone, milestone, milestones
from cockpithat.slicing.render import StepText, first_words
from cockpithat.slicing.settings import SliceMode
from tests.slicing.test_layers import trace_of


def step(text: str = "", **fields: object) -> Step:
    return Step.model_validate(
        {"index": 3, "seq": 3, "event_id": "3", "ts": 0, "agent": "A", "text": text, **fields}
    )


def test_l1_is_verbatim_with_reasoning_and_tool_pairs() -> None:
    text = StepText(
        step(
            "Opening the roof.",
            reasoning="The driver asked for air.",
            tool_calls=(ToolCall(name="roof", arguments={"position": 100}, call_id="c1"),),
            tool_outputs=(ToolOutput(name="roof", call_id="c1", content={"ok": True}),),
        )
    ).verbatim.text
    assert text.split("\n") == [
        "Opening the roof.",
        "reasoning: The driver asked for air.",
        'call roof({"position":100})',
        'result roof: {"ok":true}',
    ]


def test_l2_keeps_actions_commitments_and_conclusions_and_drops_routine_narration() -> None:
    text = StepText(
        step(
            "Sure, happy to help you with that today! Here is a screenshot of the page. "
            "The sky is a nice blue. "
            "I will close all windows first. Something else is on the page as well. "
            "The rain sensor failed, therefore the roof is not closed.",
            tool_calls=(ToolCall(name="close_windows"),),
        )
    ).key(60)
    assert text.kind == "key"
    for kept in (
        "I will close all windows first.",
        "The rain sensor failed",
        "call close_windows()",
        "[...]",
    ):
        assert kept in text.text
    for dropped in ("Sure", "screenshot", "nice blue"):
        assert dropped not in text.text


@given(st.text(max_size=2_000))
def test_l3_is_at_most_twenty_words_section_3_2(text: str) -> None:
    assert len(StepText(step(text)).outcome.text.split()) <= 20


def test_l3_counts_characters_where_a_script_has_no_spaces() -> None:
    outcome = StepText(
        step("车窗已经全部打开因为司机要求新鲜空气但是外面正在下大雨所以车内进水了")
    ).outcome.text
    assert len(outcome) <= 20


def test_l3_puts_a_failure_before_a_call_before_words() -> None:
    failed = step(
        "All fine.",
        tool_calls=(ToolCall(name="route"),),
        tool_outputs=(ToolOutput(name="route", content="no map data", is_error=True),),
    )
    assert StepText(failed).outcome.text == "error route: no map data"
    assert StepText(failed.model_copy(update={"tool_outputs": ()})).outcome.text == "call route()"


def test_an_unbroken_run_does_not_make_twenty_words_long() -> None:
    assert len(first_words("x" * 10_000 + " y", 20)) < 60


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (step("x", tool_outputs=(ToolOutput(content="boom", is_error=True),)), Milestone.TOOL_FAILURE),
        (step("Traceback (most recent call last):", agent="ComputerTerminal"), Milestone.TOOL_FAILURE),
        (step("x", plan=(PlanItem(id="1", text="go"),)), Milestone.DECISION),
        (step("Let's try a different approach."), Milestone.DECISION),
        (step("do it", target="B"), Milestone.HAND_OFF),
        (step("This is not allowed while driving."), Milestone.ESCALATION),
        (step("checked", agent="SafetyAgent"), Milestone.ESCALATION),
        (step("The weather is nice."), None),
    ],
)
def test_l4_milestones_are_pivots_failures_hand_offs_and_escalations(
    given: Step, kind: Milestone | None
) -> None:
    assert milestone(given, last_index=9) == kind


def test_first_and_last_step_are_milestones() -> None:
    assert milestones(trace_of(["a", "b", "c"])) == {0: Milestone.START, 2: Milestone.END}


def test_an_agents_consecutive_steps_are_grouped_and_numbered() -> None:
    trace = trace_of(["a", "b", "c", "d"], [(0, 1), (0, 2), (1, 3)], agents="AABB")
    lines = build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 1_000).text.split("\n")
    assert [line for line in lines if line.startswith(("==", "@"))] == [
        "== A", "@0", "@1 ←0", "== B", "@2 ←0", "@3 ←1"
    ]  # fmt: skip


def test_each_step_is_sent_once() -> None:
    texts = [f"unique sentence number {i} of this session." for i in range(12)]
    trace = trace_of(texts, [(i, j) for i in range(12) for j in range(i + 1, 12)])
    context = build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 5_000)
    assert all(context.text.count(text) == 1 for text in texts)
    assert set(context.kinds) == {""}


def test_a_tighter_budget_cuts_long_steps_first() -> None:
    long = " ".join(f"Sentence {i} says that the value is {i * 7}." for i in range(400))
    trace = trace_of(["short order", long, "short reply"], [(0, 1), (1, 2), (0, 2)])
    context = build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 400)
    assert context.kinds == ("", "key", "")
    assert context.tokens <= 400


@pytest.mark.parametrize("budget", [300, 800, 2_000, 4_400])
def test_budgets_are_kept_on_real_runs(budget: int, shared_data: Path) -> None:
    """Only lines of the index and milestones, which are never cut, may go over."""
    for path in sorted((shared_data / "whowhen/hand-crafted").glob("*.json"))[::4]:
        for trace in load(path):
            index = build_index(trace, SliceMode.DEPENDENCY)
            context = build_context(trace, index, budget)
            if context.tokens > budget:
                assert set(context.kinds) <= {"4", "-", ""}, "only milestones are left"


def test_flagged_steps_keep_more_of_their_text() -> None:
    long = [" ".join(f"Fact {s}-{i} is {i}." for i in range(200)) for s in range(6)]
    trace = trace_of(long, [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (0, 5)])
    flags = {2: Salience(2, Tag.SAFETY_VIOLATION, 1.0)}
    index = build_index(trace, SliceMode.DEPENDENCY, {2: Tag.SAFETY_VIOLATION})
    text = build_context(trace, index, 1_500, flags).text
    counts = [text.count(f"Fact {s}-") for s in range(6)]
    assert counts[2] > 2 * max(counts[:2] + counts[3:])


def test_promoted_steps_carry_the_mark_and_the_channels_of_equation_2() -> None:
    trace = trace_of(["a", "b", "c"], [(0, 1), (0, 2), (1, 2)])
    state = StepState(before_ts=0, after_ts=1, before={"Vehicle.Speed": 83.0})
    steps = list(trace.steps)
    steps[1] = steps[1].model_copy(update={"state": state, "environment": {"light": "dark"}})
    sensed = trace.model_copy(update={"steps": tuple(steps)})
    for tag, line in (
        (Tag.SAFETY_VIOLATION, "sigma{Vehicle.Speed=83.0} e{light=dark}"),
        (Tag.INTERACTION_RISK, "sigma{Vehicle.Speed=83.0}"),
        (Tag.ENV_MISGROUNDING, "e{light=dark}"),
    ):
        index = build_index(sensed, SliceMode.DEPENDENCY, {1: tag})
        lines = build_context(sensed, index, 2_000, {1: Salience(1, tag, 1.0)}).text.split("\n")
        at = next(i for i, text in enumerate(lines) if text.startswith("@1"))
        assert lines[at : at + 3] == [f"@1 [SALIENT:{tag}] ←0", line, "b"]
    plain = build_context(sensed, build_index(sensed, SliceMode.DEPENDENCY), 2_000).text
    assert "sigma{" not in plain, "unflagged steps keep their rendering: no channels"


def test_a_trace_of_three_hundred_thousand_characters_is_quick(shared_data: Path) -> None:
    path = max((shared_data / "whowhen/hand-crafted").glob("*.json"), key=lambda p: p.stat().st_size)
    (trace,) = load(path)
    started = time.perf_counter()
    context = build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 4_000)
    assert time.perf_counter() - started < 10
    assert approximate_tokens(context.text) <= 4_000


@pytest.mark.parametrize(
    "hostile", ["[" * 300_000, "@1" * 150_000, "a " * 150_000, ". " * 150_000, "\n" * 300_000]
)
def test_hostile_text_takes_linear_time(hostile: str) -> None:
    def seconds(text: str) -> float:
        trace = trace_of(["a", text, "b"], [(0, 1), (1, 2), (0, 2)])
        started = time.perf_counter()
        build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 1_000)
        return time.perf_counter() - started

    half, whole = seconds(hostile[: len(hostile) // 2]), seconds(hostile)
    assert whole < 4 * half + 0.5


def test_a_whole_trace_fits_if_the_budget_does(shared_data: Path) -> None:
    path = min((shared_data / "whowhen/algorithm-generated").glob("*.json"), key=lambda p: p.stat().st_size)
    trace: Trace = next(iter(load(path)))
    context = build_context(trace, build_index(trace, SliceMode.DEPENDENCY), 100_000)
    assert set(context.kinds) == {""}
