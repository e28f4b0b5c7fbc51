"""Signals iii (tool) and iv (control)."""

from __future__ import annotations

import pytest

from cockpithat.contract.trace import Signal
from cockpithat.graph import build_graph
from tests.graph.making import links, steps


def test_a_call_its_output_and_the_step_that_reads_it() -> None:
    graph = build_graph(
        steps(
            {"agent": "assistant", "tool_calls": ({"name": "get_route", "call_id": "call_1"},)},
            {"agent": "tool", "tool_outputs": ({"name": "get_route", "call_id": "call_1", "content": "ok"},)},
            {"agent": "assistant", "text": "There you are"},
            {"agent": "assistant", "text": "and more"},
        )
    )
    assert links(graph) == {
        (0, 1): [("control", "call of get_route")],
        (1, 2): [("tool", "result of get_route")],
        (2, 3): [("control", "assistant continues its turn")],
    }


def test_call_and_output_in_one_step_are_read_by_the_agents_next_step() -> None:
    call = {"name": "get_route", "call_id": "call_1"}
    output = {"call_id": "call_1", "content": "no route", "is_error": True}
    graph = build_graph(
        steps(
            {"agent": "NavigationAgent", "tool_calls": (call,), "tool_outputs": (output,)},
            ("Director", "."),
            ("NavigationAgent", "Arrival in no time"),
        )
    )
    assert links(graph) == {(0, 2): [("tool", "error of get_route")]}


def test_outputs_without_an_id_answer_the_oldest_open_call_of_that_name() -> None:
    said = steps(
        {"agent": "A", "tool_calls": ({"name": "open"}, {"name": "close"})},
        {"agent": "A", "tool_calls": ({"name": "open"},)},
        {"agent": "t", "tool_outputs": ({"name": "close"},)},
        {"agent": "t", "tool_outputs": ({"name": "open"},)},
        {"agent": "t", "tool_outputs": ({"name": "open"},)},
    )
    calls = {edge for edge, why in links(build_graph(said), Signal.CONTROL).items() if "call of" in why[0][1]}
    assert calls == {(0, 2), (0, 3), (1, 4)}


@pytest.mark.parametrize(
    ("content", "use"),
    [
        ({"routes": [{"route_id": "rll_war_ham_503836"}]}, "taking rll_war_ham_503836"),
        ('{"routes": [{"route_id": "rll_war_ham_503836"}]}', "taking rll_war_ham_503836"),
        ("the route is rll_war_ham_503836", "taking rll_war_ham_503836"),
        ({"price": 1234.5}, "that makes $1,234.50, or 1234.5"),
        ({"name": "Tesla Supercharger"}, "there is a Tesla Supercharger"),
    ],
)
def test_a_value_from_a_result_used_later(content: object, use: str) -> None:
    said = steps(
        {"agent": "t", "tool_outputs": ({"name": "search", "content": content},)}, ("B", "."), ("C", use)
    )
    assert set(links(build_graph(said), Signal.TOOL)) == {(0, 2)}


def test_a_small_number_counts_together_with_its_field() -> None:
    said = steps(
        {
            "agent": "t",
            "tool_outputs": ({"name": "climate", "content": {"target_temperature": 21, "fan": 3}},),
        },
        ("B", "."),
        {"agent": "C", "tool_calls": ({"name": "set", "arguments": {"target_temperature": 21}},)},
        {"agent": "D", "tool_calls": ({"name": "set", "arguments": {"seat": 21}},)},
    )
    assert links(build_graph(said), Signal.TOOL) == {(0, 2): [("tool", "target_temperature=21")]}


def test_a_call_id_named_in_text_refers_to_its_output() -> None:
    said = steps(
        {"agent": "t", "tool_outputs": ({"call_id": "toolu_01Y4FhZc", "content": "ok"},)},
        ("B", "."),
        ("C", "as toolu_01Y4FhZc says"),
    )
    assert links(build_graph(said)) == {(0, 2): [("tool", "toolu_01Y4FhZc")]}


def test_code_in_text_is_run_and_its_result_read() -> None:
    graph = build_graph(
        steps(
            ("Excel_Expert", "```python\nprint(4)\n```"),
            ("Computer_terminal", "exitcode: 0 (execution succeeded)\nCode output: 4"),
            ("Data_Expert", "The result is confirmed"),
            ("Computer_terminal", "There is no code from the last 1 message for me to execute."),
            ("Data_Expert", "TERMINATE"),
        )
    )
    assert links(graph) == {
        (0, 1): [("control", "code of Excel_Expert is run")],
        (1, 2): [("tool", "result of the code that was run")],
    }


def test_a_dispatch_reaches_the_agents_whole_turn_and_its_report_comes_back() -> None:
    graph = build_graph(
        steps(
            {"agent": "Orchestrator", "target": "WebSurfer", "text": "go"},
            {"agent": "Orchestrator", "mode": "ledger", "text": "next"},
            {"agent": "Websurfer", "text": "clicking"},
            {"agent": "WebSurfer", "text": "clicked"},
            {"agent": "Orchestrator", "text": "good"},
            {"agent": "WebSurfer", "text": "unasked"},
        )
    )
    assert links(graph, Signal.CONTROL) == {
        (0, 1): [("control", "Orchestrator continues its turn")],
        (0, 2): [("control", "Orchestrator calls WebSurfer")],
        (0, 3): [("control", "Orchestrator calls WebSurfer")],
        (3, 4): [("control", "WebSurfer reports back")],
    }


def test_dispatches_to_several_agents_come_back_to_one() -> None:
    graph = build_graph(
        steps(
            {"agent": "Director", "target": "NavigationAgent"},
            {"agent": "Director", "target": "SafetyAgent"},
            ("SafetyAgent", "fine"),
            ("NavigationAgent", "routed"),
            ("Director", "done"),
        )
    )
    assert {(0, 3), (1, 2), (2, 4), (3, 4)} <= set(links(graph, Signal.CONTROL))


def test_a_call_to_everyone_reaches_who_answers_first() -> None:
    graph = build_graph(
        steps({"agent": "Director", "target": "everyone"}, ("SafetyAgent", "ok"), ("Director", "good"))
    )
    assert links(graph, Signal.CONTROL) == {
        (0, 1): [("control", "Director calls everyone")],
        (1, 2): [("control", "SafetyAgent reports back")],
    }


def test_a_reply_points_to_what_it_answers() -> None:
    said = steps(
        ("A", "one"), ("B", "two"), {"agent": "C", "in_reply_to": "e0"}, {"agent": "D", "in_reply_to": "e77"}
    )
    assert links(build_graph(said)) == {(0, 2): [("control", "in reply to")]}


def test_turns_between_the_person_and_the_assistant() -> None:
    said = steps(("driver", "Open it"), ("VehicleAgent", "Really?"), ("driver", "Yes"), ("driver", "Go on"))
    assert links(build_graph(said)) == {
        (0, 1): [("control", "VehicleAgent answers driver")],
        (1, 2): [("control", "driver answers VehicleAgent")],
        (2, 3): [("control", "driver continues its turn")],
    }


def test_control_beyond_the_lookback_is_counted() -> None:
    from cockpithat.graph import GraphSettings

    said = steps({"agent": "A", "target": "Z"}, *[(f"B{i}", ".") for i in range(9)], ("Z", "late"))
    graph = build_graph(said, GraphSettings(lookback=9))
    assert links(graph) == {}
    assert graph.lost_to_lookback == 1
