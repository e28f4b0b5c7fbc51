"""The one JSON object in a model's answer, for endpoints that cannot be held to a schema.

Repairs are conservative: they undo wrapping and typing habits that leave no doubt about what was meant
(code fences, prose around the object, a thinking block, trailing commas, raw line breaks in strings). An
object that breaks off is not completed: what the model would have said next is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NoReturn

MAX_ANSWER_CHARS = 262_144
_MAX_STARTS = 64
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


class NoJsonError(ValueError):
    """The answer holds no usable JSON object; the message says why in a few words."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result and result[key] != value:
            raise NoJsonError(f"the field {key[:40]!r} appears twice with different values")
        result[key] = value
    return result


def _no_constants(name: str) -> NoReturn:
    raise NoJsonError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constants, strict=False)


def _without_trailing_commas(text: str) -> str:
    """Drop commas that stand before a closing bracket, outside strings."""
    out: list[str] = []
    in_string = escaped = False
    pending = -1  # where the last comma went, while only blanks followed it
    for char in text:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string, pending = True, -1
        elif char == ",":
            pending = len(out)
        elif char in "]}":
            if pending >= 0:
                out[pending] = ""
            pending = -1
        elif not char.isspace():
            pending = -1
        out.append(char)
    return "".join(out)


def _objects(text: str) -> list[dict[str, Any]]:
    """Outermost JSON objects of a text, in order."""
    found: list[dict[str, Any]] = []
    position, starts = 0, 0
    while (start := text.find("{", position)) >= 0 and starts < _MAX_STARTS:
        starts += 1
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError:
            position = start + 1
            continue
        except RecursionError:
            raise NoJsonError("the object is nested too deeply") from None
        found.append(value)
        position = end
    return found


def extract_json(answer: str, required: Collection[str] = ()) -> dict[str, Any]:
    """The object in ``answer`` that has all ``required`` fields.

    Raises :class:`NoJsonError` when there is none, or when several differ, so that a quoted example or an
    echoed order cannot be taken for the answer.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        raise NoJsonError("the answer is too long")
    text = _THINKING.sub(" ", answer).strip()
    if not text:
        raise NoJsonError("the answer is empty")
    for candidate in (text, _without_trailing_commas(text)):
        matching = [value for value in _objects(candidate) if all(name in value for name in required)]
        distinct = [value for index, value in enumerate(matching) if value not in matching[:index]]
        if len(distinct) == 1:
            return distinct[0]
        if len(distinct) > 1:
            raise NoJsonError("the answer holds more than one object")
    raise NoJsonError("the answer holds no complete JSON object with the fields asked for")
