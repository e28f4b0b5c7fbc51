"""The contexts of all focal steps in one text, within a number of tokens.

Every step is the focus of one context and so belongs verbatim in the collection; sent once, in that best
rendering, it serves all others. Where the trace is longer than the budget, the budget is shared out: short
steps stay verbatim, a long one is cut to its key actions and conclusions (the L2 rendering) at the level
where everything fits, then to 20 words (L3), then to milestones (L4). Flagged steps get a larger share,
safety violations the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cockpithat.channels.tags import PI, Salience, Tag
from cockpithat.contract.trace import Trace
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.slicing.content import channels
from cockpithat.slicing.index import LEGEND, MembershipIndex, write_numbers
from cockpithat.slicing.marks import SALIENT, single_line
from cockpithat.slicing.milestones import milestones
from cockpithat.slicing.render import Rendering, StepText

_LEAST_KEY = 30  # tokens; an extract shorter than this says less than 20 words do
_ROUNDS = 4
_MAX_CHANNELS = 600  # characters of the attached channels of one step


@dataclass(frozen=True, slots=True)
class SharedContext:
    """The text with the index it carries, and how each step was rendered.

    ``kinds``: empty for verbatim, ``key`` (L2), ``20w`` (L3), ``4`` (L4), ``-`` where only its line stands.
    """

    text: str
    index: MembershipIndex
    kinds: tuple[str, ...]
    tokens: int


def _weight(salience: Salience | None) -> float:
    if salience is None:
        return 1.0
    return 4.0 if salience.tag == Tag.SAFETY_VIOLATION else 2.0


def _cap(demands: list[int], weights: list[float], room: float) -> float:
    """The largest level ``c`` with ``sum(min(demand, c * weight)) <= room``."""
    order = sorted(range(len(demands)), key=lambda i: demands[i] / weights[i])
    left, weight = room, sum(weights)
    for i in order:
        if demands[i] / weights[i] * weight > left:
            return max(left / weight, 0.0)
        left -= demands[i]
        weight -= weights[i]
    return float("inf")


def _fit(text: StepText, cost: int, cap: float) -> Rendering:
    if cost <= cap:
        return text.verbatim
    if cap >= _LEAST_KEY:
        key = text.key(int(cap) - 2)
        if key.tokens <= cap:
            return key
    return text.verbatim if cost <= text.outcome.tokens else text.outcome


def _share_out(texts: Sequence[StepText], weights: list[float], room: int, trace: Trace) -> list[Rendering]:
    costs = [text.verbatim.tokens + 1 for text in texts]
    target = float(room)
    best: list[Rendering] | None = None
    for _ in range(_ROUNDS):
        cap = _cap(costs, weights, target)
        chosen = [
            _fit(text, cost, cap * weight) for text, cost, weight in zip(texts, costs, weights, strict=True)
        ]
        used = sum(rendering.tokens + 1 for rendering in chosen)
        if used <= room:
            best = chosen
            if cap == float("inf") or room - used < max(60, room // 50):
                break
            target += room - used  # extracts came out shorter than their share: raise the level
        elif best is not None:
            break
        else:
            target -= used - room
    if best is not None:
        return best
    shorts = [text.outcome for text in texts]
    if sum(short.tokens + 1 for short in shorts) <= room:
        return shorts
    kinds = milestones(trace)
    return [
        text.outcome if weight > 1 else text.milestone(kinds.get(text.step.index))
        for text, weight in zip(texts, weights, strict=True)
    ]


def build_context(
    trace: Trace,
    index: MembershipIndex,
    budget: int,
    salience: Mapping[int, Salience] | None = None,
    texts: Sequence[StepText] | None = None,
) -> SharedContext:
    """All contexts of a trace within about ``budget`` tokens (``approx-1``).

    ``salience`` holds the flags of the channel adapter by step; flagged steps carry the mark and the channels
    of equation 2. The index's lines are never cut, so a very long trace may exceed a very small budget.
    ``texts`` are the steps' renderings, for callers that build several contexts of one trace.
    """
    salience = dict(salience or {})
    sources = index.sources()
    heads: list[str] = []
    marks: list[str] = []
    agents: list[str] = []
    for step in trace.steps:
        agent = single_line(step.agent)
        mode = single_line(step.mode) if step.mode not in ("message", "") else ""
        agents.append(f"== {agent}")
        arrow = f" ←{write_numbers(sources[step.index])}" if sources[step.index] else ""
        # An arrow in a mode would read as ours.
        mode = f" {mode.replace('←', '<-').replace('~', '-')}" if mode else ""
        to = f" to {single_line(step.target).replace('←', '<-')}" if step.target else ""
        flag = salience.get(step.index)
        marks.append(f" {SALIENT}{flag.tag}]" if flag else "")
        heads.append(f"{mode}{to}{arrow}")
    attached = [
        single_line(channels(step, PI[salience[step.index].tag]))[:_MAX_CHANNELS]
        if step.index in salience
        else ""
        for step in trace.steps
    ]
    rule = f"LAYERS {index.layering} {index.steps}: {LEGEND[index.layering]}"
    fixed = approximate_tokens(rule) + sum(
        approximate_tokens(f"@{step.index}{marks[step.index]}{heads[step.index]} ~key") + 1
        for step in trace.steps
    )
    fixed += sum(approximate_tokens(line) for line in attached if line)
    fixed += sum(
        approximate_tokens(agents[i]) + 1 for i in range(len(agents)) if i == 0 or agents[i] != agents[i - 1]
    )
    weights = [_weight(salience.get(step.index)) for step in trace.steps]
    texts = [StepText(step) for step in trace.steps] if texts is None else texts
    renderings = _share_out(texts, weights, max(budget - fixed, 0), trace)
    lines = [rule]
    kinds: list[str] = []
    for i, rendering in enumerate(renderings):
        if i == 0 or agents[i] != agents[i - 1]:
            lines.append(agents[i])
        left_out = not rendering.text and rendering.kind == "" and bool(trace.steps[i].text)
        kind = "-" if left_out else rendering.kind
        kinds.append(kind)
        lines.append(f"@{i}{marks[i]}{heads[i]}" + (f" ~{kind}" if kind else ""))
        if attached[i]:
            lines.append(attached[i])
        if rendering.text:
            lines.append(rendering.text)
    text = "\n".join(lines)
    return SharedContext(text, index, tuple(kinds), approximate_tokens(text))
