"""Between people and agents: corrections, repeated requests, and orders that came from content."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.detectors.cues import CORRECTION, INJECTION
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category

_WORD = re.compile(r"[^\W_]{3,}|[\u4e00-\u9fff]")
_SIMILAR = 0.6
_REMEMBERED = 8
_CATEGORY = Category.DRIVER_AGENT_INTERACTION


class Corrections:
    """``corrected_by_person``, ``request_repeated``, ``correction_not_heard``."""

    name = "corrections"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """Blames the agent's step that the person reacts to; after a correction, the one that repeats it."""
        earlier: list[tuple[int, frozenset[str]]] = []
        acted: dict[str, object] = {}
        corrected: dict[str, object] = {}
        last_action: int | None = None
        last_said: int | None = None
        for i, step in enumerate(view.steps):
            if view.keys[i] in view.people:
                text = view.words[i]
                tokens = frozenset(_WORD.findall(view.lowered[i])[:200])
                target = last_action if last_action is not None else last_said
                match = CORRECTION.search(text)
                if earlier and match and target is not None:
                    corrected.update(acted)
                    yield _clue("corrected_by_person", view, target, 0.5)
                similar = next((j for j, other in reversed(earlier) if _alike(tokens, other)), None)
                if similar is not None:
                    answer = next((j for j in range(similar + 1, i) if view.acts(j)), None)
                    if answer is not None:
                        yield _clue("request_repeated", view, answer, 0.45)
                if len(tokens) >= 3:
                    earlier = [*earlier, (i, tokens)][-_REMEMBERED:]
                last_action = None
                continue
            if not view.acts(i):
                continue
            last_said = i
            calls = {f"{c.name} {render(c.arguments)}": True for c in step.tool_calls if view.commands[i]}
            actions: dict[str, object] = {**view.commands[i], **calls}
            if actions:
                last_action = i
                if any(key in corrected and corrected[key] == value for key, value in actions.items()):
                    yield _clue("correction_not_heard", view, i, 0.75)
                    corrected.clear()
                acted.update(actions)


def _alike(left: frozenset[str], right: frozenset[str]) -> bool:
    if len(left) < 3 or len(right) < 3:
        return False
    return len(left & right) / len(left | right) >= _SIMILAR


def _clue(kind: str, view: TraceView, step: int, weight: float) -> Clue:
    source = view.steps[step]
    text = view.words[step].strip() or next(
        (f"{c.name} {render(c.arguments)}" for c in source.tool_calls), ""
    )
    return Clue(kind, step, source.agent, _CATEGORY, weight, "c", quote(text))


class OrdersFromContent:
    """``order_from_content``: an agent acts right after content that gives orders to agents."""

    name = "content_orders"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """Content is what tools returned, e and memory; people's own words are not content."""
        for i, step in enumerate(view.steps):
            pieces = [render(o.content) for o in step.tool_outputs]
            pieces += [render(ref.value) for ref in step.memory]
            if step.environment:
                pieces.append(render(step.environment))
            if not any(INJECTION.search(piece) for piece in pieces):
                continue
            j = next((j for j in (i, *view.following(i, 3)) if view.acts(j) and view.commands[j]), None)
            if j is not None:
                yield Clue(
                    kind="order_from_content",
                    step=j,
                    agent=view.steps[j].agent,
                    category=Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
                    weight=0.6,
                    channel="c" if view.words[j].strip() else "sigma",
                    text=quote(view.words[j].strip() or next(iter(view.commands[j]))),
                    paths=tuple(view.commands[j])[:8],
                )
