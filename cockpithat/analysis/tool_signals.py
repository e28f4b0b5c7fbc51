"""Which vehicle signals a step sets out to change: what it declares, and what its tool calls imply."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cockpithat.analysis.conditions import as_bool, as_number
from cockpithat.contract.events import ToolCall
from cockpithat.contract.trace import Step
from cockpithat.resources import read_resource

Value = bool | int | float | str


class ToolMapping(BaseModel):
    """How the arguments of some tools become target values of VSS paths."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    selector: tuple[str, ...] = ()
    select: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    kind: Literal["boolean", "number", "upper", "plain"] = Field("plain", alias="as")
    value: Value | None = None  # when no argument carries one

    @model_validator(mode="after")
    def _some_path(self) -> ToolMapping:
        if not self.paths and not self.select:
            raise ValueError("a mapping needs paths or select")
        return self


class ToolSignals(BaseModel):
    """The whole mapping file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    path_arguments: tuple[str, ...]
    value_arguments: tuple[str, ...]
    mappings: tuple[ToolMapping, ...]


@lru_cache(maxsize=1)
def _mapping() -> tuple[ToolSignals, dict[str, ToolMapping]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    signals = ToolSignals.model_validate(
        yaml.load(read_resource("data/rules/tool_signals.yaml"), Loader=loader)
    )
    return signals, {tool: mapping for mapping in signals.mappings for tool in mapping.tools}


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _argument(arguments: dict[str, object], names: Iterable[str]) -> object | None:
    return next((arguments[name] for name in names if arguments.get(name) is not None), None)


def _convert(value: object, kind: str) -> Value | None:
    if kind == "boolean":
        word = value.strip().lower() if isinstance(value, str) else None
        return {"close": False, "open": True}.get(word or "", as_bool(value))
    if kind == "number":
        return as_number(value)
    if kind == "upper":
        return value.upper()[:64] if isinstance(value, str) else None
    return value if isinstance(value, (bool, int, float, str)) else None


def from_tool_call(call: ToolCall) -> dict[str, Value]:
    """Target values by VSS path that this call implies; empty when none is known."""
    if not isinstance(call.arguments, dict) or (not call.arguments and not call.name):
        return {}
    signals, by_tool = _mapping()
    path = _argument(call.arguments, signals.path_arguments)
    if isinstance(path, str) and path.startswith("Vehicle."):
        value = _convert(_argument(call.arguments, signals.value_arguments), "plain")
        return {} if value is None else {path[:256]: value}
    mapping = by_tool.get(_plain(call.name[:100]))
    if mapping is None:
        return {}
    raw = _argument(call.arguments, mapping.arguments)
    value = mapping.value if raw is None else _convert(raw, mapping.kind)
    if value is None:
        return {}
    paths = mapping.paths
    if mapping.select:
        chosen = _argument(call.arguments, mapping.selector)
        paths = mapping.select.get(str(chosen).lower()[:40], paths) if chosen is not None else paths
    return dict.fromkeys(paths, value)


def commands_of(step: Step) -> dict[str, Value]:
    """What a step sets out to change: its ``intended`` changes, then what its tool calls add."""
    commands: dict[str, Value] = {}
    for call in step.tool_calls:
        commands.update(from_tool_call(call))
    for change in step.intended:
        if isinstance(change.value, (bool, int, float, str)):
            commands[change.path[:256]] = change.value
    return commands
