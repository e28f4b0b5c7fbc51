"""Real in-car runs (CAR-bench) through the engine: all at once, in bad order, twice delivered."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import ToolCall, ToolOutput
from cockpithat.graph.builder import build_graph
from cockpithat.session.settings import EngineSettings
from tests.session.support import Bench, Event, end, reasons, start, step, traces
from tests.session.test_properties import displaced, without_sources


def runs(folder: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted(folder.glob("*.json")):
        data = json.loads(file.read_text())
        if isinstance(data, list):
            found += [run for run in data if isinstance(run, dict) and "traj" in run]
    return found


def events(number: int, run: dict[str, Any]) -> list[Event]:
    """A run as our own events, a second a message; twenty vehicles share all runs."""
    name, vehicle = f"run{number}", f"v{number % 20}"
    made: list[Event] = [start(name, vehicle, timestamps_synthetic=True)]
    for message in run["traj"]:
        calls = tuple(
            ToolCall(
                name=call["function"]["name"], arguments=call["function"]["arguments"], call_id=call["id"]
            )
            for call in message.get("tool_calls") or ()
        )
        is_tool = message["role"] == "tool"
        output = ToolOutput(call_id=message.get("tool_call_id"), content=message.get("content"))
        made.append(
            step(
                len(made),
                name,
                vehicle,
                agent=message["role"],
                text="" if is_tool else str(message.get("content") or ""),
                tool_calls=calls,
                tool_outputs=(output,) if is_tool else (),
            )
        )
    outcome = Outcome.SUCCESS if run["reward"] else Outcome.FAILURE
    made.append(end(len(made), name, vehicle, outcome=outcome))
    return made


@pytest.mark.data
def test_all_real_runs_come_out_whole_whatever_the_order_of_arrival(shared_data: Path) -> None:
    lanes = [events(number, run) for number, run in enumerate(runs(shared_data / "car-bench"))]
    assert len(lanes) == 103
    alone = {}
    for lane in lanes:
        bench = Bench()
        (trace,) = traces(bench.feed(*lane))
        assert trace.graph == build_graph(trace.steps)
        assert len(trace.steps) == len(lane) - 2
        alone[trace.session_id] = without_sources(trace)

    rng = random.Random(103)
    waiting = [displaced(lane, 30, rng) for lane in lanes]
    # An end may overtake thirty messages here, which made-up times put half a minute apart.
    bench = Bench(EngineSettings(grace_ms=600_000, end_wait_ms=120_000))
    while any(waiting):
        lane = rng.choice([lane for lane in waiting if lane])
        event = lane.pop(0)
        bench.feed(event, event) if rng.random() < 0.05 else bench.feed(event)
        bench.wait(rng.choice([0, 0, 0, 30]))
    closed = traces(bench.effects)
    assert {trace.session_id: without_sources(trace) for trace in closed} == alone
    assert len(closed) == 103
    assert sum(trace.is_judged for trace in closed) == 28
    assert set(reasons(bench.effects)) == {"duplicate"}
    assert bench.engine.hold_offset is None
