"""Milestones of the global layer: decision pivots, tool failures, hand-offs, escalations (section 3.2).

The paper names the four kinds and gives no rules for them; these are ours.
"""

from __future__ import annotations

import re
from enum import StrEnum

from cockpithat.contract.trace import Step, Trace
from cockpithat.slicing.content import compact

_LOOK_AT = 4_000  # characters from either end of a text: cues of a pivot stand at an end


class Milestone(StrEnum):
    """Kinds of milestone, most telling first."""

    TOOL_FAILURE = "tool failure"
    ESCALATION = "escalation"
    DECISION = "decision"
    HAND_OFF = "hand-off"
    START = "start"
    END = "end"


_FAILURE = re.compile(
    r"\btraceback\b|\berror:|\bexception\b|\bexit ?code:? ?[1-9]|\bfailed\b|\bfailure\b|\btimed? ?out\b"
    r"|\b(?:404|403|500) (?:not|forbidden|error)|\bnot (?:found|available|supported|permitted)\b"
    r"|\bdenied\b|\bno code block\b|失败|错误|\bfehlgeschlagen\b|\bfehler\b",
    re.IGNORECASE,
)
_ESCALATION = re.compile(
    r"\bescalat|\boverrid|\bpolicy\b|\bnot allowed\b|\bunsafe\b|\bsafety (?:check|concern|rule|risk)"
    r"|\brefus(?:e|ed|al)\b|\bask (?:the )?(?:user|driver) (?:to|for) confirm|\bconfirmation (?:is )?required"
    r"|\bemergency\b|\bwarn(?:ing)?\b",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\binitial plan\b|\bnew plan\b|\bupdated plan\b|\brevised plan\b|\bre-?plan|\bplan:|\binstead,"
    r"|\bdecid(?:e|ed|ing)\b|\blet'?s try (?:a|an|another)\b|\bdifferent approach\b|\bfinal answer\b"
    r"|\bin conclusion\b|\btherefore\b|\bterminate\b|决定|改为|\bstattdessen\b",
    re.IGNORECASE,
)
_DECIDING_MODES = frozenset({"plan", "decision", "final", "final_answer", "termination condition"})


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOK_AT else text[:_LOOK_AT] + "\n" + text[-_LOOK_AT:]


def milestone(step: Step, last_index: int) -> Milestone | None:
    """What makes a step a milestone, or ``None``."""
    if any(out.is_error or _FAILURE.search(_ends(compact(out.content))) for out in step.tool_outputs) or (
        "terminal" in step.agent.casefold() and _FAILURE.search(_ends(step.text))
    ):
        return Milestone.TOOL_FAILURE
    text = _ends(step.text)
    if "safety" in step.agent.casefold() or _ESCALATION.search(text):
        return Milestone.ESCALATION
    if step.plan or step.mode in _DECIDING_MODES or _DECISION.search(text):
        return Milestone.DECISION
    if step.target:
        return Milestone.HAND_OFF
    if step.index == 0:
        return Milestone.START
    return Milestone.END if step.index == last_index else None


def milestones(trace: Trace) -> dict[int, Milestone]:
    """All milestones of a trace by step."""
    last = len(trace.steps) - 1
    return {step.index: kind for step in trace.steps if (kind := milestone(step, last)) is not None}
