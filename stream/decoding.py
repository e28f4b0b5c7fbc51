"""From bytes to a record of the contract, or to the reason for a dead letter."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from cockpithat.contract.deadletter import DeadLetterReason
from stream.logs import validation_detail

T = TypeVar("T")


class UndecodableError(Exception):
    """The record is not what its topic holds. ``detail`` carries no payload."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Decoder(Generic[T]):
    """Decodes the values of one topic. Numbers, nesting and size are bounded; nothing is guessed."""

    def __init__(self, adapter: TypeAdapter[T], *, max_bytes: int) -> None:
        self._validate = adapter.validator.validate_json
        self._max_bytes = max_bytes

    def decode(self, value: bytes | None) -> T:
        """The record in ``value``. Raises :class:`UndecodableError`."""
        if not value:
            raise UndecodableError(DeadLetterReason.EMPTY, "the record has no value")
        if len(value) > self._max_bytes:
            raise UndecodableError(
                DeadLetterReason.TOO_LARGE, f"{len(value)} bytes; the limit is {self._max_bytes}"
            )
        try:
            decoded: T = self._validate(value)
        except ValidationError as error:
            raise _explain(error, value) from None
        return decoded


def _explain(error: ValidationError, value: bytes) -> UndecodableError:
    first: Any = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as wrong:
            return UndecodableError(
                DeadLetterReason.BAD_ENCODING, f"byte {wrong.start} is not UTF-8; write JSON as UTF-8"
            )
        why = str(first.get("ctx", {}).get("error", ""))
        if "recursion" in why:
            return UndecodableError(DeadLetterReason.TOO_DEEP, "nested too deeply")
        # The parser's message names places and kinds of tokens, never the text.
        return UndecodableError(DeadLetterReason.NOT_JSON, f"not JSON: {why[:200]}")
    if any("unknown_version" in str(item["msg"]) for item in error.errors(include_url=False)):
        return UndecodableError(
            DeadLetterReason.UNKNOWN_VERSION, "schema_version has another major version than this product"
        )
    return UndecodableError(DeadLetterReason.SCHEMA, validation_detail(error))
