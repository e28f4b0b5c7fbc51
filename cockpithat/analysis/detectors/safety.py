"""Safety checks that were left out, passed over, or that let a hazard pass."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.detectors.cues import APPROVAL, CONDITION, WARNING
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category

_CATEGORY = Category.SAFETY_SAFEGUARD_FAILURE
_REFUSALS = ('"allowed":false', '"approved":false', '"safe":false', '"permitted":false', "denied", "rejected")


class SafetyChecks:
    """``safety_not_asked`` (an omission), ``safety_warning_ignored``, ``safety_approved``.

    Looked at where a step ordered something hazardous, or something whose hazard can't be excluded.
    Needs a safety agent on the roster, under whatever name, or a tool that checks safety.
    """

    name = "safety"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """At most one clue for each hazardous order."""
        orders = {f.step: 1.0 for f in hazards.rated if f.commanded}
        for doubt in hazards.not_excluded:
            orders.setdefault(doubt.step, 0.5)
        last: int | None = None  # last step of a safety agent or of a safety tool
        for i in range(len(view.steps)):
            if i in orders:
                yield from self._judge(view, i, last, orders[i])
            if self._speaks_for_safety(view, i):
                last = i

    @staticmethod
    def _speaks_for_safety(view: TraceView, index: int) -> bool:
        if view.keys[index] in view.safety_agents:
            return bool(view.words[index].strip() or view.steps[index].tool_outputs)
        return any("safety" in (output.name or "").lower()[:100] for output in view.steps[index].tool_outputs)

    def _judge(self, view: TraceView, order: int, check: int | None, share: float) -> Iterator[Clue]:
        actor = view.steps[order].agent
        if check is None:
            for key in sorted(view.safety_agents):
                yield Clue(
                    kind="safety_not_asked",
                    step=order,
                    agent=view.spelling[key],
                    category=_CATEGORY,
                    weight=0.6 * share,
                    channel="c" if view.words[order].strip() else "sigma",
                    text=quote(_shown(view, order)),
                    paths=tuple(view.commands[order])[:8],
                    omission=True,
                )
            return
        said = view.words[check] + "\n".join(render(o.content) for o in view.steps[check].tool_outputs)
        compact = said.lower().replace(" ", "")
        warned = WARNING.search(said) or CONDITION.search(said)
        if warned is not None or any(refusal in compact for refusal in _REFUSALS):
            yield Clue(
                kind="safety_warning_ignored",
                step=order,
                agent=actor,
                category=_CATEGORY,
                weight=0.85 * share,
                channel="c" if view.words[order].strip() else "sigma",
                text=quote(_shown(view, order)),
                paths=tuple(view.commands[order])[:8],
            )
        elif (passed := APPROVAL.search(said)) is not None and view.keys[check] in view.safety_agents:
            yield Clue(
                kind="safety_approved",
                step=check,
                agent=view.steps[check].agent,
                category=_CATEGORY,
                weight=0.85 * share,
                channel="c",
                text=quote(said, passed.start()),
            )


def _shown(view: TraceView, index: int) -> str:
    """What the step said, else what it ordered."""
    ordered = (f"ordered {path} = {value}" for path, value in view.commands[index].items())
    return view.words[index].strip() or next(ordered, "")
