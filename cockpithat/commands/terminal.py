"""Text from traces is untrusted: this makes it safe and short enough for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Report

_ASIL_STYLE = {Asil.D: "bold red", Asil.C: "red", Asil.B: "yellow", Asil.A: "cyan"}


def printable(text: str, limit: int = 200) -> str:
    """One line without control codes, so that a trace cannot move the cursor or change colours."""
    clean = "".join(character if character.isprintable() else " " for character in text[: limit * 4])
    clean = " ".join(clean.split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def reason(report: Report) -> str:
    """Why a report says what it says, in one line."""
    if report.summary:
        return printable(report.summary, 240)
    facts = [evidence.text for evidence in report.evidence if evidence.text]
    return printable("; ".join(facts), 240)


def reports_table(reports: Iterable[Report], title: str | None = None) -> Table:
    """One row a report: session, agent, step, category, rating, confidence, and why."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("session", overflow="fold", min_width=12)
    table.add_column("agent", overflow="fold")
    table.add_column("step", justify="right")
    table.add_column("category", overflow="fold")
    table.add_column("ASIL", justify="center")
    table.add_column("conf.", justify="right")
    table.add_column("why", overflow="fold", ratio=1)
    for report in reports:
        table.add_row(*_cells(report))
    table.caption = "ASIL ratings are indicative and do not replace a hazard analysis."
    table.caption_justify = "left"
    return table


def _cells(report: Report) -> Iterator[Text]:
    yield Text(printable(report.session_id, 60))
    yield Text(printable(report.agent or "-", 40))
    yield Text("-" if report.step is None else str(report.step))
    yield Text((report.category or "-").replace("_", " "))
    yield Text(report.asil.value, style=_ASIL_STYLE.get(report.asil, ""))
    marks = ("?" if report.contested else "") + ("!" if report.review.required else "")
    yield Text(f"{report.confidence:.2f}{marks}")
    yield Text(reason(report))
