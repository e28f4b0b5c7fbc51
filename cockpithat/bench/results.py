"""From log lines to figures: shares with intervals, rows by category and rating, stability, second labels."""

from __future__ import annotations

import statistics as plain
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cockpithat.bench.log import Header, SampleRecord
from cockpithat.bench.scoring import same_agent
from cockpithat.bench.statistics import Interval, bootstrap, dominant_share, entropy_bits, mean, wilson

Json = dict[str, Any]
Hit = Callable[[SampleRecord], bool | None]
WITHIN = range(1, 6)


def _within(k: int) -> Hit:
    return lambda r: r.scores.distance is not None and r.scores.distance <= k


HITS: dict[str, Hit] = {
    "agent": lambda r: r.scores.agent,
    "step": lambda r: r.scores.step,
    "joint": lambda r: r.scores.joint,
    **{f"within_{k}": _within(k) for k in WITHIN},
    "official_agent": lambda r: r.scores.official_agent,
    "official_step": lambda r: r.scores.official_step,
    "category": lambda r: r.scores.category,
    "asil": lambda r: r.scores.asil,
    "any_failure": lambda r: r.scores.any_failure,
}


def values(records: Iterable[SampleRecord], hit: Hit) -> dict[str, float]:
    """The share of hits of each run over its repeats; runs whose label says nothing are left out."""
    per_run: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if (right := hit(record)) is not None:
            per_run[record.id].append(right)
    return {name: mean([float(h) for h in hits]) for name, hits in per_run.items()}


def results(header: Header, records: Sequence[SampleRecord]) -> Json:
    """All figures of a run as plain JSON. Shares are fractions of 1; ``n`` counts runs, not repeats."""
    figures: Json = {
        "method": header.method,
        "analysts": header.analysts,
        "dataset": header.dataset.format,
        "ground_truth_shown": header.ground_truth_shown,
        **figures_of(records),
    }
    groups = list(dict.fromkeys(record.group for record in records))
    if len(groups) > 1:
        figures["groups"] = {g: figures_of([r for r in records if r.group == g]) for g in groups}
    if any(record.target.category for record in records):
        figures["by_category"] = _rows(records, lambda r: r.target.category)
    if any(record.target.asil for record in records):
        figures["by_asil"] = _rows(records, lambda r: r.target.asil, distribution=True)
    return figures


def figures_of(records: Sequence[SampleRecord]) -> Json:
    """The figures of one part."""
    per_run = {name: values(records, hit) for name, hit in HITS.items()}
    shares = {name: mean(list(by_run.values())) for name, by_run in per_run.items()}
    runs = {record.id for record in records}
    figures: Json = {
        "n": len(runs),
        "repeats": max((record.epoch for record in records), default=0),
        "agent": shares["agent"],
        "step": shares["step"],
        "joint": shares["joint"],
        "step_within": {str(k): shares[f"within_{k}"] for k in WITHIN},
        "official": {"agent": shares["official_agent"], "step": shares["official_step"]},
    }
    for name in ("category", "asil", "any_failure"):
        if per_run[name]:
            figures[name] = shares[name]
            figures[f"{name}_n"] = len(per_run[name])
    reported = [name for name in HITS if per_run[name]]
    if per_run["asil"]:
        rated = [
            (r.output.asil.rank if r.output else 0, r.target.asil.rank) for r in records if r.target.asil
        ]
        figures["asil_underrated"] = mean([float(said < gold) for said, gold in rated])
        figures["asil_overrated"] = mean([float(said > gold) for said, gold in rated])
    figures["ci95"] = {name: _wilson(per_run[name]) for name in reported}
    figures["ci95_bootstrap"] = {name: bootstrap(list(per_run[name].values())) for name in reported}
    figures["chance"] = {
        name: mean([getattr(record.chance, name) for record in records])
        for name in ("agent", "step", "joint", "official_agent", "official_step")
    }
    figures |= _costs(records, len(runs))
    if figures["repeats"] > 1:
        figures["stability"] = _stability(records)
    if (second := _second(records)) is not None:
        figures["second_annotator"] = second
    if any(record.step_range for record in records):
        figures["range"] = _range(records)
    return figures


def _wilson(by_run: dict[str, float]) -> Interval:
    return wilson(sum(by_run.values()), len(by_run))


def _costs(records: Sequence[SampleRecord], runs: int) -> Json:
    """Totals over all repeats, and a judged run's mean; degraded answers are another method's stand-in."""
    judged = len(records) or 1
    tokens_in = sum(r.tokens.input for r in records)
    tokens_out = sum(r.tokens.output for r in records)
    seconds = sum(r.seconds for r in records)
    degraded = [r for r in records if r.output is not None and r.output.degraded]
    clean = [r for r in records if r.error is None and r not in degraded]
    figures: Json = {
        "tokens": tokens_in + tokens_out,
        "tokens_input": tokens_in,
        "tokens_output": tokens_out,
        "tokens_per_trace": (tokens_in + tokens_out) / judged,
        "seconds": round(seconds, 3),
        "seconds_per_trace": round(seconds / judged, 6),
        "errors": sum(r.error is not None for r in records),
        "unanswered": sum(r.output is None or r.output.step is None for r in records),
        "degraded": len(degraded),
        "contested": sum(r.output is not None and r.output.contested for r in records),
        "review": sum(r.output is not None and r.output.review for r in records),
    }
    costs = [r.cost for r in records if r.cost is not None]
    if costs:
        figures["cost"] = sum(costs)
    if degraded:
        figures["undegraded"] = {
            "n": len({r.id for r in clean}),
            **{name: mean(list(values(clean, HITS[name]).values())) for name in ("agent", "step", "joint")},
        }
    return figures


