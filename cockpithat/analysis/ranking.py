"""Zero-training rankings of steps: length, mass, and the first step whose work took effect.

Nothing here is trained. The rules are the baselines that ``docs/local-analyst.md`` measures, and two
refinements that were chosen while looking at the 123 Who&When runs at hand: agents that only
coordinate are left out of the mass, and the opening statement of a session is not a step of work.
"""

from __future__ import annotations

from cockpithat.analysis.view import TraceView

_CODE = "```"


def longest_step(view: TraceView) -> int:
    """The longest step that is not a person's or a terminal's; the earliest of equals."""
    return max(view.actors, key=lambda i: view.lengths[i])


def heaviest_agent(view: TraceView, *, without_coordinators: bool = False) -> str:
    """Key of the agent with the most characters; the first of equals."""
    totals = view.characters
    if without_coordinators:
        totals = {k: n for k, n in totals.items() if k not in view.coordinators and n > 0} or totals
    return max(totals, key=lambda k: totals[k])


def first_effect(view: TraceView, key: str) -> int:
    """The agent's first step whose work took effect: a tool call, or code that the next step ran.

    The opening statement does not count. Without such a step, its first step after the opening.
    """
    own = view.own_steps(key)
    later = [i for i in own if i > 0] or own
    for i in later:
        if view.steps[i].tool_calls or view.commands[i]:
            return i
        ran = i + 1 < len(view.steps) and view.keys[i + 1] in view.machines
        if ran and _CODE in view.words[i]:
            return i
    return later[0]
