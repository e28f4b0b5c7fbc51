"""Tool output against what later steps say of it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.detectors.cues import ACKNOWLEDGED, ALARMING, REASSURING
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category

_REACH = 6
_MAX_LEAVES = 60
_KEY_WORD = re.compile(r"[a-z]{4,}")
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?:[.,]\d{1,4})?")
_SENTENCE = re.compile(r"[^.!?\n。！？]{1,400}")
_UNITS = frozenset({"kmh", "percent", "minutes", "seconds", "meters", "metres", "celsius", "value", "number"})


class StatementsAgainstOutput:
    """``statement_against_output`` (another number for the same thing), ``alarm_talked_down``."""

    name = "statements"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """Statements are compared with the structured outputs of the six steps before."""
        recent: deque[tuple[int, list[tuple[str, object]]]] = deque(maxlen=_REACH)
        for i, step in enumerate(view.steps):
            if view.acts(i) and step.text.strip() and recent:
                yield from self._compare(view, i, recent)
            leaves = [leaf for o in step.tool_outputs for leaf in _leaves(o.content)][:_MAX_LEAVES]
            if leaves:
                recent.append((i, leaves))
            elif recent and i - recent[0][0] > _REACH:
                recent.popleft()

    def _compare(
        self, view: TraceView, index: int, recent: deque[tuple[int, list[tuple[str, object]]]]
    ) -> Iterator[Clue]:
        text = view.words[index]
        lowered = view.lowered[index]
        for _, leaves in reversed(recent):
            for key, value in leaves:
                if isinstance(value, str) and ALARMING.is_all_of(value.strip()[:60]):
                    calm = REASSURING.search(text)
                    if calm and value.lower() not in lowered and not ACKNOWLEDGED.search(text):
                        yield _clue("alarm_talked_down", view, index, quote(text, calm.start()), 0.65)
                        return
                elif isinstance(value, (int, float)) and not isinstance(value, bool):
                    sentence = _other_number(text, lowered, key, float(value))
                    if sentence is not None:
                        yield _clue("statement_against_output", view, index, quote(sentence), 0.6)
                        return


def _clue(kind: str, view: TraceView, step: int, text: str, weight: float) -> Clue:
    category = Category.MISINTERPRETATION_OF_TOOL_OUTPUT
    return Clue(kind, step, view.steps[step].agent, category, weight, "c", text)


def _leaves(content: object) -> Iterator[tuple[str, object]]:
    pending: list[tuple[str, object, int]] = [("", content, 0)]
    given = 0
    while pending and given < _MAX_LEAVES:
        key, value, depth = pending.pop()
        if isinstance(value, dict):
            if depth < 5:
                pending.extend((str(k), v, depth + 1) for k, v in list(value.items())[:_MAX_LEAVES])
        elif isinstance(value, list):
            if depth < 5 and len(value) == 1:  # of many alike, a key names none in particular
                pending.append((key, value[0], depth + 1))
        elif key:
            given += 1
            yield key, value


def _other_number(text: str, lowered: str, key: str, value: float) -> str | None:
    """The sentence that names the key's thing with only other numbers; ``None`` if there is none."""
    names = [w for w in _KEY_WORD.findall(key.lower()) if w not in _UNITS]
    if len(names) < 2 or not all(name in lowered for name in names):
        return None
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if all(name in sentence.lower() for name in names):
            numbers = [float(n.replace(",", ".")) for n in _NUMBER.findall(sentence)]
            if numbers and not any(abs(n - value) <= max(0.02 * abs(value), 0.5) for n in numbers):
                return sentence
    return None
