"""Tokens of a whole panel on the 39 hand-crafted Who&When runs, against the paper's 68,287 a trace.

    python tests/bench/bench_tokens.py [--data ../shared/data]

Every request that the panel makes is counted, input (messages and the answer's JSON Schema, which endpoints
bill as well) and output, with the o200k_base vocabulary. The model is
played: it answers with a 60-word rationale and three quotes of 25 words, the longest that the prompts allow,
and either agrees with everyone (no resolution round) or with no one (a resolution round on every trace). Real
panels lie between. Exits with 1 when the mean with resolution is 34,000 or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.llm import CallRecord, ChatClient, LlmSettings, Role, RoleSettings
from cockpithat.llm.settings import CacheSettings
from cockpithat.llm.tokens import approximate_tokens, named_counter
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.settings import PanelSettings
from cockpithat.resources import resource
from cockpithat.simulator import SimulateSettings, simulate

TOKENIZER = "o200k_base"
TARGET = 34_000
PAPER = 68_287
FRAME = 4  # tokens that a chat template adds to a message
SENTENCE = "the step set a wrong course since it took a value from elsewhere and nobody checked it"

count = named_counter(TOKENIZER)


def words(number: int) -> str:
    """That many words of plain English."""
    known = SENTENCE.split()
    return " ".join(known[i % len(known)] for i in range(number))


class PlayedModel:
    """Answers in the form asked for; ``agree`` says whether all analysts name the same step and agent."""

    def __init__(self, agree: bool) -> None:
        self.agree = agree
        self.turn = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        schema = body["response_format"]["json_schema"]["schema"]["properties"]
        self.turn += 1
        content = json.dumps(self.answer(schema, self.turn))
        asked = sum(count(message["content"]) + FRAME for message in body["messages"])
        asked += count(json.dumps(body["response_format"]["json_schema"], separators=(",", ":")))
        usage = {"prompt_tokens": asked, "completion_tokens": count(content)}
        message = {"role": "assistant", "content": content}
        return httpx.Response(
            200, json={"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        )

    def answer(self, fields: dict[str, Any], turn: int) -> dict[str, Any]:
        """The longest answer that the prompts allow."""
        if "salient" in fields:
            flag = {
                "step": 1, "tag": "safety_violation", "salience": 0.9, "priority": "high", "strength": 3,
                "why": words(3),
            }  # fmt: skip
            return {"salient": [flag] * 3}
        agents = fields.get("agent", {}).get("enum", [""])
        pick = 1 if self.agree else turn
        values = {
            "step": pick % 5,
            "agent": agents[pick % len(agents)],
            "omission": False,
            "category": "planning_failure",
            "asil": "A",
            "confidence": 0.7,
            "rationale": words(60),
            "evidence": [{"step": 1, "quote": words(25)}] * 3,
        }
        return {name: values[name] for name in fields}


@dataclass(frozen=True)
class Cost:
    """Tokens of one panel, and how many of them the scan took."""

    total: int
    scan: int
    calls: int


async def measure(traces: Iterable[Trace], *, agree: bool) -> list[Cost]:
    """Run the panel on each trace."""
    role = RoleSettings(base_url="http://model.invalid/v1", model="played")
    llm = LlmSettings(analyst=role, scanner=role, cache=CacheSettings(enabled=False), trust_environment=False)
    records: list[CallRecord] = []
    costs: list[Cost] = []
    transport = httpx.MockTransport(PlayedModel(agree))
    async with ChatClient(llm, transport=transport, observe=records.append) as client:
        method = PanelAttribution(AttributionSettings(panel=PanelSettings(llm=llm)), client=client)
        for trace in traces:
            records.clear()
            report = await method.attribute(trace)
            assert report.degraded is None, report.degraded
            scan = sum(r.input_tokens + r.output_tokens for r in records if r.role == Role.SCANNER)
            costs.append(Cost(report.tokens.input + report.tokens.output, scan, len(records)))
    return costs


def show(name: str, costs: list[Cost]) -> float:
    """One line of figures; returns the mean."""
    totals = [cost.total for cost in costs]
    mean = statistics.fmean(totals)
    print(
        f"{name:44} n={len(totals):3}  mean {mean:8,.0f}  median {statistics.median(totals):8,.0f}  "
        f"max {max(totals):8,}  calls {statistics.fmean(cost.calls for cost in costs):4.1f}"
    )
    return mean


def read(folder: Path, pattern: str) -> list[Trace]:
    """All traces of a folder's files."""
    return [trace for path in sorted(folder.glob(pattern)) for trace in load(path)]


def simulated(number: int) -> list[Trace]:
    """Failed sessions of CockpitBench, longer than the demos."""
    with tempfile.TemporaryDirectory() as folder:
        traces: list[Trace] = []
        for played in simulate(SimulateSettings(traces=number, seed=3)):
            path = Path(folder) / f"{played.start.session_id}.jsonl"
            path.write_text("".join(f"{record.model_dump_json()}\n" for record in played.records()))
            traces += load(path, "cockpit")
    return [trace for trace in traces if trace.is_judged]


def main() -> int:
    """Print the figures; 1 when the target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    data: Path = parser.parse_args().data
    crafted = read(data / "whowhen/hand-crafted", "*.json")
    generated = read(data / "whowhen/algorithm-generated", "*.json")
    cockpit = read(resource("data/demo"), "*.yaml")
    print(f"tokens of a whole panel, input and output, by {TOKENIZER}")
    if not crafted:
        print(f"no hand-crafted runs under {data}", file=sys.stderr)
        return 1
    show("hand-crafted, all agree", asyncio.run(measure(crafted, agree=True)))
    mean = show("hand-crafted, resolution on every trace", asyncio.run(measure(crafted, agree=False)))
    show("algorithm-generated, resolution on every trace", asyncio.run(measure(generated, agree=False)))
    for name, traces in (("cockpit demos", cockpit), ("CockpitBench, seed 3", simulated(24))):
        for agree in (True, False):
            scanned = asyncio.run(measure(traces, agree=agree))
            show(f"{name} with the scan, {'all agree' if agree else 'resolution'}", scanned)
            scan = statistics.fmean(cost.scan for cost in scanned)
            whole = statistics.fmean(cost.total for cost in scanned)
            print(f"  scan: mean {scan:,.0f} tokens: {scan / whole:.1%} of its panel, {scan / TARGET:.1%} of "
                  f"{TARGET:,}, {scan / PAPER:.1%} of {PAPER:,}")  # fmt: skip
    text = "\n".join(step.text for trace in crafted for step in trace.steps)
    ratio = approximate_tokens(text) / count(text)
    print(f"approx-1 against {TOKENIZER} on the hand-crafted texts: {ratio:.3f}")
    print(f"target: under {TARGET:,}; the paper: {PAPER:,} (its own tokenizer); {mean / PAPER:.0%} of it")
    return 0 if mean < TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
