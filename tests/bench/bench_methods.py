"""Calls and tokens a trace of every method with a model, on the Who&When and tau runs at hand.

``python -m tests.bench.bench_methods [RUNS]`` asks a played model over HTTP and counts requests with
``o200k_base``: what is sent, schema included, and what comes back. The model answers every form correctly and
briefly; in step-by-step it says "no" at every step, so that each log is read to its end. RUNS is the most
runs of a data set, evenly spread over their lengths; default: 20. Every report is held against the
published schema and its trace, and must be the model's verdict; the first that is not ends the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpithat.bench.tables import markdown
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.llm.tokens import named_counter
from cockpithat.methods.agentrx.method import AgentRx
from cockpithat.methods.cascade import Cascade
from cockpithat.methods.chief import Chief
from cockpithat.methods.echo import Echo
from cockpithat.methods.falat.llm_judge import Falat
from cockpithat.methods.who_when import AllAtOnce, BinarySearch, StepByStep
from cockpithat.panel.method import PanelAttribution
from tests.methods.support import Rig, check, player
from tests.support.chat_server import Reply, Request, serve

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
METHODS: tuple[Any, ...] = (
    PanelAttribution,
    AllAtOnce,
    StepByStep,
    BinarySearch,
    Echo,
    Chief,
    AgentRx,
    Falat,
    Cascade,
)


@dataclass(frozen=True)
class Cost:
    """What a method took over ``runs`` traces in all."""

    runs: int
    calls: int
    sent: int
    received: int

    def each(self) -> str:
        """Calls, and tokens in and out, a trace."""
        calls, sent, received = (x / self.runs for x in (self.calls, self.sent, self.received))
        return f"{calls:.1f}, {sent:,.0f} / {received:,.0f}"


async def measure(kind: Any, traces: Sequence[Trace], count: Callable[[str], int]) -> Cost:
    """Judge all traces; raises ``AssertionError`` for a report that is wrong or not the model's."""
    replies: list[str] = []  # appended to by the server's threads, which counts each once

    def answer(request: Request) -> Reply:
        reply = player()(request)
        replies.append(reply.content or "")
        return reply

    with serve(answer) as server:
        async with Rig(server, scanner=True) as rig:
            method = rig.method(kind)
            for trace in traces:
                report = await method.attribute(trace)
                check(trace, report)
                assert report.degraded is None, f"{kind.name} on {trace.session_id}: {report.degraded}"
                assert report.step is not None and report.agent is not None
    sent = sum(map(count, map(_asked, server.requests)))
    return Cost(len(traces), len(server.requests), sent, sum(map(count, replies)))


def _asked(request: Request) -> str:
    schema = request.body["response_format"]["json_schema"]["schema"]
    return f"{request.prompt}\n{json.dumps(schema)}"


def spread(traces: Sequence[Trace], most: int) -> list[Trace]:
    """At most so many traces, evenly spread over their lengths in characters."""
    by_length = sorted(traces, key=lambda trace: sum(len(step.text) for step in trace.steps))
    if most >= len(by_length):
        return by_length
    return [by_length[i * (len(by_length) - 1) // max(most - 1, 1)] for i in range(most)]


def data() -> Iterator[tuple[str, list[Trace]]]:
    """The data sets by name."""
    for split in ("algorithm-generated", "hand-crafted"):
        files = sorted((DATA / "whowhen" / split).glob("*.json"))
        yield split, [trace for path in files for trace in load(path)]
    yield "tau", list(load(DATA / "agentrx" / "tau_trajectories.json"))


async def main(most: int) -> None:
    """Print the table."""
    count = named_counter("o200k_base")
    columns: list[list[Cost]] = []
    head = ["method"]
    for name, traces in data():
        chosen = spread(traces, most)
        head.append(f"{name} (n={len(chosen)}): calls, tokens in / out")
        columns.append([])
        for kind in METHODS:
            columns[-1].append(await measure(kind, chosen, count))
            print(f"{name}: {kind.name} done", file=sys.stderr, flush=True)
    rows = zip(METHODS, *columns, strict=True)
    print(markdown(head, [[f"`{kind.name}`", *(cost.each() for cost in costs)] for kind, *costs in rows]))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
