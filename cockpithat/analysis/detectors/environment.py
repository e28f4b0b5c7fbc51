"""Statements and actions against the environment: what e and the bus show, and an agent denies or forgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.conditions import as_number
from cockpithat.analysis.detectors.cues import BRIGHT, CLOSED, DARK, DRY, OPEN, RAIN, SNOW, STANDING, Cue
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category

_NEGATED = re.compile(
    r"\b(?:not|no|n't|never|isn't|kein|keine|nicht|without|ohne)\s+(?:\w+\s+){0,2}$|[不没无]$", re.IGNORECASE
)
# "Wait for standstill", "once it is dry", "sobald es hell ist": what is awaited is not said to be so.
_AWAITED = re.compile(
    r"\b(?:wait(?:s|ing)?\s+(?:for|until|till)|until|till|once|when(?:ever)?|after|before|unless|if|"
    r"as soon as|only (?:at|in)|bis|sobald|wenn|falls|nach(?:dem)?|erst|bevor|warte[nt]?\s+auf)"
    r"\s+(?:[\w']+\s+){0,4}$"
    r"|(?:等|等到|等待|直到|如果|当|一旦)\S{0,8}$",
    re.IGNORECASE,
)
_AWAITED_AFTER = re.compile(r"^\S{0,4}(?:之后|以后|后再|时再|再|才)")


@dataclass(frozen=True, slots=True)
class _Dimension:
    """Two opposite states of one thing, by the words that e uses and the words that people use."""

    name: str
    keys: tuple[str, ...]
    here: Cue
    opposite: Cue

    def holds(self, context: dict[str, str]) -> bool:
        """Whether e shows the first of the two states."""
        return any(key in context and self.here.search(context[key]) for key in self.keys)


_MOVING = 10.0  # km/h
_LIGHT_KEYS = ("light", "lighting", "ambient_light", "time_of_day", "illumination")
_ROAD_KEYS = (
    "road_status", "road", "alert", "road_alert", "road_event", "route_status", "road_closure", "hazard",
    "warning",
)  # fmt: skip
_SKY_KEYS = ("weather", "precipitation", "sky", "condition", "conditions")
_SURFACE_KEYS = ("road", "road_surface", "road_condition", "surface", "weather")

_DIMENSIONS = (
    _Dimension("weather", _SKY_KEYS, RAIN, DRY),
    _Dimension("weather", (*_SKY_KEYS, "road_condition", "road_surface"), DRY, RAIN),
    _Dimension("surface", _SURFACE_KEYS, SNOW, DRY),
    _Dimension("light", _LIGHT_KEYS, DARK, BRIGHT),
    _Dimension("light", _LIGHT_KEYS, BRIGHT, DARK),
    _Dimension("road", _ROAD_KEYS, CLOSED, OPEN),
)
_ROUTE_TOOL = re.compile(r"navig|route|destination|waypoint", re.IGNORECASE)
_ROUTE_READ = re.compile(r"^(?:get|read|search|query|list|check|find)", re.IGNORECASE)


class EnvironmentContradictions:
    """``statement_against_environment``, ``statement_against_state``, ``danger_not_heeded``."""

    name = "environment"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """e is carried forward until a step shows another value."""
        context: dict[str, str] = {}
        danger: tuple[int, str] | None = None
        heeded = False
        for i, step in enumerate(view.steps):
            if step.environment:
                for key, value in flatten(step.environment).items():
                    context[key] = str(value)
                    if danger is None and CLOSED.search(f"{key} {value}") and str(value).lower() != "false":
                        danger = (i, f"{key} = {value}")
            if not view.acts(i):
                continue
            yield from self._statements(view, i, context)
            if danger is not None and not heeded:
                heeded = bool(CLOSED.search(view.words[i]))
                acted = any(
                    _ROUTE_TOOL.search(c.name[:100]) and not _ROUTE_READ.match(c.name[:100])
                    for c in step.tool_calls
                ) or any("Navigation" in path for path in view.commands[i])
                if acted and not heeded:
                    heeded = True
                    yield Clue(
                        "danger_not_heeded", i, step.agent, Category.ENVIRONMENTAL_MISGROUNDING, 0.7, "c",
                        quote(view.words[i].strip() or next((c.name for c in step.tool_calls), "")),
                    )  # fmt: skip

    @staticmethod
    def _statements(view: TraceView, index: int, context: dict[str, str]) -> Iterator[Clue]:
        text = view.words[index]
        if not text.strip():
            return
        told: set[str] = set()
        for dimension in _DIMENSIONS:
            shown = next(
                (context[k] for k in dimension.keys if k in context and dimension.here.search(context[k])),
                None,
            )
            if shown is None or dimension.name in told:
                continue
            match = dimension.opposite.search(text)
            if match and not dimension.here.search(text) and not _is_not_said(text, match):
                told.add(dimension.name)
                yield Clue(
                    "statement_against_environment", index, view.steps[index].agent,
                    Category.ENVIRONMENTAL_MISGROUNDING, 0.65, "c", quote(text, match.start()),
                )  # fmt: skip
        speed = _speed(view, index, context)
        match = STANDING.search(text) if speed is not None and speed > _MOVING else None
        if match and not _is_not_said(text, match):
            yield Clue(
                "statement_against_state", index, view.steps[index].agent,
                Category.ENVIRONMENTAL_MISGROUNDING, 0.6, "c", quote(text, match.start()), ("Vehicle.Speed",),
            )  # fmt: skip


def _is_not_said(text: str, match: re.Match[str]) -> bool:
    """Whether it is denied, or awaited, rather than said."""
    before = text[max(0, match.start() - 48) : match.start()]
    return bool(
        _NEGATED.search(before[-24:])
        or _AWAITED.search(before)
        or _AWAITED_AFTER.search(text[match.end() : match.end() + 12])
    )


def _speed(view: TraceView, index: int, context: dict[str, str]) -> float | None:
    state = view.steps[index].state
    if state is not None and "Vehicle.Speed" not in state.quality:
        value = as_number(state.before.get("Vehicle.Speed"))
        if value is not None:
            return value
    return as_number(context.get("speed_kmh", context.get("speed")))
