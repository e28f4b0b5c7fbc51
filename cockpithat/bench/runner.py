"""Judges the runs of a data set, several at a time, and logs each as soon as it is known."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cockpithat._version import __version__
from cockpithat.bench.datasets import Dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import DatasetInfo, Header, Log, LogWriter, SampleRecord, in_order
from cockpithat.bench.samples import Sample, with_reference
from cockpithat.bench.scoring import answer_of, chance, score
from cockpithat.calibration.ranking import ranking_of
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.methods.registry import Method

OnRecord = Callable[[SampleRecord], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run: ``repeat`` times each, ``jobs`` at a time, with the task's right answer shown or not."""

    repeat: int = 1
    jobs: int = 1
    show_ground_truth: bool = False


def header_of(
    dataset: Dataset, path: Path, method: Method, plan: Plan, *, cache: bool = False, calibration: str | None
) -> Header:
    """The log's first line."""
    provenance = getattr(method, "provenance", None)
    return Header(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        product_version=__version__,
        python=platform.python_version(),
        dataset=DatasetInfo(
            format=dataset.format,
            path=str(path),
            digest=dataset.digest,
            samples=len(dataset.samples),
            groups=dataset.groups,
            index_base=dataset.index_base,
            name_rule=dataset.name_rule,
            notes=dataset.notes,
        ),
        method=method.name,
        analysts=method.analysts,
        config_digest=getattr(provenance, "config_digest", ""),
        rules_version=getattr(provenance, "rules_version", ""),
        models=getattr(provenance, "models", {}),
        prompts=getattr(provenance, "prompts", {}),
        ground_truth_shown=plan.show_ground_truth,
        cache=cache,
        repeat=plan.repeat,
        calibration=calibration,
    )


def run(
    samples: Sequence[Sample],
    method: Method,
    plan: Plan,
    *,
    log: LogWriter | None = None,
    before: Log | None = None,
    on_record: OnRecord = lambda _: None,
) -> list[SampleRecord]:
    """Judge what is not judged yet; the records of everything asked for, old ones too, in order.

    A run that the method fails on is a miss with its error's name, and is tried again on resume.
    """
    if plan.show_ground_truth and (missing := [s.id for s in samples if not s.reference]):
        raise BenchError(f"{len(missing)} runs have no right answer to show, the first is {missing[0]}")
    done = before.done() if before else set()
    wanted = {(sample.id, epoch) for sample in samples for epoch in range(1, plan.repeat + 1)}
    records = [r for r in before.records if (r.id, r.epoch) in wanted & done] if before else []

    def keep(record: SampleRecord) -> None:
        if log is not None:
            log.append(record)
        records.append(record)
        on_record(record)

    asyncio.run(_run(samples, method, plan, done, keep))
    return in_order(records, [sample.id for sample in samples])


async def _run(
    samples: Sequence[Sample],
    method: Method,
    plan: Plan,
    done: set[tuple[str, int]],
    keep: OnRecord,
) -> None:
    work = iter(_pending(samples, plan.repeat, done))

    async def worker() -> None:
        # The workers share one iterator and one event loop, so each item is taken once.
        for sample, epoch in work:
            # A local method never waits; without a pause the loop would not hear of an interrupt.
            await asyncio.sleep(0)
            keep(await _judged(sample, epoch, method, plan.show_ground_truth))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(plan.jobs):
                group.create_task(worker())
    except* BenchError as several:
        raise several.exceptions[0] from None
    finally:
        if (close := getattr(method, "close", None)) is not None:
            await close()


def _pending(
    samples: Sequence[Sample], repeat: int, done: set[tuple[str, int]]
) -> Iterator[tuple[Sample, int]]:
    for epoch in range(1, repeat + 1):
        for sample in samples:
            if (sample.id, epoch) not in done:
                yield sample, epoch


async def _judged(sample: Sample, epoch: int, method: Method, shown: bool) -> SampleRecord:
    started = time.perf_counter()
    report: Report | None = None
    error: str | None = None
    try:
        report = await _attribute(method, sample.trace, sample.reference if shown else None)
    except Exception as failure:  # a benchmark goes on; the type is enough to look for, its text may quote
        error = type(failure).__name__
    steps = len(sample.trace.steps)
    answer = answer_of(report) if report else None
    more: dict[str, Any] = {}
    if report is not None:
        more = {
            "ranking": ranking_of(report, steps),
            "step_range": report.step_range,
            "tokens": report.tokens,
            "cost": report.cost,
            "config_digest": report.provenance.config_digest,
        }
    return SampleRecord(
        id=sample.id,
        epoch=epoch,
        group=sample.group,
        file=sample.file,
        trace_id=sample.trace.trace_id,
        steps=steps,
        tags=sample.tags,
        target=sample.target,
        second=sample.second,
        output=answer,
        scores=score(answer, sample.target),
        chance=chance(sample.trace, sample.target),
        seconds=round(time.perf_counter() - started, 6),
        error=error,
        **more,
    )


async def _attribute(method: Method, trace: Trace, reference: str | None) -> Report:
    """The only place where a method meets a labelled run: it gets the trace, and the answer if shown."""
    if reference is None:
        return await method.attribute(trace)
    if getattr(method, "takes_ground_truth", False):
        report: Report = await method.attribute(trace, ground_truth=reference)  # type: ignore[call-arg]
        return report
    return await method.attribute(with_reference(trace, reference))
