"""Signal i: a step mentions what an earlier one introduced."""

from __future__ import annotations

import pytest

from cockpithat.contract.trace import Signal
from cockpithat.graph import GraphSettings, build_graph
from tests.graph.making import links, steps


@pytest.mark.parametrize(
    ("first", "later", "what"),
    [
        ("I found https://maps.example/poi/7.", "Opening https://maps.example/poi/7 now", "https://maps.example/poi/7"),
        ("The route is rll_war_ham_503836", "take rll_war_ham_503836, it is faster", "rll_war_ham_503836"),
        ("saved as clients_2024.csv", "reading clients_2024.csv gives nothing", "clients_2024.csv"),
        ("see Vehicle.Cabin.HVAC.IsRecirculationActive", "so Vehicle.Cabin.HVAC.IsRecirculationActive is",
         "Vehicle.Cabin.HVAC.IsRecirculationActive"),
        ("It costs $1,234.50 there", "so we pay $1234.5", "$1234.5"),
        ("Es sind 21,5 Grad im Auto", "it shows 21.5 °C", "21.5 °C"),
        ("the stop is Potash Markets on the left", "then go to Potash Markets", "Potash Markets"),
        ("he wrote “turn left at the mill”", 'it says "Turn left at the  mill"', "Turn left at the mill"),
        ("wir fahren nach Stuttgart und das ist weit", "is Stuttgart far", "Stuttgart"),
        ("导航到人民广场", "已经到达人民广场，请确认", "人民广场"),
        ("把温度调到24度", "当前温度为24度", "24度"),
        ("播放《青花瓷》", "正在播放《青花瓷》", "青花瓷"),
        ("ルートヴィヒ美術館へ", "ルートヴィヒは閉館", "ルートヴィヒ"),
        ("write to john.doe@example.org", "sent to john.doe@example.org", "john.doe@example.org"),
    ],
)  # fmt: skip
def test_what_an_earlier_step_introduced_is_found(first: str, later: str, what: str) -> None:
    graph = build_graph(steps(("A", first), ("B", "nothing of note"), ("C", later)))
    assert links(graph) == {(0, 2): [("reference", what)]}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("We have 3 windows and 2 doors", "open 3 of the 2"),  # plain small numbers
        ("The weather is nice. Perhaps", "Perhaps the weather turns"),  # words that stand first
        ("Das Fenster und die Tür ist nicht auf", "das Fenster ist nicht zu, die Tür bitte"),  # German nouns
        (
            '{"status": "SUCCESS", "answer": false}',
            '{"status": "FAILURE", "answer": true}',
        ),  # names of JSON fields
        ('"yes", he said', 'she said "yes" too'),  # one plain word in quotes
        ("we use NASA here", "NASA it is"),  # an acronym alone is weak
        ("it's John's and a well-known e.g. case", "it's a well-known e.g. thing"),
        ("我们可以打开它", "请打开它吧"),  # Chinese function words
    ],
)
def test_what_names_nothing_links_nothing(first: str, later: str) -> None:
    assert links(build_graph(steps(("A", first), ("B", "."), ("C", later)))) == {}


def test_two_weak_entities_together_are_enough() -> None:
    graph = build_graph(steps(("A", "we use NASA and ESRI data"), ("B", "."), ("C", "then ESRI, then NASA")))
    assert links(graph) == {(0, 2): [("reference", "ESRI"), ("reference", "NASA")]}


def test_the_edge_comes_from_the_first_mention_not_from_the_last() -> None:
    graph = build_graph(
        steps(("A", "take loc_ham_1666"), ("B", "loc_ham_1666 it is"), ("C", "at loc_ham_1666"))
    )
    assert set(links(graph)) == {(0, 1), (0, 2)}


def test_what_the_task_names_links_nothing() -> None:
    said = steps(("A", "Going to Lincoln Park in Chicago"), ("B", "."), ("C", "Lincoln Park is closed"))
    assert (0, 2) in links(build_graph(said))
    assert links(build_graph(said, task="Which markets are near Lincoln Park?")) == {}


def test_names_of_agents_link_nothing() -> None:
    said = steps(("A", "ask WebSurfer2 about it"), ("B", "."), ("C", "so WebSurfer2 will"))
    assert (0, 2) in links(build_graph(said))
    assert links(build_graph(said, roster=["WebSurfer2"])) == {}
    spoke = steps(("WebSurfer2", "hello"), ("A", "ask WebSurfer2"), ("B", "."), ("C", "so WebSurfer2 will"))
    assert links(build_graph(spoke)) == {}


