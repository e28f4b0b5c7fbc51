"""One batch, one stream or any cut: the same graph; and the work for a step does not grow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import SourceRef, Step, TraceGraph
from cockpithat.formats.registry import load
from cockpithat.graph import GraphSettings, IncrementalGraph, build_graph
from cockpithat.session.effects import TraceClosed
from cockpithat.session.engine import SessionEngine
from cockpithat.session.settings import EngineSettings
from tests.graph.making import cuts, random_steps

TRACES = 500
ORDERS = 20


def test_any_cut_gives_the_same_graph() -> None:
    """Interim graphs are asked for between the batches: looking must not change anything."""
    rng = random.Random(11)
    for _ in range(TRACES):
        trace = random_steps(rng, rng.randint(1, 24))
        whole = build_graph(trace)
        for _ in range(2):
            graph = IncrementalGraph()
            taken = 0
            for batch in cuts(rng, trace):
                for step in batch:
                    graph.add(step)
                taken += len(batch)
                assert graph.to_wire().edges == tuple(e for e in whole.edges if e.target < taken)
            assert graph.to_wire() == whole


def test_500_random_traces_in_20_arrival_orders_each_give_the_graph_made_in_one_go() -> None:
    """Through the session engine: order of arrival, cut and interleaving of two sessions are random."""
    rng = random.Random(500)
    settings = EngineSettings(reorder_events=16)
    edges = 0
    for number in range(0, TRACES, 2):
        pair = [_Session(f"s{number + at}", random_steps(rng, rng.randint(2, 10))) for at in (0, 1)]
        expected = {session.name: session.graph for session in pair}
        edges += sum(len(graph.edges) for graph in expected.values())
        for _ in range(ORDERS):
            arrivals = [event for session in pair for event in session.shuffled(rng, within=12)]
            arrivals = _interleaved(rng, arrivals)
            assert _assembled(settings, arrivals) == expected
    assert edges > 5 * TRACES, "graphs without edges would prove nothing"


@pytest.mark.parametrize("settings", [GraphSettings(), GraphSettings(lookback=20, max_index_entries=500)])
def test_work_per_step_is_the_same_in_a_trace_of_10_000_steps(settings: GraphSettings) -> None:
    steps = random_steps(random.Random(7), 10_000)
    short = _operations(steps[:100], settings)
    long = _operations(steps, settings)
    assert sum(long) / 10_000 <= 2 * sum(short) / 100
    assert sum(long[-1_000:]) / 1_000 <= 2 * sum(short) / 100, "and it is not the mean that hides a growth"


@pytest.mark.data
@pytest.mark.parametrize("split", ["hand-crafted", "algorithm-generated"])
def test_work_per_step_does_not_grow_on_real_texts(shared_data: Path, split: str) -> None:
    """All runs of a split, one behind the other and over again, as one endless trace."""
    files = sorted((shared_data / "whowhen" / split).glob("*.json"))
    real = [step for file in files for trace in load(file) for step in trace.steps if len(step.text) < 3_000]
    steps = [step.model_copy(update={"event_id": ""}) for step in (real * (10_000 // len(real) + 1))[:10_000]]
    work = _operations(steps, GraphSettings())
    first_round, last_round = work[: len(real)], work[-len(real) :]
    assert sum(last_round) <= 2 * sum(first_round)
    for at in range(
        0, len(real) - 100, 100
    ):  # the same texts, when 100 steps were known, and when 9,000 were
        again = len(real) * (9_000 // len(real)) + at
        assert sum(work[again : again + 100]) <= 2 * sum(_operations(steps[at : at + 100], GraphSettings()))


def test_edges_into_one_step_are_bounded() -> None:
    settings = GraphSettings(max_edges_per_step=4)
    steps = random_steps(random.Random(3), 400)
    graph = build_graph(steps, settings)
    fan_in: dict[int, int] = {}
    for edge in graph.edges:
        fan_in[edge.target] = fan_in.get(edge.target, 0) + 1
        assert len(edge.evidence) <= settings.max_evidence_per_edge
    assert max(fan_in.values()) == 4
    assert graph.lost_to_cap > 0


class _Session:
    """A random session as events, and the graph its trace must get."""

    def __init__(self, name: str, steps: Sequence[Step]) -> None:
        self.name = name
        task = "Drive to Hotel Number3 Plaza, loc_5_7919"
        roster = ({"name": "VehicleAgent"}, {"name": "SafetyAgent"})
        self.graph = build_graph(steps, task=task, roster=[agent["name"] for agent in roster])
        common = {"vehicle_id": "v1", "session_id": name}
        start = SessionStart.model_validate(
            {"event_id": "start", "seq": 0, "ts": 1_000_000, "task": task, "roster": roster, **common}
        )
        fields = set(StepEvent.model_fields) & set(Step.model_fields) - {"seq", "ts"}
        said = [
            StepEvent.model_validate(
                {**step.model_dump(include=fields), "seq": index + 1, "ts": 1_000_000 + index, **common}
            )
            for index, step in enumerate(steps)
        ]
        end = SessionEnd.model_validate(
            {"event_id": "end", "seq": len(steps) + 1, "ts": 1_000_000 + len(steps), "failed": True, **common}
        )
        self.events: list[SessionStart | StepEvent | SessionEnd] = [start, *said, end]

    def shuffled(self, rng: random.Random, within: int) -> list[SessionStart | StepEvent | SessionEnd]:
        """The events in an order in which none comes more than ``within`` places late."""
        late = sorted(range(len(self.events)), key=lambda at: at + rng.uniform(0, within))
        return [self.events[at] for at in late]


def _interleaved(
    rng: random.Random, events: list[SessionStart | StepEvent | SessionEnd]
) -> list[SessionStart | StepEvent | SessionEnd]:
    by_session: dict[str, list[SessionStart | StepEvent | SessionEnd]] = {}
    for event in events:
        by_session.setdefault(event.session_id, []).append(event)
    queues = [iter(queue) for queue in by_session.values()]
    mixed: list[SessionStart | StepEvent | SessionEnd] = []
    while queues:
        queue = rng.choice(queues)
        batch = list(islice(queue, rng.randint(1, 5)))
        if not batch:
            queues.remove(queue)
        mixed += batch
    return mixed


def _assembled(
    settings: EngineSettings, events: list[SessionStart | StepEvent | SessionEnd]
) -> dict[str, TraceGraph | None]:
    engine = SessionEngine(settings)
    effects = []
    for offset, event in enumerate(events):
        source = SourceRef(topic="t", offset=offset)
        effects += engine.apply(event, source, size=100, broker_ts=event.ts, wall_ms=event.ts)
    effects += engine.flush(2_000_000)
    assert all(isinstance(effect, TraceClosed) for effect in effects), effects
    return {
        effect.trace.session_id: effect.trace.graph for effect in effects if isinstance(effect, TraceClosed)
    }


def _operations(steps: Sequence[Step], settings: GraphSettings) -> list[int]:
    graph = IncrementalGraph(settings)
    work = []
    for step in steps:
        before = graph.operations
        graph.add(step)
        work.append(graph.operations - before)
    return work
