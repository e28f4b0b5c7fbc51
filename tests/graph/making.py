"""Steps and traces for the graph's tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from cockpithat.contract.events import MemoryRef, PlanItem, ToolCall, ToolOutput
from cockpithat.contract.trace import Signal, Step, TraceGraph

Links = dict[tuple[int, int], list[tuple[str, str]]]


def steps(*said: tuple[str, str] | dict[str, Any]) -> list[Step]:
    """Steps from ``(agent, text)`` pairs or fields; ids are ``e0``, ``e1`` and so on."""
    made = []
    for index, fields in enumerate(said):
        if isinstance(fields, tuple):
            fields = {"agent": fields[0], "text": fields[1]}
        made.append(
            Step.model_validate({"index": index, "seq": index, "event_id": f"e{index}", "ts": index} | fields)
        )
    return made


def links(graph: TraceGraph, signal: Signal | None = None) -> Links:
    """Edges as ``(source, target)`` to their evidence, those of one signal where it is given."""
    found: Links = {}
    for edge in graph.edges:
        evidence = [(str(one.signal), one.what) for one in edge.evidence if signal in (None, one.signal)]
        if evidence:
            found[edge.source, edge.target] = evidence
    return found


_AGENTS = (
    "Director",
    "NavigationAgent",
    "VehicleAgent",
    "MemoryAgent",
    "SafetyAgent",
    "driver",
    "Computer_terminal",
)
_WORDS = (
    "check",
    "window",
    "temperature",
    "the route",
    "battery range",
    "please",
    "speed",
    "打开车窗",
    "Fenster",
    "door",
)


_PHRASES = (
    "loc_NN_7919",
    "https://maps.example/poi/NN",
    "file_NN.csv",
    "Vehicle.Cabin.Door.RowNN.IsOpen",
    "NN.5 °C",
    '"route NN via Harbour Street"',
    "Hotel NumberNN Plaza",
    "导航到人民广场第NN停车场",
    "\n1. Open window NN a little\n2. Check the tyre pressure number NN\nThis is the plan.",
    "I will set the cabin temperature of zone NN to warm.",
    "```python\nprint(1)\n```",
    '{"status": "SUCCESS", "id": "poi_NN", "level": NN}',
)


def random_text(rng: random.Random) -> str:
    """Prose, names, ids, numbers, lists, code and JSON, in three languages."""
    parts = []
    for _ in range(rng.randint(0, 7)):
        parts.append(rng.choice(_PHRASES).replace("NN", str(rng.randrange(40))))
        parts.append(rng.choice(_WORDS))
    return " ".join(parts)


def random_steps(rng: random.Random, n: int) -> list[Step]:
    """A trace that uses every field the graph reads, with calls answered late, twice or never."""
    said: list[dict[str, Any]] = []
    for _ in range(n):
        agent = rng.choice(_AGENTS)
        fields: dict[str, Any] = {"agent": agent, "text": random_text(rng)}
        chance = rng.random
        if chance() < 0.2:
            fields["mode"] = rng.choice(("thought", "plan", "tool_output", "observation", "action"))
        if chance() < 0.15:
            fields["reasoning"] = random_text(rng)
        if chance() < 0.3:
            fields["tool_calls"] = (
                ToolCall(
                    name=rng.choice(("open_window", "get_route")),
                    arguments={"zone": rng.randrange(9), "place": f"loc_{rng.randrange(40)}_x"},
                    call_id=f"call_{rng.randrange(n)}" if chance() < 0.7 else None,
                ),
            )
        if chance() < 0.3:
            fields["tool_outputs"] = (
                ToolOutput(
                    name=rng.choice(("open_window", "get_route", None)),
                    call_id=f"call_{rng.randrange(n)}" if chance() < 0.7 else None,
                    content=rng.choice(
                        (random_text(rng), {"id": f"poi_{rng.randrange(40)}", "km": rng.random() * 9})
                    ),
                    is_error=chance() < 0.2,
                ),
            )
        if chance() < 0.15:
            fields["in_reply_to"] = f"e{rng.randrange(n)}"
        if chance() < 0.25:
            fields["target"] = rng.choice((*_AGENTS, "everyone"))
        if chance() < 0.15:
            fields["plan"] = (PlanItem(id=f"p{rng.randrange(9)}", text="Lower the rear windows by a hand"),)
        if chance() < 0.15:
            fields["plan_item"] = f"p{rng.randrange(9)}"
        if chance() < 0.15:
            fields["memory"] = (MemoryRef(key=f"home of person {rng.randrange(4)}", value=random_text(rng)),)
        said.append(fields)
    return steps(*said)


def cuts(rng: random.Random, items: Sequence[Step]) -> Iterable[Sequence[Step]]:
    """The items in order, cut into batches of random length."""
    at = 0
    while at < len(items):
        size = rng.randint(1, 9)
        yield items[at : at + size]
        at += size
