"""Reads of a snapshot message what must be known on arrival: whose, when, full or not, well-formed or not.

Signals are stepped over, not built: they are most of a message, and hardly any is ever looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import orjson

from cockpithat.contract.base import CONTRACT_MAJOR, MAX_TIMESTAMP_MS, to_epoch_ms
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.framing import unframed

DELTA, FULL, LOST = 0, 1, 2
_KINDS = {"delta": DELTA, "full": FULL}


class EnvelopeError(Exception):
    """Why a message is not taken."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Envelope(NamedTuple):
    """Time (epoch ms) and kind of each snapshot of a message, in its order."""

    moments: list[tuple[int, int]]
    is_list: bool
    version: str | None  # VSS version of the last one, where it is a text


class _Object(msgspec.Struct, gc=False):
    """Any JSON object; what it holds is stepped over."""


class _Snapshot(msgspec.Struct, gc=False):
    """What nearly every snapshot looks like. Whatever does not is read by :func:`carefully`."""

    vehicle_id: str
    ts: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMESTAMP_MS)]
    signals: _Object
    kind: Literal["delta", "full"] = "delta"
    schema_version: Literal["1.0"] = "1.0"
    vss_version: str = "4.0"


_decode = msgspec.json.Decoder(_Snapshot | list[_Snapshot]).decode


def quickly(value: bytes | None, vehicle_id: str, max_list: int) -> Envelope | None:
    """The envelope of a message as it should be of this vehicle; ``None``: look closer.

    A third of the time of parsing the message. What it takes is JSON throughout, except that a number may be
    too large for a float: that shows when the signals are read.
    """
    try:
        content = _decode(unframed(value))  # type: ignore[arg-type]  # None raises like all that is no JSON
        if not value.isascii():  # type: ignore[union-attr]
            unframed(value).decode()  # type: ignore[union-attr]  # text that is stepped over is not looked at
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        return None
    if type(content) is list:
        if not 0 < len(content) <= max_list:
            return None
        for item in content:
            if item.vehicle_id != vehicle_id:
                return None
        return Envelope([(item.ts, _KINDS[item.kind]) for item in content], True, content[-1].vss_version)
    assert isinstance(content, _Snapshot)
    if content.vehicle_id != vehicle_id:
        return None
    return Envelope([(content.ts, _KINDS[content.kind])], False, content.vss_version)


def carefully(key: bytes | None, value: bytes | None, *, max_bytes: int, max_list: int) -> Envelope:
    """The envelope of any message. Raises :class:`EnvelopeError` with what is wrong."""
    if not value:
        raise EnvelopeError(DeadLetterReason.EMPTY, "the message has no value")
    if len(value) > max_bytes:
        raise EnvelopeError(DeadLetterReason.TOO_LARGE, f"{len(value)} bytes, {max_bytes} are taken at most")
    try:
        data = orjson.loads(unframed(value))
    except ValueError as error:
        raise not_json(value, error) from None
    items = data if isinstance(data, list) else [data]
    if not 0 < len(items) <= max_list:
        raise EnvelopeError(
            DeadLetterReason.SCHEMA,
            f"a list of {len(items)} snapshots; 1 to {max_list} are taken in a message",
        )
    moments = [_moment(item, key) for item in items]
    version = items[-1].get("vss_version", "4.0")
    return Envelope(moments, items is data, version if isinstance(version, str) else None)


def _moment(item: Any, key: bytes | None) -> tuple[int, int]:
    if not isinstance(item, dict):
        raise EnvelopeError(DeadLetterReason.SCHEMA, "expected a snapshot object, or a list of them")
    version = item.get("schema_version", "1.0")
    if not isinstance(version, str) or version.split(".", 1)[0] != str(CONTRACT_MAJOR):
        raise EnvelopeError(
            DeadLetterReason.UNKNOWN_VERSION, f"schema_version is not of major version {CONTRACT_MAJOR}"
        )
    vehicle_id = item.get("vehicle_id")
    if not isinstance(vehicle_id, str) or not 1 <= len(vehicle_id) <= 256:
        raise EnvelopeError(DeadLetterReason.SCHEMA, "vehicle_id is not a text of 1 to 256 characters")
    if key is None or key != vehicle_id.encode("utf-8", "surrogatepass"):
        raise EnvelopeError(DeadLetterReason.WRONG_KEY, "the message key is not the snapshot's vehicle_id")
    kind = item.get("kind", "delta")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise EnvelopeError(DeadLetterReason.SCHEMA, "kind is neither full nor delta")
    if not isinstance(item.get("signals"), dict):
        raise EnvelopeError(DeadLetterReason.SCHEMA, "signals is not an object of VSS paths")
    try:
        return to_epoch_ms(item.get("ts")), _KINDS[kind]
    except ValueError as error:
        raise EnvelopeError(DeadLetterReason.SCHEMA, f"ts: {error}") from None


def not_json(value: bytes, error: ValueError) -> EnvelopeError:
    """Why bytes are no JSON."""
    try:
        unframed(value).decode()
    except UnicodeDecodeError as problem:
        return EnvelopeError(DeadLetterReason.BAD_ENCODING, f"not UTF-8 at byte {problem.start}")
    if any(word in str(error).lower() for word in ("depth", "recursion")):
        return EnvelopeError(DeadLetterReason.TOO_DEEP, "JSON nested too deeply")
    return EnvelopeError(DeadLetterReason.NOT_JSON, f"not JSON: {error}")
