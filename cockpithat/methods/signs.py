"""Small observations about steps and clues that several local methods rest on."""

from __future__ import annotations

from cockpithat.analysis.view import render
from cockpithat.contract.trace import Step


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
