"""What agents claim without having done it: work, consent, a look; and what they do after a stop."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.detectors.base import clue_at
from cockpithat.analysis.detectors.cues import ACKNOWLEDGED, CANCELLED, CONSENT, DONE
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category

_INVENTION = Category.INVENTION_OF_NEW_INFORMATION
_REACH = 6


class Claims:
    """``done_without_call``, ``done_after_refusal``, ``consent_without_answer``, ``answer_without_look``,
    ``cancelled_then_done``.

    Looked for only in sessions whose agents use tools at all: elsewhere words are all there is.
    """  # fmt: skip

    name = "claims"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One pass. An agent's work counts from the last time that it was addressed or a plan item began."""
        tools = {view.keys[i] for i, s in enumerate(view.steps) if s.tool_calls}
        if not tools:
            return
        used: dict[str, int] = {}  # last look or write of an agent
        asked: dict[str, tuple[int, str | None]] = {}  # when an agent was last addressed, for which item
        refused: dict[str, int] = {}
        items: dict[str, str] = {}  # plan item to the agent it is for
        answered = True  # whether a person spoke since the last dispatch
        cancelled: int | None = None
        for i, step in enumerate(view.steps):
            key, doing = view.keys[i], view.doings[i]
            if key in view.people:
                answered, cancelled = True, None
                continue
            if not view.acts(i):
                continue
            for item in step.plan:
                if item.agent:
                    items[item.id] = agent_key(item.agent)
            if step.tool_calls or doing.data or step.mode == "observation":
                used[key] = i
                if doing.refused:
                    refused[key] = i
                elif doing.writes:
                    refused.pop(key, None)
            text = view.words[i]
            if cancelled is not None and doing.writes and i - cancelled <= _REACH:
                yield clue_at("cancelled_then_done", view, i, 0.7, Category.DRIVER_AGENT_INTERACTION)
                cancelled = None
            if step.mode == "message" and not step.tool_calls:
                if CONSENT.search(text) and not answered:
                    yield clue_at("consent_without_answer", view, i, 0.7, _INVENTION)
                since = asked.get(key, (-1, None))[0]
                mine = items.get(step.plan_item or "") == key or since >= 0
                if mine and key in tools and used.get(key, -1) < since and doing.answers is None:
                    done = DONE.search(text)
                    kind = "done_without_call" if done else "answer_without_look"
                    yield clue_at(kind, view, i, 0.45 if done else 0.3, _INVENTION)
                    asked.pop(key, None)
                if key in refused and i - refused[key] <= 2 and not ACKNOWLEDGED.search(text):
                    yield clue_at(
                        "done_after_refusal", view, i, 0.75, Category.MISINTERPRETATION_OF_TOOL_OUTPUT
                    )
                    refused.pop(key, None)
                if CANCELLED.search(text):
                    cancelled = i
            if step.target is not None and agent_key(step.target) != key:
                asked[agent_key(step.target)] = (i, step.plan_item)
                answered = False
