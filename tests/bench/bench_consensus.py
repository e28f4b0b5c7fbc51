"""What the consensus makes of simulated analysts of known skill (figures for docs/cockpithat.md).

    python -m tests.bench.bench_consensus [--cases 4000]

Intervals are Wilson's, 95%. Simulation, not measurement: it shows what the arithmetic does under stated
assumptions (tests/support/simulated_analysts.py), not how good any model is.
"""

from __future__ import annotations

import argparse
import math

from cockpithat.contract.base import Asil
from tests.support.simulated_analysts import rate, vote

SEED = 20_260_301
SEVERE = (Asil.C, Asil.D)


def share(hits: float, n: int) -> str:
    """A share with its interval, percent."""
    z, p = 1.96, hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return f"{100 * p:5.1f} [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def main() -> int:
    """Print the three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=4_000)
    n: int = parser.parse_args().cases
    if n < 100:
        parser.error("--cases must be at least 100: fewer say nothing")

    print(f"n={n} cases a row, seed {SEED}; percent with 95% interval")
    print("\nseverity: analysts right about the rating with the given probability, else one class off")
    print(f"{'right':>6}  {'recall of C and D':36} {'rated too high':36}")
    for skill in (0.6, 0.75, 0.9):
        for name, prior in (("prior", True), ("majority", False)):
            found = rate(n, SEED, prior=prior, rating_skill=skill)
            print(
                f"{skill:6} {name:9} {share(found.recalled, found.severe):26} "
                f"{share(found.overrated, found.cases):26} n(C, D)={found.severe}"
            )

    print("\nuplift on C and D cases: three generic analysts right with 0.5, the safety analyst with")
    for skill in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        for name, uplift in (("uplift", True), ("equal", False)):
            hits = vote(n, SEED, (skill, 0.5, 0.5, 0.5), uplift=uplift, ratings=SEVERE)
            print(f"{skill:6} {name:9} step {share(hits.step, n):26} agent {share(hits.agent, n)}")

    print("\nconsensus against its mean analyst, all right with p; independent, and erring together")
    for p in (0.3, 0.4, 0.5, 0.6, 0.7):
        for together in (0.0, 0.5, 1.0):
            hits = vote(n, SEED, (p,) * 4, together=together)
            print(
                f"{p:6} together {together:3}"
                f"  step {share(hits.step, n):22} mean {100 * hits.mean_step / n:5.1f}"
                f"  agent {share(hits.agent, n):22} mean {100 * hits.mean_agent / n:5.1f}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
