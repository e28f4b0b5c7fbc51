"""Accuracy and cost of the methods that need no language model, on the Who&When runs at hand.

``python -m tests.bench.bench_local`` prints strict accuracy (agent, step) with 95% Wilson intervals for every
local method and split, the benchmark's own lenient step score beside it, and the time to judge a trace
as a ratio to decoding its JSON.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import orjson

from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.labels import GoldLabel, read_whowhen_labels
from cockpithat.methods.registry import create, names

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "whowhen"
SPLITS = ("algorithm-generated", "hand-crafted")
Rows = list[tuple[Trace, GoldLabel]]
Judge = Callable[[Trace], Report]


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95% interval of a share, in percent."""
    if n == 0:
        return 0.0, 100.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return 100 * (middle - half), 100 * (middle + half)


def read(split: str) -> Rows:
    """Traces of a split with their labels, which are read apart."""
    rows: Rows = []
    for path in sorted((DATA / split).glob("*.json")):
        rows += zip(load(path), read_whowhen_labels(path), strict=True)
    return rows


def local_methods() -> Iterator[tuple[str, Judge]]:
    """Every registered method that judges without waiting."""
    for name, analysts in names():
        if analysts == "local" and (judge := getattr(create(name), "judge", None)) is not None:
            yield name, cast(Judge, judge)


def _figure(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{100 * hits / n:5.1f} [{low:4.1f}, {high:4.1f}]"


def accuracy(data: dict[str, Rows]) -> None:
    """One line for each method and split."""
    print(f"{'method':18} {'split':20} {'n':>3}  {'agent':19}  {'step':19}  step, lenient  review")
    for name, judge in local_methods():
        for split, rows in data.items():
            reports = [(judge(trace), label) for trace, label in rows]
            agent = sum(label.names_agent(r.agent) for r, label in reports)
            step = sum(r.step == label.step for r, label in reports)
            # The benchmark's scorer: right if the gold text is a part of the prediction, so 1 matches 12.
            lenient = sum(str(label.step) in str(r.step) for r, label in reports)
            review = sum(r.review.required for r, _ in reports)
            n = len(rows)
            print(
                f"{name:18} {split:20} {n:3}  {_figure(agent, n)}  {_figure(step, n)}  "
                f"{100 * lenient / n:13.1f}  {100 * review / n:5.1f}%"
            )


def cost(rows: Rows) -> None:
    """Time of the local panel against decoding the same trace's JSON into an object, and into a trace."""
    judge = dict(local_methods())["cockpithat"]
    ratios, validated, longest = [], [], (0, 0.0)
    for trace, _ in rows:
        raw = trace.model_dump_json().encode()
        decode = min(_time(lambda raw=raw: orjson.loads(raw)) for _ in range(5))
        validate = min(_time(lambda raw=raw: Trace.model_validate_json(raw)) for _ in range(3))
        took = min(_time(lambda trace=trace: judge(trace)) for _ in range(3))
        ratios.append(took / decode)
        validated.append(took / validate)
        longest = max(longest, (len(raw), took))
    print(f"\njudge / JSON decode: median {statistics.median(ratios):.0f}, highest {max(ratios):.0f}")
    print(f"judge / decode and validate: median {statistics.median(validated):.1f}")
    print(f"largest trace: {longest[0]:,} bytes judged in {1000 * longest[1]:.0f} ms")


def _time(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Both tables."""
    data = {split: read(split) for split in SPLITS}
    accuracy(data)
    cost([row for rows in data.values() for row in rows])


if __name__ == "__main__":
    main()
