"""Small conversions that importers of other people's logs share."""

from __future__ import annotations

from typing import Any

import orjson

from cockpithat.formats.reading import MAX_DEPTH, Document, is_deeper


def as_text(value: Any) -> str:
    """A message's content as text: strings as they are, content parts joined, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        texts = [part.get("text", part.get("refusal")) for part in value]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return orjson.dumps(value).decode()


def decoded(value: Any) -> Any:
    """A tool's result: the object a JSON text holds, or the value unchanged if it holds none."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            inner = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
        return value if is_deeper(inner, MAX_DEPTH // 2) else inner
    return value


def clipped(text: str, limit: int) -> str:
    """At most ``limit`` characters, with a mark where text is missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def need(document: Document, place: str, mapping: dict[str, Any], key: str, kind: type, word: str) -> Any:
    """``mapping[key]`` of the wanted type, or a ``FormatError`` that names field and place."""
    value = mapping.get(key)
    if isinstance(value, kind):
        return value
    found = "is missing" if key not in mapping else f"is {_kind_of(value)}, not {word}"
    raise document.error(place, f"field {key!r} {found}", f"give {key!r} as {word}")


def need_object(document: Document, place: str, value: Any) -> dict[str, Any]:
    """The value as an object, or a ``FormatError`` that names the place."""
    if isinstance(value, dict):
        return value
    raise document.error(place, f"expected an object, found {_kind_of(value)}", "repair or remove that item")


def joined(place: str, pointer: str) -> str:
    """A place inside a place: ``line 3`` and ``/traj/4`` make ``line 3, /traj/4``."""
    if not place:
        return pointer
    return f"{place}{pointer}" if place.rpartition(", ")[2].startswith("/") else f"{place}, {pointer}"


def _kind_of(value: Any) -> str:
    names = {
        dict: "an object", list: "a list", str: "a string", bool: "a boolean",
        int: "a number", float: "a number", type(None): "null",
    }  # fmt: skip
    return names.get(type(value), type(value).__name__)
