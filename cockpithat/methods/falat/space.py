"""The search space (section 2.1): prior, aligned three-level hierarchy, windows, suspects. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prior:
    """How the task should have been solved, made without seeing a step."""

    expected_output: str
    requirements: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()  # agent, and what it is and is not there for
    risks: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For a prompt."""
        return [
            f"expected output: {self.expected_output}",
            *(f"requirement: {text}" for text in self.requirements),
            *(f"role of {agent}: {text}" for agent, text in self.roles),
            *(f"risk: {text}" for text in self.risks),
        ]


@dataclass(frozen=True, slots=True)
class Stage:
    """High level: a stretch of the execution, ``first`` to ``last`` inclusive."""

    first: int
    last: int
    summary: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Middle level: a step that matters. The low level is the step's raw text."""

    step: int
    what: str


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Stages that cover every step once, and key moments, each within one stage."""

    stages: tuple[Stage, ...]
    moments: tuple[Moment, ...]

    def lines(self) -> list[str]:
        """Both upper levels for a prompt, moments under their stage."""
        found: list[str] = []
        for number, stage in enumerate(self.stages, 1):
            found.append(f"stage {number} (steps {stage.first}-{stage.last}): {stage.summary}")
            found.extend(
                f"  step {m.step}: {m.what}" for m in self.moments if stage.first <= m.step <= stage.last
            )
        return found


def align(stages: Iterable[Stage], moments: Iterable[Moment], n: int) -> Hierarchy:
    """A hierarchy in which the stages partition the ``n`` steps, whatever was proposed.

    Each stage begins where it was said to; it ends before the next one. Stages that begin at the same step or
    outside the trace are dropped, the first begins at 0. Of moments at one step the first is kept.
    """
    begins: dict[int, str] = {}
    for stage in stages:
        if 0 <= stage.first < n:
            begins.setdefault(stage.first, stage.summary)
    if not begins and n:
        begins[0] = "the whole execution"
    ordered = sorted(begins)
    spans = [0, *ordered[1:]]
    aligned = tuple(
        Stage(first, (spans[place + 1] if place + 1 < len(spans) else n) - 1, begins[ordered[place]])
        for place, first in enumerate(spans[: len(ordered)])
    )
    kept: dict[int, Moment] = {}
    for moment in moments:
        if 0 <= moment.step < n:
            kept.setdefault(moment.step, moment)
    return Hierarchy(aligned, tuple(kept[step] for step in sorted(kept)))


def windows(n: int, size: int) -> list[range]:
    """The steps in as few windows of at most ``size`` as hold them: no overlap, about equal length."""
    if size < 1:
        raise ValueError("a window needs at least one step")
    count = math.ceil(n / size)
    return [range(i * n // count, (i + 1) * n // count) for i in range(count)]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A candidate step, judged within its window; values 0 to 1. ``prior`` is ``None`` without a prior."""

    step: int
    relevance: float
    local: float  # inconsistency with the execution around it
    prior: float | None = None  # inconsistency with the task prior
    why: str = ""
    quotes: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """Mean of what was judged (reconstructed: the source names the criteria, not how they add up)."""
        values = [self.relevance, self.local, *([] if self.prior is None else [self.prior])]
        return sum(values) / len(values)


def consolidate(found: Iterable[Suspect], limit: int) -> list[Suspect]:
    """The strongest suspects of all windows, one a step, by score and then by position; at most ``limit``.

    Windows count alike: their order does not matter.
    """
    best: dict[int, Suspect] = {}
    for suspect in found:
        known = best.get(suspect.step)
        if known is None or suspect.score > known.score:
            best[suspect.step] = suspect
    return sorted(best.values(), key=lambda s: (-s.score, s.step))[:limit]


@dataclass
class Space:
    """What the search knows so far; each stage adds its part."""

    n: int
    windows: Sequence[range]
    prior: Prior | None = None
    hierarchy: Hierarchy | None = None
    transitions: list[str] = field(default_factory=list)  # the typed dependencies, for a prompt
    notes: list[str] = field(default_factory=list)
