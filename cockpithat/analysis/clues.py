"""What a detector finds: one observable fact, where it is, whom it speaks against and how strongly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cockpithat.contract.base import Category
from cockpithat.contract.reports import Evidence
from cockpithat.contract.trace import Trace

QUOTE = 160
"""Longest quote, in characters."""


@dataclass(frozen=True, slots=True)
class Clue:
    """``weight`` is 0 to 1: how far the fact alone speaks for this step being decisive."""

    kind: str
    step: int
    agent: str
    category: Category
    weight: float
    channel: Literal["c", "e", "sigma", "m"]
    text: str  # quoted from the trace
    paths: tuple[str, ...] = ()
    omission: bool = False  # the agent did not act at that step where it should have

    def evidence(self, trace: Trace) -> Evidence:
        """In wire form, with the source record of its step."""
        return Evidence(
            kind=self.kind,
            step=self.step,
            agent=self.agent,
            channel=self.channel,
            text=quote(self.text),
            paths=self.paths[:8],
            weight=round(self.weight, 4),
            source=trace.steps[self.step].source,
        )


def noisy_or(clues: Iterable[Clue]) -> float:
    """How far clues speak against a step together: ``1 - prod(1 - weight)``, one clue a kind."""
    best: dict[str, float] = {}
    for clue in clues:
        best[clue.kind] = max(best.get(clue.kind, 0.0), clue.weight)
    doubt = 1.0
    for weight in best.values():
        doubt *= 1.0 - min(weight, 0.99)
    return 1.0 - doubt


def quote(text: str, around: int = 0, length: int = QUOTE) -> str:
    """A part of ``text`` on one line, starting shortly before character ``around``; cut with an ellipsis."""
    start = max(0, around - length // 4)
    part = text[start : start + length]
    flat = " ".join(part.split())
    return ("…" if start else "") + flat + ("…" if start + length < len(text) else "")
