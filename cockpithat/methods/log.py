"""A trace, or a part of it, as quoted text within a number of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpithat.llm.tokens import approximate_tokens
from cockpithat.slicing.content import channels
from cockpithat.slicing.marks import single_line
from cockpithat.slicing.render import Rendering, StepText

_LEAST_KEY = 30  # tokens; an extract shorter than this says less than 20 words do
_SIDES = 400  # characters of the side channels of one step


def even_share(costs: Sequence[int], room: int) -> float:
    """The largest level at which ``sum(min(cost, level))`` stays within ``room``; infinite where all fits."""
    left, ordered = float(room), sorted(costs)
    for place, cost in enumerate(ordered):
        if cost * (len(ordered) - place) > left:
            return max(left / (len(ordered) - place), 0.0)
        left -= cost
    return float("inf")


def _fit(text: StepText, level: float) -> Rendering:
    if text.verbatim.tokens + 1 <= level:
        return text.verbatim
    if level >= _LEAST_KEY:
        key = text.key(int(level) - 2)
        if key.tokens <= level:
            return key
    shorter = text.outcome
    return text.verbatim if text.verbatim.tokens <= shorter.tokens else shorter


def render_log(
    texts: Sequence[StepText], budget: int, steps: Iterable[int] | None = None, *, numbered: bool = True
) -> str:
    """The wanted steps in order (all by default) in about ``budget`` tokens (``approx-1``).

    Numbered: ``== AGENT`` opens a run of an agent's steps and ``@N`` each step, as in the panel's contexts.
    Otherwise ``== AGENT`` opens every step and nothing numbers it. Steps over an even share of the budget are
    cut to their key parts or to 20 words, which ``~key`` and ``~20w`` say; no step is left out. Side channels
    stand below their step.
    """
    chosen = [texts[i] for i in (range(len(texts)) if steps is None else steps)]
    sides = [single_line(channels(text.step, ("sigma", "e", "m")))[:_SIDES] for text in chosen]
    heads = [f"== {single_line(text.step.agent)}" for text in chosen]
    fixed = sum(
        approximate_tokens(f"{head} @000 ~key\n{side}") for head, side in zip(heads, sides, strict=True)
    )
    level = even_share([text.verbatim.tokens + 1 for text in chosen], max(budget - fixed, 0))
    lines: list[str] = []
    for place, (text, head, side) in enumerate(zip(chosen, heads, sides, strict=True)):
        rendering = _fit(text, level)
        kind = f" ~{rendering.kind}" if rendering.kind else ""
        if numbered:
            if place == 0 or head != heads[place - 1]:
                lines.append(head)
            lines.append(f"@{text.step.index}{kind}")
        else:
            lines.append(head + kind)
        lines.extend(part for part in (side, rendering.text) if part)
    return "\n".join(lines)
