"""Judges the sessions of files and writes reports: JSON Lines, or a table for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import orjson

from cockpithat.commands.inputs import Inputs
from cockpithat.commands.progress import progress_bar
from cockpithat.commands.terminal import console_for, print_reports
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.methods.registry import Method


@dataclass(frozen=True, slots=True)
class Judged:
    """A report, and the file its session came from."""

    path: Path
    report: Report

    def to_json(self) -> bytes:
        """One line: the report, with the file it came from in ``file``."""
        line: dict[str, Any] = {**self.report.model_dump(mode="json"), "file": str(self.path)}
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
    on_file: Callable[[Path], None] = lambda _: None,
) -> Iterator[Judged]:
    """Reports in file order, of the sessions that are due, or of all with ``everything``.

    A session that a method fails on is told about and counted; the next one goes on.
    """
    with asyncio.Runner() as runner:
        for path, trace in inputs.traces(on_file):
            counts.sessions += 1
            if not (trace.is_judged or everything):
                continue
            report = _attributed(runner, method, path, trace, inputs.tell)
            if report is None:
                counts.failures += 1
            else:
                counts.judged += 1
                yield Judged(path, report)
    counts.failures += inputs.failures


def _attributed(
    runner: asyncio.Runner, method: Method, path: Path, trace: Trace, tell: Callable[[str], None]
) -> Report | None:
    try:
        return runner.run(method.attribute(trace))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise
    except Exception as error:  # one session must not end the others; the type says what to look for
        tell(
            f"{path}: session {trace.session_id!r} could not be judged ({type(error).__name__}); "
            "run again with -v for the cause, and report it if the file is sound"
        )
        return None


def write_reports(
    inputs: Inputs, method: Method, out: TextIO, *, as_json: bool, everything: bool
) -> Attribution:
    """Judge and write to ``out``: each line as soon as it is known, or one table at the end."""
    counts = Attribution()
    reports: list[Report] = []
    with progress_bar() as bar:
        task = bar.add_task("judging", total=len(inputs.files))
        for judged in judge(
            inputs, method, counts, everything=everything, on_file=lambda _: bar.advance(task)
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
            f"{counts.sessions} sessions read, {counts.judged} judged"
            + ("" if everything else " (--all judges those that passed, too)"),
            markup=False,
        )
    out.flush()
    return counts
