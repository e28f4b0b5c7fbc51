"""Signal ii: a step carries out or refines a plan or commitment."""

from __future__ import annotations

import pytest

from cockpithat.contract.trace import Signal
from cockpithat.graph import build_graph
from tests.graph.making import links, steps


def test_items_are_followed_by_their_id() -> None:
    said = steps(
        {"agent": "Director", "plan": ({"id": "p1", "text": "x"}, {"id": "p2", "text": "y"})},
        {"agent": "VehicleAgent", "plan_item": "p2"},
        {"agent": "Director", "plan": ({"id": "p1", "text": "x, slowly"},)},
        {"agent": "VehicleAgent", "plan_item": "p1"},
        {"agent": "VehicleAgent", "plan_item": "p9"},
    )
    assert links(build_graph(said), Signal.PLAN) == {
        (0, 1): [("plan", "carries out p2")],
        (0, 2): [("plan", "refines p1")],
        (2, 3): [("plan", "carries out p1")],
    }


@pytest.mark.parametrize(
    ("proposed", "done"),
    [
        (
            "Here is the plan:\n1. Look up opening hours of markets\n2. Compare salad prices listed online",
            "Comparing salad prices that are listed online",
        ),
        ("I will lower the rear windows by a hand.", "rear windows lowered by a hand"),
        ("Shall I open the trunk door for you?", "opening trunk door"),
        ("Just to confirm - you want me to open the trunk door, right?", "open_close_trunk_door"),
        ("Ich werde die hinteren Fenster langsam öffnen.", "hintere Fenster öffnen sich langsam"),
        ("接下来我将打开后排车窗并调低温度", "打开后排车窗并调低温度"),
        ('{"instruction": {"answer": "Please search markets close to the old harbour"}}',
         "search for markets close to the old harbour"),
    ],
)  # fmt: skip
def test_text_that_shares_a_proposals_words_carries_it_out(proposed: str, done: str) -> None:
    said = steps(("A", proposed), ("B", "."), {"agent": "C", "tool_calls": ({"name": done},)})
    assert set(links(build_graph(said), Signal.PLAN)) == {(0, 2)}


def test_a_list_that_is_no_plan_proposes_nothing() -> None:
    listed = "- bananas, apples and pears\n- bread, butter and cheese"
    assert links(build_graph(steps(("A", listed), ("B", "."), ("C", "bread, butter and cheese")))) == {}


def test_words_of_the_task_alone_do_not_carry_out_a_plan() -> None:
    said = steps(
        ("A", "I will count bird species on camera."), ("B", "."), ("C", "counting bird species on camera")
    )
    assert links(build_graph(said), Signal.PLAN)
    assert not links(build_graph(said, task="How many bird species are on camera?"), Signal.PLAN)


def test_a_restated_item_takes_the_place_of_the_older() -> None:
    """Each round of the same instruction depends on the one before it, not on all before it."""
    said = steps(*[(f"A{i}", "Please scroll further down the price list page.") for i in range(5)])
    assert set(links(build_graph(said), Signal.PLAN)) == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_a_thought_is_acted_on_by_the_same_agents_next_step() -> None:
    said = steps(
        {"agent": "Orchestrator", "mode": "thought", "text": "hm"},
        {"agent": "Orchestrator", "text": "go"},
        {"agent": "Orchestrator", "mode": "thought", "text": "hm"},
        {"agent": "WebSurfer", "text": "clicked"},
    )
    assert links(build_graph(said), Signal.PLAN) == {(0, 1): [("plan", "acts on the thought before")]}


def test_what_a_tool_returns_is_no_plan() -> None:
    page = "Steps to bake bread:\n1. Mix flour, water and yeast\n2. Let the dough rest overnight"
    said = steps(
        {"agent": "tool", "mode": "tool_output", "text": page},
        ("B", "."),
        ("C", "Mix flour, water and yeast"),
    )
    assert links(build_graph(said), Signal.PLAN) == {}
