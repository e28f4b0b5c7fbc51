"""The simulated car's part of the VSS 4.0 tree: what each signal may hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import yaml

from cockpithat.contract.vehicle import VssValue
from cockpithat.resources import read_resource

VSS_VERSION = "4.0"
_INTEGERS = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "uint32": (0, 2**32 - 1),
}


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """One leaf: its VSS metadata, the value a parked car starts with, and the bus resolution."""

    path: str
    type: Literal["sensor", "actuator"]
    datatype: str
    start: VssValue
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    allowed: tuple[str, ...] = ()
    quantum: float | None = None

    def problem(self, value: VssValue) -> str | None:
        """Why a value is not one that this signal may hold, or ``None`` when it is."""
        if self.datatype == "boolean":
            return None if isinstance(value, bool) else "not a boolean"
        if self.datatype == "string":
            if not isinstance(value, str):
                return "not a string"
            return None if not self.allowed or value in self.allowed else "not an allowed value"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "not a number"
        if self.datatype in _INTEGERS:
            low, high = _INTEGERS[self.datatype]
            if not isinstance(value, int) or not low <= value <= high:
                return f"not a {self.datatype}"
        if (self.min is not None and value < self.min) or (self.max is not None and value > self.max):
            return "out of range"
        return None

    def quantised(self, value: float) -> float:
        """The value at the resolution of the bus."""
        if self.quantum is None:
            return value
        return round(round(value / self.quantum) * self.quantum, 3)


@cache
def signal_table(extended: bool = False) -> dict[str, SignalSpec]:
    """All signals of the simulated car by path; ``extended`` adds those of the unseen families' cars."""
    raw = yaml.safe_load(read_resource("data/simulator/signals.yaml"))
    if extended:
        raw = {**raw, **yaml.safe_load(read_resource("data/simulator/unseen_signals.yaml"))}
    return {
        path: SignalSpec(path=path, **{**fields, "allowed": tuple(fields.get("allowed", ()))})
        for path, fields in raw.items()
    }
