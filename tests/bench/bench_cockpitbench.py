"""What CockpitBench is in figures, and what making it costs: ``python -m tests.bench.bench_cockpitbench``.

Prints the composition, the strongest rules of thumb, the annotators' agreement (a setting) and the time.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from statistics import mean, pstdev

from cockpithat.contract.base import Asil, Category
from cockpithat.simulator import SimulateSettings, agreement, simulate
from cockpithat.simulator.marginals import entropy
from tests.simulator.rules import all_rules


def main() -> None:
    """Simulates once and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=212)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, cpu = time.perf_counter(), time.process_time()
    bench = list(simulate(SimulateSettings(traces=args.traces, seed=args.seed)))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    records = [s.label.scenario for s in bench]
    golds = [s.label.gold for s in bench if s.label.gold is not None]
    print(f"n {len(bench)}, seed {args.seed}: {cpu:.1f} s of one core ({wall:.1f} s by the clock)")
    for name, values in (
        ("turns", [r.turns for r in records]),
        ("steps", [r.steps for r in records]),
        ("seconds", [r.seconds for r in records]),
        ("active agents", [r.active_agents for r in records]),
    ):
        print(f"{name}: mean {mean(values):.1f}, SD {pstdev(values):.1f}, {min(values)} to {max(values)}")
    for asil in (Asil.A, Asil.B, Asil.C, Asil.D):
        counts = Counter(g.category for g in golds if g.asil == asil)
        column = [counts[c] for c in Category]
        share = max(column) / sum(column)
        print(f"ASIL {asil}: n {sum(column)}, max {share:.3f}, H {entropy(column):.3f} bit, {column}")
    print("families:", dict(sorted(Counter(r.family for r in records).items())))
    print("held out:", sum(r.held_out for r in records))
    print("snapshots:", sum(len(s.snapshots) for s in bench))
    rates = []
    for name, rule in all_rules():
        hits = sum(s.label.gold is not None and rule(s) == s.label.gold.step for s in bench)
        rates.append((hits / len(golds), name))
    rates.sort(reverse=True)
    print(f"rules of thumb tried: {len(rates)}; strongest:")
    for rate, name in rates[:6]:
        print(f"  {rate:.3f}  {name}")
    print("annotators (a setting):", agreement(s.label for s in bench))


if __name__ == "__main__":
    main()
