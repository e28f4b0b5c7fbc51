"""The environment channel e of a step as flat, bounded key and value pairs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_MAX_KEYS = 200
_MAX_DEPTH = 4
_MAX_VALUE = 200


@lru_cache(maxsize=4_096)
def _key(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name.lower()).strip("_")


def flatten(environment: dict[str, Any]) -> dict[str, Any]:
    """Scalars of ``environment`` by normalised key; nested ones by ``outer.inner`` and by ``inner``.

    A key spelt ``Speed-KmH`` becomes ``speed_kmh``. The outer value wins where names meet. At most 200
    keys, four levels and 200 characters a value are kept: e comes from outside.
    """
    flat: dict[str, Any] = {}
    pending: list[tuple[str, dict[str, Any], int]] = [("", environment, 0)]
    while pending and len(flat) < _MAX_KEYS:
        prefix, node, depth = pending.pop(0)
        for name, value in node.items():
            if len(flat) >= _MAX_KEYS:
                break
            key = _key(str(name)[:64])
            if not key:
                continue
            if isinstance(value, dict):
                if depth < _MAX_DEPTH:
                    pending.append((f"{prefix}{key}.", value, depth + 1))
                continue
            if isinstance(value, str):
                value = value[:_MAX_VALUE]
                if key.endswith("_mph"):
                    value += " mph"
            elif isinstance(value, (int, float)) and not isinstance(value, bool) and key.endswith("_mph"):
                value = f"{value} mph"
            elif isinstance(value, list):
                value = [v[:_MAX_VALUE] if isinstance(v, str) else v for v in value[:20]]
            flat[f"{prefix}{key}"] = value
            if prefix:
                flat.setdefault(key, value)
    return flat
