"""Tells a breaking change of a record's JSON Schema from an additive one.

The rule of the contract: within a major version a record that was valid stays valid and keeps its
meaning. So a later schema may add optional fields, values of an enumeration and alternatives of a union,
and may loosen a bound. It may not remove or rename a field, take away a type, a value or an alternative,
make an optional field required, tighten a bound, or let go of a field that readers could count on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """What in ``new`` breaks records or readers of ``old``: place and change, empty if nothing does."""
    found = dict.fromkeys(_Comparison(old, new).compare(old, new, ""))
    return list(found)


class _Comparison:
    """Two root schemas, for their ``$defs``. A pair of definitions is compared once, so cycles end."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()

    def compare(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        pair = (str(old.get("$ref", "")), str(new.get("$ref", "")))
        if any(pair):
            if pair in self._seen:
                return
            self._seen.add(pair)
        old_ways, new_ways = _ways(old, self._old), _ways(new, self._new)
        if any(not _kind(way) for way in new_ways) and all(_kind(way) for way in old_ways):
            return  # anything goes now
        for way in old_ways:
            yield from self._way(way, new_ways, place)

    def _way(self, way: Schema, new_ways: list[Schema], place: str) -> Iterator[str]:
        """One alternative of the old schema must be one of the new, or there must be one that takes it."""
        rivals = [rival for rival in new_ways if _kind(rival) == _kind(way)]
        if not rivals and _kind(way) == "integer":
            rivals = [rival for rival in new_ways if _kind(rival) == "number"]
        if not rivals:
            yield f"{place or '/'}: {_name(way)} is not accepted any more"
            return
        # Only the rival nearest to it is worth telling about.
        yield from min(
            (list(self._same_kind(way, rival, place)) for rival in rivals), key=lambda found: len(found)
        )

    def _same_kind(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        where = place or "/"
        yield from _values(old, new, where)
        yield from _bounds(old, new, where)
        yield from self._fields(old, new, place)
        if "items" in old or "items" in new:
            yield from self.compare(old.get("items", {}), new.get("items", {}), f"{place}/*")
        for position, (before, after) in enumerate(
            zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False)
        ):
            yield from self.compare(before, after, f"{place}/{position}")

    def _fields(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, field in before.items():
            if name not in after:
                yield f"{place}/{name}: the field is gone"
            else:
                yield from self.compare(field, after[name], f"{place}/{name}")
        had, has = set(old.get("required", ())), set(new.get("required", ()))
        for name in sorted(has - had):
            yield f"{place}/{name}: the field is required now"
        for name in sorted(had - has):
            yield f"{place}/{name}: readers could count on the field and cannot any more"
        was, now = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if was is not False and now is False:
            yield f"{place or '/'}: unknown fields are refused now"
        elif isinstance(now, Mapping):
            yield from self.compare(was if isinstance(was, Mapping) else {}, now, f"{place}/*")


def _ways(schema: Schema, root: Schema) -> list[Schema]:
    """The alternatives of a schema, references and unions resolved, one type each."""
    ways: list[Schema] = []
    pending: list[Schema] = [schema]
    while pending:
        node = pending.pop()
        if "$ref" in node:
            pending.append(root["$defs"][node["$ref"].rpartition("/")[2]])
        elif "anyOf" in node or "oneOf" in node:
            pending.extend(reversed(node.get("anyOf") or node["oneOf"]))
        elif isinstance(node.get("type"), list):
            pending.extend({**node, "type": name} for name in reversed(node["type"]))
        else:
            ways.append(node)
    return ways


def _kind(way: Schema) -> str:
    """Type of an alternative, with the constant that tells records of a union apart."""
    tag = way.get("properties", {}).get("type", {}).get("const", "")
    return f"{way.get('type', '')}{':' if tag else ''}{tag}"


def _name(way: Schema) -> str:
    return str(way.get("title") or _kind(way) or "any value")


def _values(old: Schema, new: Schema, where: str) -> Iterator[str]:
    def allowed(schema: Schema) -> list[Any] | None:
        values = schema.get("enum")
        return [schema["const"]] if "const" in schema else None if values is None else list(values)

    before, after = allowed(old), allowed(new)
    if after is None:
        return
    if before is None:
        yield f"{where}: only some values are accepted now"
        return
    for value in before:
        if value not in after:
            yield f"{where}: the value {value!r} is gone"


def _bounds(old: Schema, new: Schema, where: str) -> Iterator[str]:
    for keyword in (*_LOWER_BOUNDS, *_UPPER_BOUNDS):
        was, now = old.get(keyword), new.get(keyword)
        if now is None:
            continue
        if was is None or (now > was if keyword in _LOWER_BOUNDS else now < was):
            yield f"{where}: {keyword} is {now}, was {'free' if was is None else was}"
    for keyword in ("pattern", "format"):
        if new.get(keyword) is not None and new.get(keyword) != old.get(keyword):
            yield f"{where}: {keyword} has changed"
