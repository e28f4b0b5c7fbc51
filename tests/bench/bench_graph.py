"""What the dependency graph looks like on real runs, and what a step of it costs.

Run: ``python -m tests.bench.bench_graph [--data ../shared/data] [--repeat 5]``

Prints, per data set: density (edges per step and signal, near-linear graphs, edges left out, share of
step pairs in each layer), and cost per step beside decoding the same events from JSON. Times are CPU
seconds of one process, the median of the repeats with their range.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from cockpithat.contract.events import SESSION_EVENT, StepEvent
from cockpithat.contract.trace import Signal, Step, Trace
from cockpithat.formats.registry import load
from cockpithat.graph import (
    Distances,
    GraphSettings,
    IncrementalGraph,
    graph_shape,
    layer,
    positional_fallback,
)

SETS = {
    "Who&When hand-crafted": "whowhen/hand-crafted/*.json",
    "Who&When algorithm-generated": "whowhen/algorithm-generated/*.json",
    "CAR-bench": "car-bench/*[0-9].json",
}
LONG = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if the data is not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args(argv)
    if not args.data.is_dir():
        print(f"{args.data}: no such folder; give the real runs with --data", file=sys.stderr)
        return 1
    print(f"Python {platform.python_version()}, {platform.machine()}, {GraphSettings()!r}\n")
    for name, pattern in SETS.items():
        traces = [trace for path in sorted(args.data.glob(pattern)) for trace in load(path)]
        print(f"{name}: {len(traces)} runs, {sum(len(t.steps) for t in traces)} steps")
        _density(traces)
        _cost(traces, args.repeat)
        _growth(traces)
        print()
    return 0


def _graph(trace: Trace) -> IncrementalGraph:
    graph = IncrementalGraph(task=trace.task, roster=[agent.name for agent in trace.roster])
    for step in trace.steps:
        graph.add(step)
    return graph


def _density(traces: Sequence[Trace]) -> None:
    steps = sum(len(trace.steps) for trace in traces)
    edges = lost = capped = linear = fallback = 0
    isolated = 0.0
    per_run: list[float] = []
    signals: Counter[Signal] = Counter()
    layers: Counter[int] = Counter()
    for trace in traces:
        graph = _graph(trace).to_wire()
        n = len(trace.steps)
        shape = graph_shape(graph, n)
        edges += len(graph.edges)
        lost += graph.lost_to_lookback
        capped += graph.lost_to_cap
        linear += shape.near_linear
        fallback += positional_fallback(graph, n)
        isolated += shape.isolated_share * n
        per_run.append(shape.edges_per_step)
        for edge in graph.edges:
            signals.update({one.signal for one in edge.evidence})
        for focal, row in enumerate(Distances(graph, n)):
            layers.update(layer(distance) for other, distance in enumerate(row) if other != focal)
    pairs = max(1, sum(layers.values()))
    quartiles = statistics.quantiles(per_run, n=4)
    print(
        f"  edges per step {edges / steps:.2f} (runs: median {quartiles[1]:.2f}, "
        f"quartiles {quartiles[0]:.2f} to {quartiles[2]:.2f}); "
        + ", ".join(f"{signal} {signals[signal] / edges:.0%}" for signal in Signal)
    )
    print(
        f"  near-linear {linear} of {len(traces)} runs, by position {fallback}; steps without an edge "
        f"{isolated / steps:.1%}; lost to look-back {lost}, to the cap per step {capped}"
    )
    print("  pairs by layer " + ", ".join(f"{at}: {layers[at] / pairs:.0%}" for at in (1, 2, 3, 4)))


def _cost(traces: Sequence[Trace], repeat: int) -> None:
    events = [orjson.dumps(_event(trace, step)) for trace in traces for step in trace.steps]
    n = len(events)
    graph = _time(lambda: [_graph(trace).to_wire() for trace in traces], repeat, n)
    decode = _time(lambda: [orjson.loads(event) for event in events], repeat, n)
    validate = _time(lambda: [SESSION_EVENT.validate_json(event) for event in events], repeat, n)
    print(f"  event {sum(map(len, events)) / n:,.0f} bytes in the mean; microseconds per step:")
    for what, times in (("graph", graph), ("JSON decode", decode), ("decode and validate", validate)):
        mid = statistics.median(times)
        ratio = statistics.median(graph) / mid
        print(
            f"    {what:20} {mid:7.1f} ({min(times):.1f} to {max(times):.1f}, n={repeat})"
            + ("" if what == "graph" else f", graph is {ratio:.1f} times that")
        )


def _event(trace: Trace, step: Step) -> dict[str, object]:
    fields = set(StepEvent.model_fields) & set(Step.model_fields)
    common = {"type": "step", "vehicle_id": trace.vehicle_id, "session_id": trace.session_id}
    return {**step.model_dump(mode="json", include=fields, exclude_defaults=True), **common}


def _time(work: Callable[[], object], repeat: int, n: int) -> list[float]:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) / n * 1e6)
    return times


def _growth(traces: Sequence[Trace]) -> None:
    """The set's steps as one endless trace: operations per step at its start and at its end."""
    real = [step for trace in traces for step in trace.steps]
    steps = [step.model_copy(update={"event_id": ""}) for step in (real * (LONG // len(real) + 1))[:LONG]]
    graph = IncrementalGraph()
    work = []
    for step in steps:
        before = graph.operations
        graph.add(step)
        work.append(graph.operations - before)
    span = min(len(real), LONG // 2)
    first, last = sum(work[:span]) / span, sum(work[-span:]) / span
    print(
        f"  operations per step in {LONG:,} steps: first {span:,}: {first:.0f}, last {span:,}: {last:.0f}, "
        f"{last / first:.2f} times"
    )


if __name__ == "__main__":
    raise SystemExit(main())
