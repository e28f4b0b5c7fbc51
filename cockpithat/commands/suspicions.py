"""Screens the passed sessions of files for hazards they left: JSON Lines, or a table for a person.

The same :meth:`LocalAttribution.screen` as in the stream, without its limit by the hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.text import Text

from cockpithat.attribution import LocalAttribution
from cockpithat.commands.inputs import Inputs
from cockpithat.commands.progress import progress_bar
from cockpithat.commands.terminal import console_for, counted, print_suspicions
from cockpithat.contract.reports import Suspicion
from cockpithat.formats.reading import as_utf8


@dataclass(slots=True)
class Screened:
    """Counts of one run of the command: sessions read, those of them that passed, suspicions, bad inputs."""

    sessions: int = 0
    passed: int = 0
    suspicions: int = 0
    failures: int = 0


def write_suspicions(inputs: Inputs, local: LocalAttribution, out: TextIO, *, as_json: bool) -> Screened:
    """Screen and write to ``out``: each line as soon as it is known, or one table at the end.

    A session that failed, or that the file says nothing of, is for ``attribute`` and only counted here.
    """
    counts = Screened()
    found: list[Suspicion] = []
    with progress_bar() as bar:
        task = bar.add_task("screening", total=len(inputs.files))
        for path, trace in inputs.traces(lambda _: bar.advance(task)):
            counts.sessions += 1
            if trace.is_judged:
                continue
            counts.passed += 1
            suspicion = local.screen(trace)
            if suspicion is None:
                continue
            counts.suspicions += 1
            if as_json:
                line: dict[str, Any] = {**suspicion.model_dump(mode="json"), "file": as_utf8(str(path))}
                out.write((orjson.dumps(line) + b"\n").decode())
            else:
                found.append(suspicion)
    counts.failures = inputs.failures
    if not as_json:
        _print(console_for(out), found, counts)
    out.flush()
    return counts


def _print(console: Console, found: list[Suspicion], counts: Screened) -> None:
    if found:
        print_suspicions(console, found)
    others = counts.sessions - counts.passed
    console.print(
        Text(
            f"{counted(counts.sessions, 'session')} read, {counts.passed} passed, "
            f"{counted(counts.suspicions, 'suspicion')}"
            + (f" ({others} did not pass: 'cockpithat attribute' judges those)" if others else "")
        )
    )
