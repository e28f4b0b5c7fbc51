"""Text from traces is untrusted: this makes it safe and short enough for a terminal, and lays reports out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Report, Suspicion

_ASIL_STYLE = {Asil.D: "bold red", Asil.C: "red", Asil.B: "yellow", Asil.A: "cyan"}
_PIPE_WIDTH = 170  # where there is no terminal to fit into
_WIDE = 130  # from here on the reasons fit into the table
_NARROW = 72  # below, a table's columns would be cut away
_NARROWEST = 20
_REASON = 220
_LOOK = "A person should look."
NOTE = (
    "Confidence: ? contested, ! a person should look. "
    "ASIL ratings are indicative and do not replace a hazard analysis."
)


def printable(text: str, limit: int = 200) -> str:
    """One line without control codes, so that a trace cannot move the cursor or change colours."""
    clean = "".join(character if character.isprintable() else " " for character in text[: limit * 4])
    clean = " ".join(clean.split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def console_for(out: TextIO) -> Console:
    """A console on ``out``: as wide as the terminal, or wide enough for tables in a pipe or file."""
    fits = out.isatty() or "COLUMNS" in os.environ
    console = Console(file=out, width=None if fits else _PIPE_WIDTH, highlight=False)
    console.width = max(console.width, _NARROWEST)  # a terminal may claim to have no columns at all
    return console


def reason(report: Report) -> str:
    """Why a report says what it says, in one line, without what its row says already.

    Where a person should look, every reason for it follows, what may be a grave hazard first.
    """
    if not report.review.required:
        return printable(_verdict_reason(report), _REASON)
    why = printable(_verdict_reason(report).removesuffix(_LOOK).rstrip(), _REASON)
    asked = sorted(report.review.reasons, key=lambda text: "hazard of ASIL" not in text)
    look = f"{_LOOK[:-1]}: {'; '.join(asked)}." if asked else _LOOK
    return f"{why} {printable(look, 2 * _REASON)}".strip()


def _verdict_reason(report: Report) -> str:
    text = report.summary
    _, known, rest = text.partition(": ")
    if known and text.startswith(f"{report.agent} at step {report.step}"):
        text = rest.partition(". ")[2] or text
    if not text:
        text = "; ".join(evidence.text for evidence in report.evidence if evidence.text)
    return text


def counted(number: int, noun: str) -> str:
    """``1 alert``, ``2 alerts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_reports(console: Console, reports: Sequence[Report], title: str | None = None) -> None:
    """One row a report: session, agent, step, category, rating, confidence; and why, below if need be.

    On a terminal too narrow for a table, one paragraph a report.
    """
    if console.width < _NARROW:
        _print_paragraphs(console, reports, title)
        return
    wide = console.width >= _WIDE
    table = table_of(title, ("session", "agent", "step", "category", "ASIL", "conf."))
    table.columns[2].justify = "right"
    if wide:
        table.add_column("why", overflow="fold", ratio=1)
    for report in reports:
        table.add_row(*_cells(report), *([Text(reason(report))] if wide else []))
    console.print(table)
    if not wide:
        for report in reports:
            console.print(Text.assemble((f"{_session(report)}: ", "bold"), reason(report)))
        console.print()
    console.print(NOTE, style="dim", markup=False)


def _print_paragraphs(console: Console, reports: Sequence[Report], title: str | None) -> None:
    if title:
        console.print(Text(title, style="bold"))
    for report in reports:
        session, agent, step, category, rating, confidence = _cells(report)
        console.print(session)
        console.print(Text.assemble("  ", agent, ", step ", step))
        console.print(Text.assemble("  ", category))
        console.print(Text.assemble("  ASIL ", rating, ", confidence ", confidence))
        console.print(Text.assemble("  ", reason(report)))
        console.print()
    console.print(NOTE, style="dim", markup=False)


def print_suspicions(console: Console, suspicions: Sequence[Suspicion], title: str | None = None) -> None:
    """One row a suspicion: session, highest rating, score, and the hazards it left."""
    table = table_of(title, ("session", "ASIL", "score", "hazards"))
    for suspicion in suspicions:
        events = "; ".join(dict.fromkeys(hazard.hazardous_event for hazard in suspicion.hazards))
        table.add_row(
            Text(printable(suspicion.session_id, 60)),
            Text(suspicion.asil.value, style=_ASIL_STYLE.get(suspicion.asil, "")),
            Text("-" if suspicion.score is None else f"{suspicion.score:.2f}"),
            Text(printable(events, _REASON)),
        )
    console.print(table)


def table_of(title: str | None, columns: Sequence[str]) -> Table:
    """An empty table in the product's style."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, title_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _session(report: Report) -> str:
    return printable(report.session_id, 60)


def _cells(report: Report) -> Iterator[Text]:
    yield Text(_session(report))
    yield Text(printable(report.agent or "-", 40))
    yield Text("-" if report.step is None else str(report.step))
    yield Text((report.category or "-").replace("_", " "))
    yield Text(report.asil.value, style=_ASIL_STYLE.get(report.asil, ""))
    marks = ("?" if report.contested else "") + ("!" if report.review.required else "")
    yield Text(f"{report.confidence:.2f}{marks}")
