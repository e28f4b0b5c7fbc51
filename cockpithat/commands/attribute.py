"""Judges the sessions of files and writes reports: JSON Lines, or a table for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import orjson

from cockpithat.commands.inputs import Inputs
from cockpithat.commands.progress import progress_bar
from cockpithat.commands.terminal import console_for, counted, print_reports
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.formats.reading import as_utf8
from cockpithat.methods.registry import Method


@dataclass(frozen=True, slots=True)
class Judged:
    """A report, and the file its session came from."""

    path: Path
    report: Report

    def to_json(self) -> bytes:
        """One line: the report, with the file it came from in ``file``."""
        line: dict[str, Any] = {**self.report.model_dump(mode="json"), "file": as_utf8(str(self.path))}
        return orjson.dumps(line) + b"\n"


@dataclass(slots=True)
class Attribution:
    """Counts of one run of the command."""

    sessions: int = 0
    judged: int = 0
    failures: int = 0


def judge(
    inputs: Inputs,
    method: Method,
    counts: Attribution,
    *,
    everything: bool = False,
    jobs: int = 1,
    on_file: Callable[[Path], None] = lambda _: None,
) -> Iterator[Judged]:
    """Reports in file order, of the sessions that are due, or of all with ``everything``.

    ``jobs`` sessions at a time are given to the method, for methods that wait for a network. A session that
    the method fails on is told about and counted; the next one goes on.
    """
    with asyncio.Runner() as runner:
        due = _due(inputs, counts, everything, on_file)
        while batch := list(islice(due, jobs)):
            reports = runner.run(_attributed(method, batch, inputs.tell))
            for (path, _), report in zip(batch, reports, strict=True):
                if report is None:
                    counts.failures += 1
                else:
                    counts.judged += 1
                    yield Judged(path, report)
        if (close := getattr(method, "close", None)) is not None:
            runner.run(close())
    counts.failures += inputs.failures


def _due(
    inputs: Inputs, counts: Attribution, everything: bool, on_file: Callable[[Path], None]
) -> Iterator[tuple[Path, Trace]]:
    for path, trace in inputs.traces(on_file):
        counts.sessions += 1
        if trace.is_judged or everything:
            yield path, trace


async def _attributed(
    method: Method, batch: Sequence[tuple[Path, Trace]], tell: Callable[[str], None]
) -> list[Report | None]:
    results = await asyncio.gather(*(method.attribute(trace) for _, trace in batch), return_exceptions=True)
    reports: list[Report | None] = []
    for (path, trace), result in zip(batch, results, strict=True):
        if isinstance(result, Report):
            reports.append(result)
        elif isinstance(result, Exception):  # the type says what to look for; its text may quote the trace
            tell(f"{path}: session {trace.session_id!r} could not be judged ({type(result).__name__})")
            reports.append(None)
        else:
            raise result
    return reports


def write_reports(
    inputs: Inputs, method: Method, out: TextIO, *, as_json: bool, everything: bool, jobs: int = 1
) -> Attribution:
    """Judge and write to ``out``: each line as soon as it is known, or one table at the end."""
    counts = Attribution()
    reports: list[Report] = []
    with progress_bar() as bar:
        task = bar.add_task("judging", total=len(inputs.files))
        for judged in judge(
            inputs,
            method,
            counts,
            everything=everything,
            jobs=jobs,
            on_file=lambda _: bar.advance(task),
        ):
            if as_json:
                out.write(judged.to_json().decode())
            else:
                reports.append(judged.report)
            bar.update(task, description=f"judging, {counts.judged} reports")
    if not as_json:
        console = console_for(out)
        if reports:
            print_reports(console, reports)
        console.print(
            f"{counted(counts.sessions, 'session')} read, {counts.judged} judged"
            + ("" if everything else " (--all judges those that passed, too)"),
            markup=False,
        )
    out.flush()
    return counts
