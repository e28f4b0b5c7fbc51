"""What every evidence detector is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category


class Detector(Protocol):
    """Finds clues of its own kinds. Linear in the trace; works on whatever channels the trace has."""

    name: str

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterable[Clue]:
        """Clues in step order. ``hazards`` is what the rules found in the same trace."""
        ...


def clue_at(kind: str, view: TraceView, step: int, weight: float, category: Category) -> Clue:
    """A clue against a step's agent, that quotes its words or, without any, names what it called."""
    words = view.words[step].strip()
    paths = tuple(view.commands[step])[:8]
    text = words or next((c.name for c in view.steps[step].tool_calls), "")
    return Clue(
        kind, step, view.steps[step].agent, category, weight, "c" if words or not paths else "sigma",
        quote(text), paths,
    )  # fmt: skip
