"""Tables 2 and 6 with an endpoint of your own: rungs I1 to I6 and backbones on the Who&When runs at hand.

    python -m tests.bench.bench_ladder --base-url URL --model NAME [--model NAME] [--api-key-env VARIABLE]
        [--rung I1 ...] [--split hand-crafted ...] [--limit N] [--cache DIR]

Strict scoring: the agent's name (blind to case), the exact step. A run on which the panel could not answer
counts as wrong and is reported. Intervals are Wilson's, 95%. Gold labels are read here and reach no prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from dataclasses import dataclass
from pathlib import Path

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.labels import GoldLabel, read_whowhen_labels
from cockpithat.llm import LlmSettings, RoleSettings
from cockpithat.llm.settings import CacheSettings
from cockpithat.panel.ladder import Rung
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.settings import PanelSettings

SPLITS = ("hand-crafted", "algorithm-generated")


def share(hits: int, n: int) -> str:
    """A share with its interval, percent."""
    z, p = 1.96, hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return f"{100 * p:5.1f} [{100 * (middle - half):4.1f}, {100 * (middle + half):4.1f}]"


@dataclass
class Score:
    """Hits of one rung on one split."""

    n: int = 0
    agent: int = 0
    step: int = 0
    degraded: int = 0
    tokens: int = 0
    cost: float = 0.0

    def line(self) -> str:
        """The figures on one line."""
        return (
            f"n={self.n}  agent {share(self.agent, self.n)}  step {share(self.step, self.n)}  "
            f"tokens {self.tokens / self.n:,.0f}  cost {self.cost:.2f}  no answer {self.degraded}"
        )


async def run(settings: PanelSettings, runs: list[tuple[Trace, GoldLabel]]) -> Score:
    """One configuration on all runs of a split."""
    score = Score()
    method = PanelAttribution(AttributionSettings(panel=settings))
    try:
        for trace, gold in runs:
            report = await method.attribute(trace)
            score.n += 1
            score.tokens += report.tokens.input + report.tokens.output
            score.cost += report.cost or 0.0
            score.degraded += report.degraded is not None
            if report.degraded is None:
                score.agent += gold.names_agent(report.agent)
                score.step += report.step == gold.step
    finally:
        await method.close()
    return score


def main() -> int:
    """Print a line for each backbone, split and rung."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--api-key-env")
    parser.add_argument("--rung", action="append", type=Rung, choices=list(Rung))
    parser.add_argument("--split", action="append", choices=SPLITS)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--cache", type=Path, help="folder for answers, so that a stopped run goes on")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    chosen = parser.parse_args()
    for split in chosen.split or SPLITS:
        files = sorted((chosen.data / "whowhen" / split).glob("*.json"))[: chosen.limit]
        runs = [pair for path in files for pair in zip(load(path), read_whowhen_labels(path), strict=True)]
        if not runs:
            parser.error(f"no runs in {chosen.data / 'whowhen' / split}")
        for model in chosen.model:
            role = RoleSettings(base_url=chosen.base_url, model=model, api_key_env=chosen.api_key_env)
            for rung in chosen.rung or list(Rung):
                llm = LlmSettings(analyst=role, cache=CacheSettings(directory=chosen.cache))
                score = asyncio.run(run(PanelSettings(llm=llm, rung=rung), runs))
                print(f"{split:20} {model:24} {rung}  {score.line()}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
