"""Reads the CAN-to-VSS mapping that Eclipse KUKSA's CAN provider uses (``dbc2vss`` in a VSS tree)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpithat.can.transform import Formula, FormulaError
from cockpithat.contract.vehicle import VssValue


class CanMappingError(ValueError):
    """A mapping file cannot be used; the message says which file, which path and what to change."""


@dataclass(frozen=True, slots=True)
class SignalMapping:
    """One VSS leaf fed by one CAN signal.

    ``table`` maps decoded choice names or numbers to VSS values, ``formula`` maps numbers; with
    neither the number is taken as it is. ``interval_ms`` is the shortest time between two values of
    the leaf that are passed on, unless the value changed and ``on_change`` is set.
    """

    path: str
    datatype: str
    signal: str
    interval_ms: int = 0
    on_change: bool = True
    table: tuple[tuple[str | float, VssValue], ...] | None = None
    formula: Formula | None = None

    def convert(self, decoded: float | str) -> VssValue:
        """VSS value of a decoded CAN value; ``None`` where the mapping has no answer for it."""
        value: VssValue
        if self.table is not None:
            value = next((to for source, to in self.table if source == decoded), None)
        elif isinstance(decoded, str):
            value = None
        elif self.formula is not None:
            try:
                value = self.formula(decoded)
            except (ArithmeticError, ValueError):
                return None
        else:
            value = decoded
        return _cast(value, self.datatype)


def _cast(value: VssValue, datatype: str) -> VssValue:
    """The value in its VSS type; ``None`` if it does not fit (a fraction is never rounded away)."""
    if value is None or isinstance(value, list):
        return value
    base = datatype.rstrip("[]")
    if base == "boolean":
        if isinstance(value, bool):
            return value
        return bool(value) if value in (0, 1) else None
    if base == "string":
        return str(value)
    if isinstance(value, (bool, str)):
        return None
    if base in ("float", "double"):
        return float(value)
    return int(value) if float(value).is_integer() else None


def load_mapping(path: Path) -> tuple[SignalMapping, ...]:
    """All leaves of a KUKSA mapping file that a CAN signal feeds.

    Raises :class:`CanMappingError` when the file cannot be read, is not such a mapping, or has a
    transform outside the language.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CanMappingError(f"{path}: cannot be read ({error.strerror}); check can.mapping") from error
    except (ValueError, RecursionError) as error:
        raise CanMappingError(f"{path}: not JSON ({error}); expected a VSS tree with dbc2vss") from error
    if not isinstance(tree, dict):
        raise CanMappingError(f"{path}: expected an object of VSS branches with dbc2vss entries")
    mappings = tuple(_leaf(path, name, node) for name, node in _leaves(tree))
    if not mappings:
        raise CanMappingError(f"{path}: no leaf has a dbc2vss entry, so no CAN signal would be decoded")
    return mappings


def _leaves(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    stack: list[tuple[str, Any]] = list(reversed(tree.items()))
    while stack:
        name, node = stack.pop()
        if not isinstance(node, dict):
            continue
        if "dbc2vss" in node or "dbc" in node:
            yield name, node
        children = node.get("children")
        if isinstance(children, dict):
            stack.extend((f"{name}.{child}", body) for child, body in reversed(children.items()))


def _leaf(path: Path, name: str, node: dict[str, Any]) -> SignalMapping:
    entry = node.get("dbc2vss", node.get("dbc"))
    if not isinstance(entry, dict) or not isinstance(entry.get("signal"), str):
        raise CanMappingError(f"{path}: {name}.dbc2vss needs a 'signal', the name of a signal of the DBC")
    transform = entry.get("transform")
    table: tuple[tuple[str | float, VssValue], ...] | None = None
    formula: Formula | None = None
    try:
        match transform:
            case None:
                pass
            case {"math": str(text)}:
                formula = Formula(text)
            case {"mapping": list(rows)}:
                table = tuple((row["from"], row["to"]) for row in rows)
            case _:
                raise CanMappingError(
                    f"{path}: {name}.dbc2vss.transform must be {{'math': ...}} or {{'mapping': [...]}}"
                )
    except FormulaError as error:
        raise CanMappingError(f"{path}: {name}.dbc2vss.transform.math: {error}") from error
    except (KeyError, TypeError) as error:
        raise CanMappingError(
            f"{path}: {name}.dbc2vss.transform.mapping: each row needs 'from' and 'to'"
        ) from error
    interval = entry.get("interval_ms", 0)
    if isinstance(interval, bool) or not isinstance(interval, int) or interval < 0:
        raise CanMappingError(f"{path}: {name}.dbc2vss.interval_ms must be milliseconds, 0 or more")
    return SignalMapping(
        path=name,
        datatype=str(node.get("datatype", "string")),
        signal=entry["signal"],
        interval_ms=interval,
        on_change=bool(entry.get("on_change", True)),
        table=table,
        formula=formula,
    )