_PARTS: dict[str, Callable[[tuple[str | None, int | None]], object]] = {
    "agent": lambda answer: answer[0],
    "step": lambda answer: answer[1],
    "joint": lambda answer: answer,
}


def _stability(records: Sequence[SampleRecord]) -> Json:
    """How far repeats of a run agree: runs with one answer, agreeing pairs, spread of accuracy."""
    answers: dict[str, list[tuple[str | None, int | None]]] = defaultdict(list)
    by_epoch: dict[int, list[SampleRecord]] = defaultdict(list)
    for record in records:
        said = record.output
        answers[record.id].append((said.agent, said.step) if said else (None, None))
        by_epoch[record.epoch].append(record)
    several = [said for said in answers.values() if len(said) > 1]
    stable: Json = {"runs": len(several)}
    for name, part in _PARTS.items():
        parts = [[part(answer) for answer in run] for run in several]
        stable[f"same_{name}"] = mean([float(len(set(run)) == 1) for run in parts])
        stable[f"pairs_{name}"] = mean([_pair_agreement(run) for run in parts])
    for name in _PARTS:
        accuracies = [mean([float(getattr(r.scores, name)) for r in epoch]) for epoch in by_epoch.values()]
        stable[f"{name}_by_repeat"] = accuracies
        stable[f"{name}_sd"] = plain.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return stable


def _pair_agreement(said: Sequence[Any]) -> float:
    pairs = len(said) * (len(said) - 1)
    return sum(c * (c - 1) for c in Counter(said).values()) / pairs


def _second(records: Sequence[SampleRecord]) -> Json | None:
    """Agreement of the two teams with each other, and of the method with the second."""
    first = [record for record in records if record.epoch == 1 and record.second is not None]
    if not first:
        return None
    n = len(first)

    def shares(agent: int, step: int, near: int) -> Json:
        return {
            "agent": agent / n,
            "step": step / n,
            "step_within_1": near / n,
            "ci95": {"agent": wilson(agent, n), "step": wilson(step, n), "step_within_1": wilson(near, n)},
        }

    def count(pairs: Iterable[tuple[str | None, int | None, str, int]]) -> tuple[int, int, int]:
        agent = step = near = 0
        for said_agent, said_step, gold_agent, gold_step in pairs:
            agent += same_agent(said_agent, gold_agent)
            step += said_step == gold_step
            near += said_step is not None and abs(said_step - gold_step) <= 1
        return agent, step, near

    labels = [(r.target, r.second) for r in first if r.second is not None]
    outputs = [(r.output, r.second) for r in first if r.second is not None]
    return {
        "n": n,
        "annotators": shares(*count((t.agent, t.step, s.agent, s.step) for t, s in labels)),
        "method": shares(
            *count((o.agent if o else None, o.step if o else None, s.agent, s.step) for o, s in outputs)
        ),
    }


def _range(records: Sequence[SampleRecord]) -> Json:
    """Whether the ranges that reports carry hold the decisive step."""
    ranged = [(r, r.step_range) for r in records if r.step_range is not None]
    hits = sum(r.target.step in held.steps for r, held in ranged)
    return {
        "n": len(ranged),
        "coverage": ranged[0][1].coverage,
        "held": hits / len(ranged),
        "ci95": wilson(hits, len(ranged)),
        "mean_steps": mean([len(held.steps) for _, held in ranged]),
    }


def _rows(
    records: Sequence[SampleRecord], key: Callable[[SampleRecord], Any], *, distribution: bool = False
) -> Json:
    """Figures by gold category or gold ASIL; for ASIL with entropy and dominant share (equation 6)."""
    parts: dict[str, list[SampleRecord]] = defaultdict(list)
    for record in records:
        if (value := key(record)) is not None:
            parts[value.value].append(record)
    rows: Json = {}
    for name, part in sorted(parts.items()):
        row: Json = {"n": len({r.id for r in part})}
        row["ci95"] = {}
        for hit in ("step", "agent", "category", "asil"):
            by_run = values(part, HITS[hit])
            if by_run:
                row[hit] = mean(list(by_run.values()))
                row["ci95"][hit] = _wilson(by_run)
        if distribution:
            counts = Counter(
                r.target.category for r in part if r.epoch == 1 and r.target.category is not None
            ).values()
            row["entropy_bits"] = entropy_bits(counts)
            row["dominant_share"] = dominant_share(counts)
        rows[name] = row
    return rows
