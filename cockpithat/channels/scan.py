"""The salience scan: one call of the light model over one line a step (section 3.3, prompt 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cockpithat.channels.tags import Priority, Salience, Tag
from cockpithat.contract.trace import Trace
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.slicing.content import channels
from cockpithat.slicing.marks import clean, single_line
from cockpithat.slicing.render import StepText

MAX_FLAGS = 12
SCAN_TOKENS = 240  # with its prompt and answer about 2% of 34,000, a panel's bound
_LEAST_WORDS, _MOST_WORDS = 4, 14
_LEAST_CHANNEL, _MOST_CHANNEL = 24, 120  # characters
_MAX_ANSWER_WORDS = 30

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "salient": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "step": {"type": "integer"},
                    "tag": {"type": "string", "enum": [tag.value for tag in Tag]},
                    "salience": {"type": "number"},
                    "priority": {"type": "string", "enum": ["high", "medium", "low"]},
                    "strength": {"type": "integer"},
                    "why": {"type": "string"},
                },
                "required": ["step", "tag", "salience", "priority", "strength", "why"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["salient"],
    "additionalProperties": False,
}


def _lines(trace: Trace, texts: Sequence[StepText], words: int, width: int) -> str:
    lines = []
    for step, text in zip(trace.steps, texts, strict=True):
        parts = [str(step.index), single_line(step.agent), text.in_words(words)]
        sides = [single_line(channels(step, (channel,)))[:width] for channel in ("e", "sigma", "m")]
        lines.append("|".join(parts) + "".join(f" {side}" for side in sides if side))
    if trace.final_answer.strip():
        answer = " ".join(single_line(trace.final_answer).split()[:_MAX_ANSWER_WORDS])
        lines.append(f"Final answer: {answer}")
    return "\n".join(lines)


def scan_lines(trace: Trace, texts: Sequence[StepText] | None = None, budget: int = SCAN_TOKENS) -> str:
    """One line a step with agent and the channels it has, and the final answer.

    Outcomes and channels are shortened evenly until the lines fit the budget; a step never loses its line.
    """
    texts = [StepText(step) for step in trace.steps] if texts is None else texts
    words, width = _MOST_WORDS, _MOST_CHANNEL
    while True:
        lines = _lines(trace, texts, words, width)
        if approximate_tokens(lines) <= budget or (words <= _LEAST_WORDS and width <= _LEAST_CHANNEL):
            return lines
        words, width = max(_LEAST_WORDS, words - 2), max(_LEAST_CHANNEL, width - 20)


def read_scan(data: dict[str, Any], steps: int) -> list[Salience]:
    """The flags of a scan's answer; entries that name no step or tag of ours are left out.

    Raises ``ValueError`` when the answer is not a list of flags at all. A step flagged twice keeps the graver
    tag: a safety violation, else the higher salience.
    """
    items = data.get("salient")
    if not isinstance(items, list):
        raise ValueError("salient must be a list")
    best: dict[int, Salience] = {}
    for item in items:
        flag = _read_flag(item, steps)
        if flag is None:
            continue
        known = best.get(flag.step)
        if known is None or _gravity(flag) > _gravity(known):
            best[flag.step] = flag
    ranked = sorted(best.values(), key=_gravity, reverse=True)[:MAX_FLAGS]
    return sorted(ranked, key=lambda flag: flag.step)


def _gravity(flag: Salience) -> tuple[bool, float]:
    return flag.tag == Tag.SAFETY_VIOLATION, flag.score


def _read_flag(item: Any, steps: int) -> Salience | None:
    if not isinstance(item, dict):
        return None
    step, tag, score = item.get("step"), item.get("tag"), item.get("salience")
    if type(step) is not int or not 0 <= step < steps or not isinstance(tag, str):
        return None
    name = tag.strip().casefold().replace("-", "_").replace(" ", "_")
    if name not in set(Tag) or isinstance(score, bool) or not isinstance(score, int | float):
        return None
    if not 0.0 <= score <= 1.0:
        return None
    priority: Priority = "medium"
    for known in ("high", "medium", "low"):
        if item.get("priority") == known:
            priority = known
    strength, why = item.get("strength"), item.get("why")
    return Salience(
        step=step,
        tag=Tag(name),
        score=float(score),
        priority=priority,
        strength=min(max(strength, 1), 3) if type(strength) is int else 1,
        why=clean(why)[:200] if isinstance(why, str) else "",
    )
