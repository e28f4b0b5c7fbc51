"""Look-ups and what is said of them: other values than read, none read, read elsewhere, or old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.conditions import as_number
from cockpithat.analysis.detectors.cues import ELSEWHERE
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.readings import differs, path_of_key, stated
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category

_PLACE_KEYS = frozenset(
    {"at", "place", "location", "where", "zone", "segment", "sensed_at", "camera", "source"}
)
_AGE = re.compile(r"(?:^|_)age(?:_|$)")
_OLD_S = 30.0
_REACH = 12
_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?:[.,]\d{1,3})?(?![\w.])")
_SPEECH = frozenset({"message", "observation", "action"})


@dataclass(frozen=True, slots=True)
class _Seen:
    step: int
    value: object
    call: int


class Readings:
    """Follows every named reading from the look that brought it to the steps that state it.

    ``reading_changed``: stated otherwise than just read. ``reading_without_source``: never read.
    ``reading_against_bus``:
    the bus shows another value at that time. ``reading_denied_later``: a later look shows another value.
    ``number_against_output``: after a look of its own the step says numbers, none of which was read.
    ``look_elsewhere``, ``look_stale``: the look itself is at another place, or content with an old picture.
    """

    name = "readings"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One clue of a kind for each step."""
        seen: dict[str, _Seen] = {}
        claims: dict[str, _Seen] = {}
        own_numbers: dict[str, tuple[int, frozenset[float]]] = {}
        for i, step in enumerate(view.steps):
            yield from _look(view, i)
            doing = view.doings[i]
            told: set[str] = set()
            for key, value in doing.data.items():
                at = doing.answers if doing.answers is not None else i
                denied = claims.get(key)
                if denied is not None and denied.step < at and differs(denied.value, value):
                    del claims[key]
                    yield _clue("reading_denied_later", view, denied.step, f"{key} {denied.value}", 0.4)
                bus = _bus(view, i, key)
                if bus is not None and differs(value, bus[1]) and "reading_against_bus" not in told:
                    told.add("reading_against_bus")
                    yield _bus_clue(view, at, key, value, bus)
                seen[key] = _Seen(i, value, at)
                claims.setdefault(key, _Seen(at, value, at))
            if doing.data:
                numbers = frozenset(n for v in doing.data.values() if (n := as_number(v)) is not None)
                own_numbers[view.keys[i]] = (i, numbers)
            if not view.acts(i) or step.mode not in _SPEECH:
                continue
            yield from self._stated(view, i, seen, claims)
            yield from _numbers(view, i, own_numbers)

    @staticmethod
    def _stated(view: TraceView, i: int, seen: dict[str, _Seen], claims: dict[str, _Seen]) -> Iterator[Clue]:
        step = view.steps[i]
        told: set[str] = set()
        said = stated(step.text)
        shown = {k: v for k, v in flatten(step.environment).items() if "_" in k} if step.environment else {}
        for key, value in (*said.items(), *shown.items()):
            if _AGE.search(key) or key in view.doings[i].data or key in _PLACE_KEYS:
                continue
            source = seen.get(key)
            if source is not None and i - source.step <= _REACH and differs(value, source.value):
                if "reading_changed" not in told:
                    told.add("reading_changed")
                    yield _clue("reading_changed", view, i, _shown(view, i, key, value), 0.8)
            elif source is None and key in said and "reading_without_source" not in told:
                told.add("reading_without_source")
                category = Category.INVENTION_OF_NEW_INFORMATION
                yield _clue("reading_without_source", view, i, _shown(view, i, key, value), 0.5, category)
            bus = _bus(view, i, key)
            if bus is not None and differs(value, bus[1]) and "reading_against_bus" not in told:
                told.add("reading_against_bus")
                yield _bus_clue(view, i, key, value, bus)
            claims.setdefault(key, _Seen(i, value, i))


def _bus(view: TraceView, index: int, key: str) -> tuple[str, object] | None:
    """Path and value of the signal a reading is about, where the bus knows it at that time."""
    state = view.steps[index].state
    if state is None or "_" not in key:
        return None
    path = path_of_key(key, view.bus_paths)
    if path is None or path in state.quality or path in view.moving_paths:
        return None
    value = state.before.get(path)
    return None if value is None else (path, value)


def _shown(view: TraceView, index: int, key: str, value: object) -> str:
    text = view.words[index]
    at = text.find(key)
    return quote(text, at) if at >= 0 else f"{key} = {value}"


def _bus_clue(view: TraceView, index: int, key: str, value: object, bus: tuple[str, object]) -> Clue:
    return Clue(
        kind="reading_against_bus",
        step=index,
        agent=view.steps[index].agent,
        category=Category.ENVIRONMENTAL_MISGROUNDING,
        weight=0.7,
        channel="sigma",
        text=quote(f"{key} {value}, bus shows {bus[1]}"),
        paths=(bus[0],),
    )


def _look(view: TraceView, i: int) -> Iterator[Clue]:
    step = view.steps[i]
    if not view.doings[i].looks and step.mode != "observation":
        return
    kinds: dict[str, str] = {}
    pairs = [
        (k, v)
        for c in step.tool_calls
        if isinstance(c.arguments, dict)
        for k, v in flatten(c.arguments).items()
    ]
    pairs += list(flatten(step.environment).items()) if step.environment else []
    for key, value in pairs:
        if key in _PLACE_KEYS and isinstance(value, str) and ELSEWHERE.search(value.replace("_", " ")):
            kinds.setdefault("look_elsewhere", f"{key} = {value}")
        if key in _PLACE_KEYS and isinstance(value, str) and ELSEWHERE.is_all_of(value):
            kinds.setdefault("look_elsewhere", f"{key} = {value}")
        number = as_number(value)
        if _AGE.search(key) and number is not None and number > _OLD_S:
            kinds.setdefault("look_stale", f"{key} = {value}")
    for kind, text in kinds.items():
        in_call = next(
            (render(c.arguments) for c in step.tool_calls if text.split(" = ")[1] in render(c.arguments)), ""
        )
        yield Clue(
            kind, i, step.agent, Category.ENVIRONMENTAL_MISGROUNDING, 0.7 if kind == "look_stale" else 0.6,
            "c" if in_call else "e", quote(in_call) if in_call else text,
        )  # fmt: skip


def _numbers(view: TraceView, i: int, own: dict[str, tuple[int, frozenset[float]]]) -> Iterator[Clue]:
    """An agent that has just read figures states others; figures of the task are left alone."""
    last = own.get(view.keys[i])
    if last is None or i - last[0] > 2 or i == last[0] or not last[1]:
        return
    said = {float(n.replace(",", ".")) for n in _NUMBER.findall(view.steps[i].text[:500])}
    if said and not any(abs(s - n) <= 0.02 * max(abs(s), abs(n)) for s in said for n in last[1]):
        yield _clue("number_against_output", view, i, quote(view.words[i]), 0.5)


def _clue(
    kind: str,
    view: TraceView,
    step: int,
    text: str,
    weight: float,
    category: Category = Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
) -> Clue:
    channel = "c" if text.strip("… ")[:12] in " ".join(view.words[step].split()) else "e"
    return Clue(kind, step, view.steps[step].agent, category, weight, channel, text)  # type: ignore[arg-type]
