"""Calls and tokens a trace of every method with a model, on the Who&When runs at hand.

``python -m tests.bench.bench_methods [RUNS]`` asks a played model and counts requests with ``o200k_base``:
what is sent, schema included, and what comes back. The model answers every form correctly and briefly; in
step-by-step it says "no" at every step, so that each log is read to its end. RUNS is the number of runs a
split, evenly spread over their lengths; default: all.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

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
from tests.methods.support import Rig, player
from tests.support.chat_server import Reply, Request, serve

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "whowhen"
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


def runs(split: str, most: int | None) -> list[Trace]:
    """Runs of a split by size, all or evenly spread."""
    files = sorted((DATA / split).glob("*.json"), key=lambda path: path.stat().st_size)
    if most is not None and most < len(files):
        files = [files[i * (len(files) - 1) // max(most - 1, 1)] for i in range(most)]
    return [trace for path in files for trace in load(path)]


async def main(most: int | None) -> None:
    """Print the table."""
    count = named_counter("o200k_base")
    for split in ("algorithm-generated", "hand-crafted"):
        traces = runs(split, most)
        for kind in METHODS:
            spent = {"calls": 0, "in": 0, "out": 0}

            def counted(request: Request, spent: dict[str, int] = spent) -> Reply:
                reply = player()(request)
                schema = json.dumps(request.body["response_format"]["json_schema"]["schema"])
                spent["calls"] += 1
                spent["in"] += count(request.prompt) + count(schema)
                spent["out"] += count(reply.content or "")
                return reply

            with serve(counted) as server:
                async with Rig(server, scanner=True) as rig:
                    method = rig.method(kind)
                    for trace in traces:
                        await method.attribute(trace)
            n = len(traces)
            print(
                f"{split} n={n} {kind.name}: {spent['calls'] / n:.1f} calls, "
                f"{spent['in'] / n:,.0f} in, {spent['out'] / n:,.0f} out"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