def test_what_most_steps_mention_stops_linking() -> None:
    """From the fourth mention on, an entity in over 40% of the steps since its first is common ground."""
    graph = build_graph(steps(*[(f"A{i}", "about poi_cha_948882") for i in range(40)]))
    assert set(links(graph)) == {(0, 1), (0, 2), (0, 3)}


def test_a_rare_id_links_however_late_it_is_used_again() -> None:
    said = (
        [("A", "use poi_cha_948882")]
        + [(f"B{i}", "hm") for i in range(200)]
        + [("C", "poi_cha_948882 failed")]
    )
    assert set(links(build_graph(steps(*said)))) == {(0, 201)}


def test_a_heading_that_comes_back_all_the_time_is_no_reference() -> None:
    said = []
    for i in range(30):
        said += [
            (f"A{i}", "Updated Ledger Overview: nothing"),
            (f"B{i}", "."),
            (f"C{i}", "."),
            (f"D{i}", "."),
        ]
    assert len(links(build_graph(steps(*said)))) == GraphSettings().common_limit


def test_edges_beyond_the_lookback_are_counted_not_drawn() -> None:
    said = steps(("A", "use poi_cha_948882"), *[("B", "hm")] * 5, ("C", "poi_cha_948882 failed"))
    graph = build_graph(said, GraphSettings(lookback=5))
    assert (0, 6) not in links(graph)
    assert graph.lost_to_lookback == 1
    assert graph.lookback == 5
    assert build_graph(said, GraphSettings(lookback=6)).lost_to_lookback == 0


def test_over_the_cap_the_lightest_references_go_first_and_are_counted() -> None:
    said = [(f"A{i}", f"Harbour Number{i} Street" if i % 2 else f"poi_cha_{1000 + i}") for i in range(10)]
    said.append(("B", " and ".join(text for _, text in said)))
    graph = build_graph(steps(*said), GraphSettings(max_edges_per_step=5))
    assert set(links(graph)) == {(source, 10) for source in (0, 2, 4, 6, 8)}, "ids weigh more than names"
    assert graph.lost_to_cap == 5


def test_memory_and_intended_signals_are_entities() -> None:
    graph = build_graph(
        steps(
            {"agent": "MemoryAgent", "memory": ({"key": "home address", "access": "write"},)},
            {"agent": "VehicleAgent", "intended": ({"path": "Vehicle.Cabin.Sunroof.Position", "value": 50},)},
            {"agent": "NavigationAgent", "memory": ({"key": "home address"},)},
            {"agent": "SafetyAgent", "text": "Vehicle.Cabin.Sunroof.Position must stay shut"},
        )
    )
    assert links(graph) == {
        (0, 2): [("reference", "home address")],
        (1, 3): [("reference", "Vehicle.Cabin.Sunroof.Position")],
    }


def test_the_oldest_entity_is_forgotten_when_the_index_is_full() -> None:
    settings = GraphSettings(max_index_entries=100)
    said = [("A", "use poi_cha_948882")]
    said += [(f"B{i}", " ".join(f"id_{i}_{j}x" for j in range(50))) for i in range(2)]
    early = build_graph(steps(*said[:2], ("C", "poi_cha_948882")), settings)
    late = build_graph(steps(*said, ("C", "poi_cha_948882")), settings)
    assert set(links(early)) == {(0, 2)}
    assert links(late) == {}


def test_evidence_is_one_short_line() -> None:
    long = "https://maps.example/" + "a" * 300
    graph = build_graph(steps(("A", long), ("B", "."), ("C", f"see {long}")))
    ((_, what),) = links(graph)[0, 2]
    assert len(what) <= 64
    assert what.endswith("…")


def test_signals_name_where_the_entity_came_from() -> None:
    said = steps(
        {"agent": "tool", "tool_outputs": ({"name": "search", "content": {"id": "poi_cha_948882"}},)},
        ("B", "."),
        ("C", "poi_cha_948882"),
    )
    assert set(links(build_graph(said), Signal.TOOL)) == {(0, 2)}
    assert links(build_graph(said), Signal.REFERENCE) == {}


def test_a_system_prompt_is_common_ground() -> None:
    said = steps(
        {
            "agent": "system",
            "mode": "system",
            "text": "Rules for poi_cha_948882. Steps:\n1. Always check tyre pressure",
        },
        ("A", "poi_cha_948882"),
        ("B", "poi_cha_948882 and tyre pressure check always"),
    )
    assert links(build_graph(said)) == {}
