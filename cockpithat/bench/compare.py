"""Two runs side by side, with the tests that say whether their difference may be chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import Log, SampleRecord
from cockpithat.bench.results import HITS, Hit
from cockpithat.bench.statistics import bootstrap, chi_squared, mcnemar, mean, wilson

Json = dict[str, Any]


def compare(a: Log, b: Log) -> Json:
    """Every figure on the runs that both logs hold, first repeat each, as plain JSON.

    ``chi2`` (Pearson, one degree of freedom, no correction) treats the runs as independent samples, as the
    papers' tables do; ``mcnemar`` is exact and uses that the same runs were judged: the right test here.
    Raises ``BenchError`` when the logs share no run, or their labels differ.
    """
    of_a, of_b = _first(a), _first(b)
    common = [name for name in of_a if name in of_b]
    if not common:
        raise BenchError(f"{a.path} and {b.path} share no run; compare logs of the same data")
    if changed := [name for name in common if of_a[name].target != of_b[name].target]:
        raise BenchError(f"{len(changed)} runs have other labels in {b.path}, the first is {changed[0]}")
    pairs = [(of_a[name], of_b[name]) for name in common]
    return {
        "a": _about(a),
        "b": _about(b),
        "n": len(common),
        "only_in_a": len(of_a) - len(common),
        "only_in_b": len(of_b) - len(common),
        "figures": {name: row for name, hit in HITS.items() if (row := _row(pairs, hit)) is not None},
    }


def _first(log: Log) -> dict[str, SampleRecord]:
    return {record.id: record for record in log.records if record.epoch == 1}


def _about(log: Log) -> Json:
    header = log.header
    return {
        "log": str(log.path),
        "method": header.method,
        "analysts": header.analysts,
        "models": header.models,
        "ground_truth_shown": header.ground_truth_shown,
    }


def _row(pairs: Sequence[tuple[SampleRecord, SampleRecord]], hit: Hit) -> Json | None:
    scored = [(x, y) for a, b in pairs if (x := hit(a)) is not None and (y := hit(b)) is not None]
    if not scored:
        return None
    n = len(scored)
    hits_a, hits_b = sum(x for x, _ in scored), sum(y for _, y in scored)
    only_a, only_b = sum(x and not y for x, y in scored), sum(y and not x for x, y in scored)
    chi2, paired = chi_squared(hits_a, n, hits_b, n), mcnemar(only_a, only_b)
    return {
        "n": n,
        "a": hits_a / n,
        "b": hits_b / n,
        "ci95_a": wilson(hits_a, n),
        "ci95_b": wilson(hits_b, n),
        "difference": mean([float(y) - float(x) for x, y in scored]),
        "ci95_difference": bootstrap([float(y) - float(x) for x, y in scored]),
        "chi2": chi2.statistic,
        "chi2_p": chi2.p,
        "only_a": only_a,
        "only_b": only_b,
        "mcnemar_p": paired.p,
    }
