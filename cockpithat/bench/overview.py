"""The rows of the one table of all methods on all data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cockpithat.bench.log import Header, SampleRecord
from cockpithat.bench.results import figures_of

Json = dict[str, Any]


def overview_rows(runs: Iterable[tuple[Header, list[SampleRecord]]]) -> list[Json]:
    """One row a run and group, sorted by data, with the level of chance first."""
    rows: list[Json] = []
    seen: set[str] = set()
    for header, records in runs:
        for group, part in _groups(records):
            figures = figures_of(part)
            if group not in seen:
                seen.add(group)
                rows.append({**_chance(group, figures), "dataset": header.dataset.format})
            rows.append(
                {
                    "method": header.method,
                    "analysts": header.analysts,
                    "data": group,
                    "dataset": header.dataset.format,
                    "ground_truth_shown": header.ground_truth_shown,
                    **figures,
                }
            )
    order = {group: i for i, group in enumerate(dict.fromkeys(row["data"] for row in rows))}
    return sorted(rows, key=lambda row: order[row["data"]])


def _groups(records: list[SampleRecord]) -> Iterator[tuple[str, list[SampleRecord]]]:
    for group in dict.fromkeys(record.group for record in records):
        yield group, [record for record in records if record.group == group]


def _chance(group: str, figures: Json) -> Json:
    """A uniform guess's expectation, exact: nothing was drawn, so there is no interval."""
    level = figures["chance"]
    return {
        "method": "(chance)",
        "analysts": "-",
        "data": group,
        "ground_truth_shown": False,
        "n": figures["n"],
        "agent": level["agent"],
        "step": level["step"],
        "joint": level["joint"],
        "step_within": {str(k): None for k in range(1, 6)},
        "official": {"agent": level["official_agent"], "step": level["official_step"]},
        "ci95": {},
        "tokens_per_trace": 0.0,
        "seconds_per_trace": 0.0,
        "errors": 0,
        "degraded": 0,
    }
