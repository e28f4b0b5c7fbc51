"""Values that appear from nowhere: no one said them, no tool returned them, no channel shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.detectors.cues import ASSUMED
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category

_TOKEN = re.compile(r"[^\W_]+")
_FIGURE = re.compile(r"(?<![\w.,])\d{2,9}(?:[.,]\d{1,4})?(?![\w])")
_NAME = re.compile(r"\b[A-ZÄÖÜ][\w'’-]{2,30}(?: [A-ZÄÖÜ][\w'’-]{2,30}){1,3}\b")
_IDENTIFIER = re.compile(r"^(?=[^\s]*\d)[A-Za-z][\w-]{4,64}$")


class Inventions:
    """``identifier_from_nowhere``, ``name_from_nowhere``, ``figure_from_nowhere``, ``assumed_data``.

    Figures and names weigh little: an agent may add, round or know things. An identifier that no
    tool ever returned can't be known.
    """

    name = "inventions"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One clue of a kind for each step."""
        seen: set[str] = set(_TOKEN.findall(view.trace.task.lower()))
        had_output = False
        for i, step in enumerate(view.steps):
            if view.acts(i) and i > 0:
                yield from self._fresh(view, i, seen, had_output)
            for text in (view.lowered[i], *(render(c.arguments).lower() for c in step.tool_calls)):
                seen.update(_TOKEN.findall(text))
            for output in step.tool_outputs:
                had_output = True
                seen.update(_TOKEN.findall(render(output.content).lower()))
            for item in step.plan:
                seen.update(_TOKEN.findall(item.text.lower()[:1_000]))
            for ref in step.memory:
                seen.update(_TOKEN.findall(f"{ref.key} {render(ref.value)}".lower()))
            if step.environment:
                seen.update(
                    _TOKEN.findall(" ".join(f"{k} {v}" for k, v in flatten(step.environment).items()).lower())
                )
            if step.state is not None:
                seen.update(str(v).lower() for c in step.state.changes for v in (c.before, c.after))
                if i == 0:
                    for value in step.state.before.values():
                        seen.update(_TOKEN.findall(str(value).lower()))

    def _fresh(self, view: TraceView, index: int, seen: set[str], had_output: bool) -> Iterator[Clue]:
        step = view.steps[index]
        own = {t for o in step.tool_outputs for t in _TOKEN.findall(render(o.content).lower())}

        def unknown(text: str) -> bool:
            tokens = _TOKEN.findall(text.lower())
            return bool(tokens) and not any(t in seen or t in own for t in tokens)

        for call in step.tool_calls:
            values = call.arguments.values() if isinstance(call.arguments, dict) else ()
            for value in values:
                if isinstance(value, str) and _IDENTIFIER.match(value) and had_output:
                    tokens = _TOKEN.findall(value.lower())
                    if tokens and tokens[-1] not in seen | own:
                        yield _clue("identifier_from_nowhere", view, index, value, 0.6)
                        break
        text = view.words[index]
        if match := ASSUMED.search(text):
            yield _clue("assumed_data", view, index, quote(text, match.start()), 0.3)
        named = next((m for m in _NAME.finditer(text) if unknown(m.group())), None)
        if named is not None:
            yield _clue(
                "name_from_nowhere", view, index, quote(text, named.start()), 0.45 if had_output else 0.15
            )
        figure = next((m for m in _FIGURE.finditer(text) if unknown(m.group())), None)
        if figure is not None:
            yield _clue(
                "figure_from_nowhere", view, index, quote(text, figure.start()), 0.3 if had_output else 0.1
            )


def _clue(kind: str, view: TraceView, step: int, text: str, weight: float) -> Clue:
    category = Category.INVENTION_OF_NEW_INFORMATION
    return Clue(kind, step, view.steps[step].agent, category, weight, "c", text)
