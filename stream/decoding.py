"""From bytes to a record of the contract, or to the reason for a dead letter."""

from __future__ import annotations

from typing import Generic, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.framing import unframed
from cockpithat.formats.reading import MAX_DEPTH, is_deeper
from stream.logs import validation_detail

T = TypeVar("T")

TRACE_DEPTH = MAX_DEPTH + 10
"""Levels of nesting of a trace, which wraps its events: what was taken as an event fits into a trace."""


class UndecodableError(Exception):
    """The record is not what its topic holds. ``detail`` carries no payload."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Decoder(Generic[T]):
    """Decodes the values of one topic. Numbers, nesting and size are bounded; nothing is guessed.

    JSON is read strictly, as from files: NaN, infinities, numbers beyond a double and lone surrogates
    are refused, and integers beyond 64 bits become floats, so that no reader behind this one meets them.
    """

    def __init__(self, adapter: TypeAdapter[T], *, max_bytes: int, max_depth: int = MAX_DEPTH) -> None:
        self._validate = adapter.validator.validate_python
        self._max_bytes = max_bytes
        self._max_depth = max_depth

    def decode(self, value: bytes | None) -> T:
        """The record in ``value``. Raises :class:`UndecodableError`."""
        if not value:
            raise UndecodableError(DeadLetterReason.EMPTY, "the record has no value")
        if len(value) > self._max_bytes:
            raise UndecodableError(
                DeadLetterReason.TOO_LARGE, f"{len(value)} bytes; the limit is {self._max_bytes}"
            )
        value = unframed(value)
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise _not_json(error, value) from None
        # Counting brackets costs nothing beside parsing, and without enough of them nothing is deep.
        if value.count(b"[") + value.count(b"{") > self._max_depth and is_deeper(parsed, self._max_depth):
            raise _too_deep(self._max_depth)
        try:
            decoded: T = self._validate(parsed)
        except ValidationError as error:
            raise _mismatch(error) from None
        return decoded


def _not_json(error: orjson.JSONDecodeError, value: bytes) -> UndecodableError:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return UndecodableError(
            DeadLetterReason.BAD_ENCODING, f"byte {wrong.start} is not UTF-8; write JSON as UTF-8"
        )
    if "depth limit" in error.msg:
        return _too_deep(1024)
    # The parser's message names places and kinds of tokens, never the text.
    return UndecodableError(
        DeadLetterReason.NOT_JSON, f"not JSON: {error.msg[:200]} at line {error.lineno}, column {error.colno}"
    )


def _too_deep(levels: int) -> UndecodableError:
    return UndecodableError(DeadLetterReason.TOO_DEEP, f"nested more than {levels} levels deep; flatten it")


def _mismatch(error: ValidationError) -> UndecodableError:
    if any("unknown_version" in str(item["msg"]) for item in error.errors(include_url=False)):
        return UndecodableError(
            DeadLetterReason.UNKNOWN_VERSION, "schema_version has another major version than this product"
        )
    return UndecodableError(DeadLetterReason.SCHEMA, validation_detail(error))
