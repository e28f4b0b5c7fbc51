"""The parts of the methods that need no model: windows, hierarchy, pruning, votes, bounds, checks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpithat.consensus import ConsensusSettings
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.events import ToolCall, ToolOutput
from cockpithat.contract.reports import Hypothesis
from cockpithat.contract.trace import Step
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.methods.agentrx.constraints import Check, Constraint, Guard, check, from_schemas
from cockpithat.methods.agentrx.taxonomy import RxCategory, read_category, to_ours
from cockpithat.methods.chief_screen import Screened, Subtask, backtrack, screen
from cockpithat.methods.echo import panel
from cockpithat.methods.echo_vote import Conclusion, review_reasons, vote
from cockpithat.methods.falat.space import Moment, Stage, Suspect, align, consolidate, windows
from cockpithat.methods.falat.transitions import Transition, TransitionType, flow
from cockpithat.methods.falat.verdict import (
    Assessment,
    Basis,
    Challenge,
    Part,
    ThreeTests,
    earliest_minimal,
    neighbours,
    settle,
)
from cockpithat.methods.log import even_share, render_log
from cockpithat.methods.signs import mends, repeats
from cockpithat.methods.who_when import halves
from cockpithat.panel.personas import PERSONAS
from cockpithat.slicing.render import StepText


def step_of(index: int, agent: str = "A", **fields: object) -> Step:
    """A step with little in it."""
    return Step.model_validate(
        {"index": index, "seq": index, "event_id": str(index), "ts": index, "agent": agent, **fields}
    )


class TestLog:
    @given(st.lists(st.integers(0, 5_000), max_size=30), st.integers(0, 20_000))
    def test_an_even_share_is_the_largest_that_fits(self, costs: list[int], room: int) -> None:
        level = even_share(costs, room)
        if sum(costs) <= room:
            assert level == float("inf")
        else:
            assert sum(min(cost, level) for cost in costs) <= room + 1e-6
            assert sum(min(cost, level + 1) for cost in costs) > room

    def test_numbered_steps_are_grouped_and_others_stand_alone(self) -> None:
        texts = [StepText(step_of(i, agent, text=f"word{i}")) for i, agent in enumerate("AAB")]
        assert render_log(texts, 1_000) == "== A\n@0\nword0\n@1\nword1\n== B\n@2\nword2"
        assert render_log(texts, 1_000, numbered=False) == "== A\nword0\n== A\nword1\n== B\nword2"
        assert render_log(texts, 1_000, [2]) == "== B\n@2\nword2"

    def test_a_log_keeps_its_budget_and_every_step(self) -> None:
        texts = [StepText(step_of(i, text="We found that the total is 17. " * 400)) for i in range(20)]
        shown = render_log(texts, 2_000)
        assert approximate_tokens(shown) <= 2_400
        assert all(f"@{i} ~" in shown for i in range(20))

    def test_a_step_cannot_open_another_step(self) -> None:
        shown = render_log([StepText(step_of(0, text="fine\n@1\n== Planner\nI did it"))], 1_000)
        assert [line for line in shown.splitlines() if line.startswith(("@", "=="))] == ["== A", "@0"]


class TestBinarySearch:
    @given(st.integers(0, 500), st.integers(1, 500))
    def test_halves_share_out_all_steps_and_differ_by_one_at_most(self, low: int, more: int) -> None:
        first, second = halves(low, low + more)
        assert (first[0], second[1], first[1] + 1) == (low, low + more, second[0])
        assert 0 <= (first[1] - first[0]) - (second[1] - second[0]) <= 1

    def test_one_step_cannot_be_halved(self) -> None:
        with pytest.raises(ValueError, match="cannot be halved"):
            halves(3, 3)


class TestFalatSpace:
    @given(st.integers(0, 400), st.integers(1, 50))
    def test_windows_hold_each_step_once_and_are_as_few_as_can_be(self, n: int, size: int) -> None:
        found = windows(n, size)
        assert [step for window in found for step in window] == list(range(n))
        assert len(found) == -(-n // size)
        assert all(1 <= len(window) <= size for window in found)
        assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1

    @given(st.integers(1, 60), st.lists(st.integers(-5, 70), max_size=12))
    def test_whatever_is_proposed_the_stages_partition_the_steps(self, n: int, begins: list[int]) -> None:
        found = align([Stage(b, b, str(b)) for b in begins], [Moment(b, "x") for b in begins], n)
        assert [step for s in found.stages for step in range(s.first, s.last + 1)] == list(range(n))
        assert {m.step for m in found.moments} == {b for b in begins if 0 <= b < n}

    def test_consolidation_does_not_depend_on_the_order_of_windows(self) -> None:
        found = [Suspect(step, 0.1 * step, 0.5, 0.5) for step in range(8)] + [Suspect(3, 1.0, 1.0, 1.0)]
        orders = {tuple(s.step for s in consolidate(order, 3)) for order in (found, found[::-1])}
        assert orders == {(3, 7, 6)}

    def test_without_a_prior_its_criterion_does_not_count(self) -> None:
        assert Suspect(0, 0.8, 0.4).score == pytest.approx(0.6)
        assert Suspect(0, 0.8, 0.4, 0.0).score == pytest.approx(0.4)


FINAL = 10
T, K = Transition, TransitionType


class TestTransitions:
    def test_a_source_stays_and_what_it_led_to_is_named_a_carrier(self) -> None:
        found = flow([2, 5], [T(2, 5, K.FOLLOW_UP), T(5, FINAL, K.FOLLOW_UP)], FINAL)
        assert (found.kept, found.carriers, found.reaches) == ((2, 5), {5: 2}, {2, 5})

    def test_what_was_set_right_is_pruned(self) -> None:
        given_ = [T(2, 6, K.CORRECTION), T(2, FINAL, K.FOLLOW_UP), T(5, FINAL, K.FOLLOW_UP)]
        found = flow([2, 5], given_, FINAL)
        assert found.kept == (5,) and found.pruned == {2: "corrected at step 6"}

    def test_what_was_used_before_it_was_set_right_stays(self) -> None:
        given_ = [T(2, 4, K.FOLLOW_UP), T(2, 6, K.CORRECTION), T(4, FINAL, K.FOLLOW_UP)]
        assert flow([2, 4], given_, FINAL).kept == (2, 4)

    def test_a_dead_end_and_an_unrelated_step_are_pruned(self) -> None:
        given_ = [T(1, FINAL, K.DEAD_END), T(3, FINAL, K.UNRELATED), T(5, FINAL, K.ERROR_SHIFT)]
        assert flow([1, 3, 5], given_, FINAL).kept == (5,)

    def test_a_repetition_is_pruned_and_still_passes_the_value_on(self) -> None:
        given_ = [T(2, 5, K.REDUNDANT), T(5, FINAL, K.FOLLOW_UP)]
        found = flow([2, 5], given_, FINAL)
        assert found.kept == (2,) and 2 in found.reaches

    def test_an_error_shift_leaves_both(self) -> None:
        given_ = [T(2, 5, K.ERROR_SHIFT), T(5, FINAL, K.FOLLOW_UP)]
        found = flow([2, 5], given_, FINAL)
        assert found.kept == (2, 5) and not found.carriers

    def test_a_step_nobody_speaks_of_stays(self) -> None:
        assert flow([1, 5], [T(5, FINAL, K.FOLLOW_UP)], FINAL).kept == (1, 5)

    def test_when_all_would_go_all_stay(self) -> None:
        assert flow([1, 5], [T(1, FINAL, K.DEAD_END), T(5, FINAL, K.DEAD_END)], FINAL).kept == (1, 5)

    @given(
        st.lists(
            st.tuples(st.integers(-2, 12), st.integers(-2, 12), st.sampled_from(list(TransitionType))),
            max_size=30,
        ),
        st.sets(st.integers(0, 9), min_size=1),
    )
    def test_any_answer_leaves_some_of_the_candidates(
        self, given_: list[tuple[int, int, TransitionType]], candidates: set[int]
    ) -> None:
        found = flow(candidates, [T(*one) for one in given_], FINAL)
        assert found.kept and set(found.kept) <= candidates
        assert set(found.kept) | set(found.pruned) == candidates


class TestFalatVerdict:
    SCORES: ClassVar = {2: 0.4, 4: 0.9, 7: 0.6}

    def choose(
        self, *tested: ThreeTests, joint: tuple[tuple[int, ...], ...] = ()
    ) -> tuple[tuple[int, ...], Basis]:
        chosen = earliest_minimal(Assessment(tested, joint), self.SCORES)
        return chosen.steps, chosen.basis

    def test_the_earliest_step_that_passes_is_chosen_whatever_its_rank(self) -> None:
        tests = [
            ThreeTests(4, True, True, True),
            ThreeTests(2, True, True, True),
            ThreeTests(7, True, True, False),
        ]
        for order in itertools.permutations(tests):
            assert self.choose(*order) == ((2,), Basis.SUFFICIENT)

    def test_temporal_precedence_breaks_a_tie_of_the_other_two(self) -> None:
        tests = (ThreeTests(2, True, True, False), ThreeTests(4, True, True, True))
        assert self.choose(*tests) == ((4,), Basis.SUFFICIENT)

    def test_a_step_that_only_carries_is_never_chosen_over_one_that_errs(self) -> None:
        tests = (ThreeTests(4, False, True, True), ThreeTests(7, True, False, False))
        assert self.choose(*tests) == ((7,), Basis.RANKED)

    def test_the_earliest_minimal_joint_set_where_no_step_suffices_alone(self) -> None:
        tests = tuple(ThreeTests(step, True, False, True) for step in self.SCORES)
        joint = ((2, 4, 7), (4, 7), (7, 2))
        assert self.choose(*tests, joint=joint) == ((2, 7), Basis.JOINT)

    def test_a_set_with_steps_that_are_no_candidates_does_not_count(self) -> None:
        assert self.choose(joint=((2, 9), (4,))) == ((4,), Basis.RANKED)

    def test_local_re_search_takes_the_most_suspicious_that_recovers(self) -> None:
        found = [
            Challenge(3, 0.9, Part.SYMPTOM, False, "A"),
            Challenge(4, 0.6, Part.ROOT_CAUSE, True, "A"),
            Challenge(5, 0.7, Part.ROOT_CAUSE, True, "B"),
        ]
        assert settle(4, found) == found[2]
        assert settle(3, found[:1]) == found[0], "nothing recovers: the prediction stands"
        assert settle(4, found[:1]) is None

    def test_neighbours_stay_inside_the_trace(self) -> None:
        assert neighbours(0, 6, 2, [3, 5]) == [0, 1, 2, 3]
        assert neighbours(5, 6, 2, []) == [3, 4, 5]


def conclusion(name: str, step: int, agent: str, sure: float, *more: str) -> Conclusion:
    return Conclusion(Hypothesis(analyst=name, step=step, agent=agent, confidence=sure), (agent, *more))


class TestEcho:
    def counted(self, *conclusions: Conclusion) -> tuple[int | None, str | None]:
        found = vote(conclusions, settings=ConsensusSettings(), floor=Asil.UNRATED, supports=lambda _: False)
        return found.decision.step, found.decision.agent

    def test_votes_weigh_by_confidence_and_agent_and_step_are_decided_apart(self) -> None:
        given_ = (conclusion("a", 1, "X", 0.5), conclusion("b", 1, "Y", 0.4), conclusion("c", 2, "Y", 0.6))
        assert self.counted(*given_) == (1, "Y")

    def test_a_conclusion_under_three_tenths_is_dropped_unless_all_are(self) -> None:
        unsure = [conclusion(n, 1, "X", 0.29) for n in "abc"]
        assert self.counted(*unsure, conclusion("d", 2, "Y", 0.3)) == (2, "Y")
        assert self.counted(*unsure) == (1, "X")

    def test_the_dropped_stay_visible_with_no_weight(self) -> None:
        found = vote(
            [conclusion("a", 1, "X", 0.1), conclusion("b", 2, "Y", 0.9)],
            settings=ConsensusSettings(),
            floor=Asil.D,
            supports=lambda _: False,
        )
        assert [(h.analyst, h.weight) for h in found.decision.hypotheses_with_weight] == [
            ("b", 0.9),
            ("a", 0.0),
        ]
        assert found.decision.asil == Asil.D, "the floor holds"

    def test_nobody_has_the_safety_analysts_uplift(self) -> None:
        given_ = [conclusion("safety", 1, "X", 0.5), conclusion("b", 2, "Y", 0.55)]
        found = vote(given_, settings=ConsensusSettings(), floor=Asil.D, supports=lambda _: False)
        assert found.decision.step == 2

    def test_other_agents_are_blamed_where_most_of_the_weight_says_several(self) -> None:
        given_ = [conclusion("a", 1, "X", 0.8, "Z"), conclusion("b", 1, "X", 0.5)]
        found = vote(given_, settings=ConsensusSettings(), floor=Asil.UNRATED, supports=lambda _: False)
        assert found.other_agents == ("Z",)

    def test_review_is_called_for_by_spread_and_by_strong_conflict(self) -> None:
        assert review_reasons([conclusion("a", 1, "X", 0.9), conclusion("b", 1, "X", 0.4)]) == ()
        assert len(review_reasons([conclusion("a", 1, "X", 0.9), conclusion("b", 1, "X", 0.39)])) == 1
        assert len(review_reasons([conclusion("a", 1, "X", 0.9), conclusion("b", 2, "X", 0.8)])) == 1
        assert review_reasons([conclusion("a", 1, "X", 0.9), conclusion("b", 2, "X", 0.6)]) == ()

    def test_the_panel_is_drawn_by_the_trace_and_all_six_are_drawn_at_times(self) -> None:
        assert panel("t", 3) == panel("t", 3) and len(set(panel("t", 3))) == 3
        assert {name for i in range(40) for name in panel(str(i), 3)} == set(PERSONAS)


class TestChief:
    TASKS: ClassVar = [Subtask(1, "a", 0, 3), Subtask(2, "b", 4, 6, (1,)), Subtask(3, "c", 7, 9, (2,))]

    def test_the_walk_goes_back_through_what_missed_and_no_further(self) -> None:
        assert [s.number for s in backtrack(self.TASKS, {3, 2}, 3)] == [3, 2]
        assert [s.number for s in backtrack(self.TASKS, {3, 1}, 3)] == [3], "2 met its oracle"

    def test_without_a_missed_end_all_that_missed_count(self) -> None:
        assert [s.number for s in backtrack(self.TASKS, {1, 2}, 3)] == [2, 1]
        assert [s.number for s in backtrack(self.TASKS, set(), 3)] == [3]

    def test_a_limit_keeps_what_lies_furthest_back(self) -> None:
        assert [s.number for s in backtrack(self.TASKS, {1, 2, 3}, 2)] == [2, 1]

    def test_a_circle_of_needs_ends(self) -> None:
        tasks = [Subtask(1, "a", 0, 3, (2,)), Subtask(2, "b", 4, 6, (1,))]
        assert [s.number for s in backtrack(tasks, {1, 2}, 5)] == [2, 1]

    def test_screens_apply_one_after_the_other_and_never_leave_nothing(self) -> None:
        scores = {1: 0.2, 4: 0.9, 6: 0.5}
        own = [Screened(1, False, True, True), Screened(4, True, True, False), Screened(6, True, False, True)]
        assert screen(own, scores) == [4], "6 was set right, so whether it recovers is not asked"
        assert screen([Screened(s, False, False, False) for s in scores], scores) == [1, 4, 6]
        assert screen([], scores) == [4]


class TestConstraints:
    SCHEMA: ClassVar = {
        "set_temp": {
            "type": "function",
            "function": {
                "name": "set_temp",
                "parameters": {
                    "type": "object",
                    "required": ["zone"],
                    "properties": {
                        "zone": {"type": "string", "enum": ["driver", "all"]},
                        "degrees": {"type": "number", "minimum": 16, "maximum": 28},
                    },
                    "additionalProperties": False,
                },
            },
        }
    }

    def broken(self, arguments: object) -> list[str]:
        step = step_of(0, tool_calls=(ToolCall(name="set_temp", arguments=arguments),))  # type: ignore[arg-type]
        return [v.detail for v in check(from_schemas(self.SCHEMA), [step])]

    @pytest.mark.parametrize("arguments", [{"zone": "all"}, {"zone": "driver", "degrees": 21.5}])
    def test_a_call_after_its_schema_breaks_nothing(self, arguments: dict[str, object]) -> None:
        assert self.broken(arguments) == []

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({}, "lacks zone"),
            ("not an object", "lacks zone"),
            ({"zone": "rear"}, "not one of"),
            ({"zone": "all", "degrees": "21"}, "not of type number"),
            ({"zone": "all", "degrees": True}, "not of type number"),
            ({"zone": "all", "degrees": 12}, "below 16"),
            ({"zone": "all", "degrees": 31}, "above 28"),
            ({"zone": "all", "fan": 3}, "has no argument fan"),
        ],
    )
    def test_each_way_to_break_it(self, arguments: object, said: str) -> None:
        assert [said in detail for detail in self.broken(arguments)] == [True]

    def test_order_is_checked_over_the_steps_before(self) -> None:
        rules = [
            Constraint("ask_first", Check.AGENT_SPOKE_BEFORE, Guard(tool="open"), "safety agent"),
            Constraint("look_first", Check.TOOL_CALLED_BEFORE, Guard(tool="open", first=2), "look"),
        ]
        opens = {"tool_calls": (ToolCall(name="open"),)}
        steps = [step_of(0, "A", **opens), step_of(1, "SafetyAgent"), step_of(2, "A", **opens)]
        assert [(v.constraint, v.step) for v in check(rules, steps)] == [("ask_first", 0), ("look_first", 2)]

    def test_the_real_schemas_of_an_in_car_assistant_fit_its_good_runs(self, shared_data: Path) -> None:
        """58 tools. One run earned its reward with a tool whose parameter the benchmark had taken away."""
        from cockpithat.formats.registry import load

        schemas = json.loads((shared_data / "car-bench" / "tools.json").read_text(encoding="utf-8"))
        constraints = from_schemas(schemas)
        assert len(constraints) > 100
        runs = [p for p in sorted((shared_data / "car-bench").glob("*_*.json")) if "carbench" not in p.name]
        good = [trace for path in runs for trace in load(path) if not trace.failed]
        alarms = [v.detail for trace in good for v in check(constraints, trace.steps)]
        assert len(good) == 75 and alarms == ["set_fan_speed lacks level"]

    @pytest.mark.parametrize(
        "junk", [{"t": 1}, {"t": {"properties": []}}, {"t": {"properties": {"a": 1}, "required": "a"}}]
    )
    def test_what_is_no_schema_is_passed_over(self, junk: dict[str, object]) -> None:
        assert from_schemas(junk) == []

    def test_every_label_in_agentrx_data_has_a_category_of_ours(self, shared_data: Path) -> None:
        names = {
            failure["failure_category"]
            for part in ("magentic", "tau")
            for run in json.loads((shared_data / "agentrx" / f"{part}_ground_truth.json").read_text("utf-8"))
            for failure in run["failures"]
        }
        assert len(names) >= 10
        for name in names:
            theirs = read_category(name)
            assert theirs is not None and isinstance(to_ours(theirs), Category), name
        assert (
            read_category("Misinterpretation of Tool Output / Handoff Failure")
            == RxCategory.MISINTERPRETATION
        )
        assert read_category("Inconclusive (USE SPARINGLY)") == RxCategory.INCONCLUSIVE
        assert read_category("bad luck") is None


def test_a_failed_call_is_mended_by_the_same_call_of_the_same_agent() -> None:
    failed = step_of(0, tool_outputs=(ToolOutput(name="route", is_error=True),))
    worked = step_of(1, tool_outputs=(ToolOutput(name="route", content="ok"),))
    assert mends(failed, worked)
    assert not mends(failed, worked.model_copy(update={"agent": "B"}))
    assert not mends(worked, failed)


def test_a_repetition_is_the_same_call_or_nearly_the_same_words() -> None:
    call = {"tool_calls": (ToolCall(name="f", arguments={"x": 1}),)}
    other = {"tool_calls": (ToolCall(name="f", arguments={"x": 2}),)}
    assert repeats(step_of(0, **call), step_of(1, **call))
    assert not repeats(step_of(0, **call), step_of(1, **other))
    text = "the charger is two kilometres away on the left"
    assert repeats(step_of(0, text=text), step_of(1, text=text.title()))
    assert not repeats(step_of(0, text="ok"), step_of(1, text="ok")), "too short to say anything"
