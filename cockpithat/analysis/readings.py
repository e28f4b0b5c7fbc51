"""Readings that steps state, by name: in e, in a tool's answer, or in words such as ``light_pct 70``."""

from __future__ import annotations

import re
from functools import lru_cache

from cockpithat.analysis.conditions import as_bool, as_number

_STATED = re.compile(r"(?<![\w.])([a-z][a-z0-9]{1,24}(?:_[a-z0-9]{1,16}){1,5})\s?[=:]?\s([^\s,;()]{1,40})")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNITS = frozenset(
    {"pct", "percent", "kmh", "kph", "mm", "km", "m", "k", "s", "ms", "c", "deg", "celsius", "is", "on", "of"}
)
_TOLERANCE = 0.05


def stated(text: str) -> dict[str, object]:
    """Named readings in a text, ``key value`` or ``key=value``; keys are snake case of two parts or more."""
    found: dict[str, object] = {}
    for match in _STATED.finditer(text[:2_000]):
        number = as_number(match[2])
        flag = {"true": True, "false": False}.get(match[2].lower().rstrip("."))
        if flag is not None:
            found[match[1]] = flag
        elif number is not None:
            found[match[1]] = number
        elif match[2][:1].isalpha():
            found[match[1]] = match[2].rstrip(".")
    return found


def differs(left: object, right: object) -> bool | None:
    """Whether two readings of one thing are not the same; ``None`` where they can't be compared."""
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = as_bool(left), as_bool(right)
        return None if one is None or other is None else one != other
    a, b = as_number(left), as_number(right)
    if a is not None and b is not None:
        return abs(a - b) > _TOLERANCE * max(abs(a), abs(b), 1.0)
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold().strip() != right.casefold().strip()
    return None


@lru_cache(maxsize=4_096)
def words_of_key(key: str) -> frozenset[str]:
    """``cabin_humidity_pct`` as ``{cabin, humidity}``: parts of a name, units left out."""
    return frozenset(part for part in key.lower().split("_") if part and part not in _UNITS)


@lru_cache(maxsize=4_096)
def words_of_path(path: str) -> frozenset[str]:
    """``Vehicle.Driver.IsHandsOnWheel`` as ``{driver, hands, wheel}``."""
    parts = {hump.lower() for node in path.split(".")[1:] for hump in _HUMP.findall(node)}
    return frozenset(parts - _UNITS)


def path_of_key(key: str, paths: tuple[str, ...]) -> str | None:
    """The one signal whose name holds all parts of a reading's name; ``None`` if none or several do."""
    words = words_of_key(key)
    if not words or (len(words) == 1 and len(next(iter(words))) < 5):
        return None
    fitting = [path for path in paths if words <= words_of_path(path)]
    return fitting[0] if len(fitting) == 1 else None
