"""Forms of answers: JSON Schemas put together from few parts, and readers that are strict about steps.

A list keeps the entries that can be used and drops the rest; an answer with no usable entry where one is
needed is refused with words for the second chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cockpithat.contract.base import Category
from cockpithat.llm import Schema
from cockpithat.panel.answers import UnusableAnswerError, integer
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.marks import single_line

Json = dict[str, Any]

INTEGER: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
CATEGORY: Json = {"type": "string", "enum": [category.value for category in Category]}
MAX_ITEMS = 40


def one_of(values: Sequence[str]) -> Json:
    """A string out of a list."""
    return {"type": "string", "enum": list(values)}


def record(**properties: Json) -> Json:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def listing(item: Json) -> Json:
    """A list of such items."""
    return {"type": "array", "items": item}


def form(name: str, **properties: Json) -> Schema:
    """A whole answer."""
    return Schema(name, record(**properties))


def refuse(*problems: str) -> UnusableAnswerError:
    """The error for an answer that cannot be used."""
    return UnusableAnswerError(list(problems))


def items(data: Json, name: str, *, needed: bool = False) -> list[Json]:
    """The objects of a list. Raises ``UnusableAnswerError`` if it is none, or empty where one is needed."""
    value = data.get(name)
    if not isinstance(value, list):
        raise refuse(f"{name} must be a list")
    found = [item for item in value[:MAX_ITEMS] if isinstance(item, dict)]
    if needed and not found:
        raise refuse(f"{name} is empty")
    return found


def step_in(item: Json, facts: TraceFacts, name: str = "step") -> int | None:
    """A step that exists, or ``None``."""
    step = integer(item.get(name))
    return step if step is not None and facts.has_step(step) else None


def steps_in(value: Any, facts: TraceFacts) -> list[int]:
    """The existing steps in a list of numbers, without doubles, ascending."""
    numbers = [integer(v) for v in value] if isinstance(value, list) else []
    return sorted({n for n in numbers if n is not None and facts.has_step(n)})


def share(item: Json, name: str, default: float = 0.0) -> float:
    """A number held to 0 to 1; ``default`` where there is none."""
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return min(max(float(value), 0.0), 1.0)


def flag(item: Json, name: str) -> bool:
    """True only where the answer says so."""
    return item.get(name) is True


def words(item: Json, name: str, limit: int = 240) -> str:
    """Text on one line, cut."""
    value = item.get(name)
    return single_line(value)[:limit] if isinstance(value, str) else ""


def choice(item: Json, name: str, allowed: Sequence[str]) -> str | None:
    """One of the allowed words, however it is spelled, or ``None``."""
    value = item.get(name)
    if not isinstance(value, str):
        return None
    key = "_".join(value.strip().casefold().replace("-", " ").replace("_", " ").split())
    return key if key in allowed else None


def category_in(item: Json) -> Category | None:
    """One of the eight categories, or ``None``."""
    name = choice(item, "category", [category.value for category in Category])
    return Category(name) if name else None


def quote_in(item: Json, step: int | None) -> list[tuple[int | None, str]]:
    """The item's quote as :meth:`TraceFacts.evidence` takes it."""
    value = item.get("quote")
    return [(step, value)] if isinstance(value, str) and value.strip() else []
