"""The safety agent's word against what happens, with or without a hazard rule for it."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.detectors.base import clue_at
from cockpithat.analysis.detectors.cues import APPROVAL, OFFER, WARNING
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category

_CATEGORY = Category.SAFETY_SAFEGUARD_FAILURE
_REACH = 8


class Safeguards:
    """``action_after_denial``, ``review_skipped``, ``approval_without_look``, ``approval_after_objection``,
    ``action_under_pressure``.

    Weighs less than :class:`SafetyChecks`, which knows from the rules that something hazardous was ordered.
    """

    name = "safeguards"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One pass over words of safety agents, objections of others, pressure of people, and changes."""
        if not view.safety_agents:
            return
        denied: int | None = None
        objected: int | None = None
        pressed = False
        reviewed = False
        looked: int = -1
        asked: int = -1
        wanted: set[str] = set()  # plan items of safety agents that are open
        for i, step in enumerate(view.steps):
            key, doing, text = view.keys[i], view.doings[i], view.words[i]
            if key in view.people:
                pressed = objected is not None and i - objected <= 2
                denied = None if denied is not None and i - denied > 2 else denied
                continue
            if not view.acts(i):
                continue
            wanted |= {p.id for p in step.plan if p.agent and agent_key(p.agent) in view.safety_agents}
            if step.target is not None and agent_key(step.target) in view.safety_agents:
                asked = i
            if key in view.safety_agents:
                if doing.looks or doing.data:
                    looked = i
                if step.mode == "message" and text.strip() and not step.tool_calls:
                    if step.plan_item is not None:
                        wanted.discard(step.plan_item)
                    if APPROVAL.search(text) and not _refuses(text):
                        if looked < max(asked, 0) and (asked >= 0 or pressed or step.plan_item):
                            yield clue_at("approval_without_look", view, i, 0.3, _CATEGORY)
                        if pressed or objected is not None:
                            yield clue_at("approval_after_objection", view, i, 0.5, _CATEGORY)
                        denied, reviewed, objected, pressed = None, True, None, False
                    elif _refuses(text):
                        denied, objected, pressed = i, None, False
                continue
            if doing.writes:
                if denied is not None and i - denied <= _REACH:
                    yield clue_at("action_after_denial", view, i, 0.6, _CATEGORY)
                    denied = None
                elif wanted and not reviewed:
                    yield clue_at("review_skipped", view, i, 0.5, _CATEGORY)
                    wanted.clear()
                if pressed and not reviewed:
                    yield clue_at("action_under_pressure", view, i, 0.5, _CATEGORY)
                objected, pressed = None, False
            elif step.mode == "message" and OFFER.search(text):
                objected, reviewed = i, False


def _refuses(text: str) -> bool:
    return WARNING.search(text) is not None or text.lstrip().lower().startswith(("no.", "no,", "nein", "不"))
