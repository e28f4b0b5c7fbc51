"""The frame that schema registries' clients put before a record: a zero byte and four bytes of schema id."""

from __future__ import annotations

from typing import TypeVar

FRAME_BYTES = 5
_MAGIC = b"\0"

Value = TypeVar("Value", bytes, "bytes | None")


def frame(schema_id: int) -> bytes:
    """The frame for a schema's id, 0 to 2**32 - 1."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def unframed(value: Value) -> Value:
    """The JSON of a value, framed or not. JSON never begins with a zero byte."""
    if value and value[0] == 0 and len(value) > FRAME_BYTES:
        return value[FRAME_BYTES:]
    return value
