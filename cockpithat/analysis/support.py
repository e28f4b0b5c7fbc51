"""Whether a piece of evidence checks out against the trace it is said to come from."""

from __future__ import annotations

from collections.abc import Callable

from cockpithat.analysis.environment import flatten
from cockpithat.analysis.tool_signals import commands_of
from cockpithat.analysis.view import render
from cockpithat.contract.reports import Evidence
from cockpithat.contract.trace import Step, Trace

CONCRETE = 0.5
"""Least weight of evidence that counts as concrete; weaker clues are hints."""


def supports_in(trace: Trace) -> Callable[[Evidence], bool]:
    """A check for the consensus: the step exists, and what is quoted stands there."""

    def supports(evidence: Evidence) -> bool:
        if evidence.step is None or not 0 <= evidence.step < len(trace.steps):
            return False
        if evidence.weight is not None and evidence.weight < CONCRETE:
            return False
        step = trace.steps[evidence.step]
        if evidence.channel == "sigma":
            return any(_has_path(step, path) for path in evidence.paths)
        return stands_in(step, evidence.text)

    return supports


def _has_path(step: Step, path: str) -> bool:
    if path in commands_of(step):
        return True
    state = step.state
    return state is not None and (
        path in state.before or path in state.after or any(c.path == path for c in state.changes)
    )


def stands_in(step: Step, text: str) -> bool:
    """Whether a quote, ellipses and line breaks aside, is in what a step said, called, got or saw."""
    wanted = " ".join(text.strip("…“”\"' ").split())
    if not wanted:
        return False
    return any(wanted in " ".join(source.split()) for source in _sources(step))


def _sources(step: Step) -> list[str]:
    return [
        step.text,
        step.reasoning,
        *(f"{call.name} {render(call.arguments)}" for call in step.tool_calls),
        *(render(call.arguments) for call in step.tool_calls),
        *(render(output.content) for output in step.tool_outputs),
        *(f"{item.id} {item.text}" for item in step.plan),
        step.plan_item or "",
        *(f"{ref.key} {render(ref.value)}" for ref in step.memory),
        *(f"{ref.key} of {ref.owner or ref.domain}" for ref in step.memory),
        *(f"{key} = {value}" for key, value in flatten(step.environment).items()),
    ]
