"""Small observations about steps and clues that several local methods rest on."""

from __future__ import annotations

from collections.abc import Sequence

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.view import render
from cockpithat.contract.trace import Step


def noisy_or(clues: Sequence[Clue]) -> float:
    """``1 - prod(1 - weight)``, one clue a kind."""
    best: dict[str, float] = {}
    for clue in clues:
        best[clue.kind] = max(best.get(clue.kind, 0.0), clue.weight)
    doubt = 1.0
    for weight in best.values():
        doubt *= 1.0 - min(weight, 0.99)
    return 1.0 - doubt


def repeats(first: Step, second: Step) -> bool:
    """Whether the second step says or calls the same again."""
    calls = [[(c.name, render(c.arguments)) for c in step.tool_calls] for step in (first, second)]
    if calls[0] or calls[1]:
        return calls[0] == calls[1]
    texts = [set(step.text.casefold().split()) for step in (first, second)]
    union = len(texts[0] | texts[1])
    return union >= 5 and len(texts[0] & texts[1]) / union >= 0.9


def mends(first: Step, second: Step) -> bool:
    """Whether a call that failed is made again by the same agent, and works."""
    failed = {o.name for o in first.tool_outputs if o.is_error}
    worked = {o.name for o in second.tool_outputs if not o.is_error}
    return first.agent == second.agent and bool(failed & worked)
