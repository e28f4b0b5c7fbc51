"""Maps a source's own state fields, and the tools that set them, to VSS signals.

A map file is a JSON object of field to ``{vss_path, transform, vss_4.0, vss_6.0}``, where the last two
give the signal's datatype and bounds in each VSS version (``null``: the version lacks it). ``transform``
is a small language; its clauses are separated by ``;`` and notes in parentheses are skipped:

- ``a->b c->d`` and an optional ``else e``: listed values, anything else has no VSS value or is ``e``;
- ``x*20``: multiplication;
- ``colour name -> #RRGGBB``: a basic colour's name;
- any other clause is a note.

A value that has no counterpart, or does not fit the signal's datatype and bounds, maps to nothing: it
is then unknown and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cockpithat.formats.reading import Document, read_document
from cockpithat.formats.values import need_object
from cockpithat.resources import read_resource

Scalar = bool | int | float | str

_TOOLS = "data/formats/car_bench_tools.yaml"
_NOTE = re.compile(r"\([^()]*\)")
_TIMES = re.compile(r"x\*(\d+(?:\.\d+)?)")
_PAIR = re.compile(r"(\S+)->(\S+)")
_COLOURS = {
    "WHITE": "#FFFFFF", "BLACK": "#000000", "RED": "#FF0000", "GREEN": "#00FF00", "BLUE": "#0000FF",
    "YELLOW": "#FFFF00", "CYAN": "#00FFFF", "MAGENTA": "#FF00FF", "PINK": "#FFC0CB",
    "ORANGE": "#FFA500", "PURPLE": "#800080",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signal:
    """One VSS signal as a map file describes it, and how a field's value becomes its value."""

    path: str
    datatype: str
    minimum: float | None
    maximum: float | None
    allowed: tuple[str, ...]
    transform: str

    def value(self, raw: Any) -> Scalar | None:
        """The VSS value of a field's value; ``None`` where there is none that fits."""
        if not isinstance(raw, bool | int | float | str):
            return None
        return self._fitted(_transformed(self.transform, raw))

    def _fitted(self, value: Scalar | None) -> Scalar | None:
        if value is None:
            return None
        if self.datatype == "boolean":
            return value if isinstance(value, bool) else None
        if self.datatype == "string":
            fits = isinstance(value, str) and (not self.allowed or value in self.allowed)
            return value if fits else None
        if isinstance(value, bool | str):
            return None
        if "int" in self.datatype:
            if value != int(value):
                return None
            value = int(value)
        too_small = self.minimum is not None and value < self.minimum
        too_large = self.maximum is not None and value > self.maximum
        return None if too_small or too_large else value


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """Which state fields a tool sets, and from which of its arguments."""

    value_argument: str
    values: Mapping[Any, Any]
    choose_argument: str | None
    fields: Mapping[Any, tuple[str, ...]]  # by the choosing argument's value; ``None`` without one

    def settings(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Field and value pairs of one call; nothing when an argument is missing."""
        if self.value_argument not in arguments:
            return
        raw = arguments[self.value_argument]
        value = self.values.get(raw, raw) if isinstance(raw, str | bool | int | float) else raw
        choice = arguments.get(self.choose_argument) if self.choose_argument else None
        if isinstance(choice, str | None):
            for name in self.fields.get(choice, ()):
                yield name, value


@dataclass(frozen=True, slots=True)
class StateMap:
    """Field names to VSS signals, for one VSS version."""

    vss_version: str
    signals: Mapping[str, Signal]
    tools: Mapping[str, ToolEffect]

    def observed(self, state: Any) -> dict[str, Scalar]:
        """VSS values of every mapped field found in an object, nested ones under dotted names."""
        found: dict[str, Scalar] = {}
        if not isinstance(state, dict):
            return found
        for name, signal in self.signals.items():
            value = signal.value(_dotted(state, name))
            if value is not None:
                found[signal.path] = value
        return found

    def intended(self, tool: str, arguments: Any) -> dict[str, Scalar]:
        """VSS values a tool call sets out to establish; empty for a tool that sets no mapped field."""
        effect = self.tools.get(tool)
        if effect is None or not isinstance(arguments, dict):
            return {}
        wanted: dict[str, Scalar] = {}
        for name, raw in effect.settings(arguments):
            signal = self.signals.get(name)
            value = signal.value(raw) if signal else None
            if signal is not None and value is not None:
                wanted[signal.path] = value
        return wanted


def load_state_map(path: Path, vss_version: str = "4.0") -> StateMap:
    """Read a map file. Raises ``FormatError`` for a file that is none."""
    document = read_document(path)
    fields = need_object(document, "", document.values[0])
    signals = {}
    for name, value in fields.items():
        entry = need_object(document, f"/{name}", value)
        signal = _signal(document, f"/{name}", entry, vss_version)
        if signal is not None:
            signals[name] = signal
    if not signals:
        raise document.error(
            "", f"maps no field to VSS {vss_version}", "give field: {vss_path, transform, vss_4.0, vss_6.0}"
        )
    return StateMap(vss_version, signals, _shipped_tools())


def _signal(document: Document, place: str, entry: dict[str, Any], version: str) -> Signal | None:
    path = entry.get("vss_path")
    if not isinstance(path, str):
        raise document.error(place, "field 'vss_path' is missing or no string", "give the VSS path")
    leaf = entry.get(f"vss_{version}")
    if leaf is None:
        return None
    leaf = need_object(document, f"{place}/vss_{version}", leaf)
    return Signal(
        path=path,
        datatype=str(leaf.get("datatype", "")),
        minimum=_number(leaf.get("min")),
        maximum=_number(leaf.get("max")),
        allowed=tuple(str(item) for item in leaf.get("allowed") or ()),
        transform=str(entry.get("transform") or ""),
    )


@cache
def _shipped_tools() -> dict[str, ToolEffect]:
    tools: dict[str, ToolEffect] = {}
    for name, entry in yaml.safe_load(read_resource(_TOOLS)).items():
        fields = entry["fields"]
        by_choice = fields if isinstance(fields, dict) else {None: fields}
        tools[name] = ToolEffect(
            value_argument=entry["value"],
            values=entry.get("map", {}),
            choose_argument=entry.get("choose"),
            fields={choice: tuple(names) for choice, names in by_choice.items()},
        )
    return tools


def _transformed(transform: str, raw: Scalar) -> Scalar | None:
    value: Scalar | None = raw
    for clause in _NOTE.sub("", transform).split(";"):
        clause = clause.strip()
        times = _TIMES.fullmatch(clause)
        if times and isinstance(value, int | float) and not isinstance(value, bool):
            factor = float(times.group(1))
            value = value * (int(factor) if factor.is_integer() else factor)
        elif times:
            value = None
        elif clause == "colour name -> #RRGGBB":
            value = _COLOURS.get(str(value).upper())
        elif pairs := _PAIR.findall(clause):
            table = {source: _literal(target) for source, target in pairs}
            _, found, default = clause.partition(" else ")
            value = table.get(str(value), _literal(default.strip()) if found else None)
            break
    return value


def _literal(text: str) -> Scalar:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dotted(state: dict[str, Any], name: str) -> Any:
    if name in state:
        return state[name]
    value: Any = state
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value
