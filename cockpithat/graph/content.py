"""What of a step is read: its own words, and what came back from a tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from cockpithat.graph.entities import (
    MAX_ENTITY_CHARS,
    PLAIN,
    STRONG,
    Mention,
    clip,
    extract,
    normal,
    number_key,
)
from cockpithat.graph.entities import says_something as _says_something

_LEAVES: Final = 400
_DEPTH: Final = 12
_ONLY_WORDS: Final = re.compile(r"[a-z ]*+")  # what holds no entity whatever the words are
_LARGEST: Final = 10**15  # beyond it a number has no exact float; NaN and infinities are not below it


def read_value(value: Any, into: dict[str, Mention], limit: int, max_chars: int) -> int:
    """Add the entities of a decoded JSON value, or of a text that may hold JSON. Returns the work done.

    A number that is too plain on its own counts together with its field, as in ``temperature=21``.
    """
    if isinstance(value, str):
        text = value.strip()
        if not (text[:1] in ("{", "[") and text[-1:] in ("}", "]") and len(text) <= max_chars):
            return extract(clip(value, max_chars), into, limit)
        try:
            value = orjson.loads(text)
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            return extract(text, into, limit)
    work = 0
    budget = max_chars
    for name, leaf in leaves(value):
        work += 1
        if len(into) >= limit or budget <= 0:
            break
        if isinstance(leaf, str):
            budget -= len(leaf)
            if _ONLY_WORDS.fullmatch(leaf) and len(leaf) <= MAX_ENTITY_CHARS:
                # Most values are such words ("dark", "country road"): spare them the patterns.
                work += 1
                if " " in leaf and _says_something(leaf):
                    into.setdefault(normal(leaf), Mention(leaf, PLAIN))
            elif len(leaf) <= MAX_ENTITY_CHARS:
                if _says_something(leaf):
                    into.setdefault(normal(leaf), Mention(leaf, PLAIN))
                work += extract(leaf, into, limit)
            else:
                work += extract(clip(leaf, max(budget, 256)), into, limit)
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool) and abs(leaf) < _LARGEST:
            shown = repr(leaf)
            key = number_key(shown) if leaf >= 0 else f"#{shown}"
            if key is not None:
                into.setdefault(key, Mention(shown, PLAIN))
            if name:
                field = f"{name}={leaf:g}"
                into.setdefault(field.casefold(), Mention(field, PLAIN))
    return work


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves of a decoded JSON value with the name of their field, depth first, at most 400.

    Without recursion, so that a value of any depth is safe; below depth 12 nothing is read.
    """
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    given = 0
    while stack and given < _LEAVES:
        name, item, depth = stack.pop()
        if isinstance(item, dict):
            if depth < _DEPTH:
                head = [(str(k), v, depth + 1) for k, v in zip(item, item.values(), strict=True)][:_LEAVES]
                stack.extend(reversed(head))
        elif isinstance(item, list | tuple):
            if depth < _DEPTH:
                stack.extend((name, v, depth + 1) for v in reversed(item[:_LEAVES]))
        else:
            given += 1
            yield name, item


def strong(into: dict[str, Mention], key: str, shown: str) -> None:
    """Add an entity that the record names outright: a signal, a memory item, a call id."""
    into[key] = Mention(shown, STRONG)
