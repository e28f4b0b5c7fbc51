"""Headers of a dead-lettered record. Key and value of the original are kept byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from cockpithat.contract.base import CONTRACT_VERSION, SchemaVersion, WireModel

HEADER_PREFIX = "dlq."


class DeadLetterReason(StrEnum):
    """Why a record was put aside."""

    NOT_JSON = "not_json"
    BAD_ENCODING = "bad_encoding"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    EMPTY = "empty"
    SCHEMA = "schema"
    UNKNOWN_VERSION = "unknown_version"
    WRONG_KEY = "wrong_key"
    LATE = "late"
    CONFLICT = "conflict"  # the same seq or event_id with other content
    QUARANTINED = "quarantined"  # its session made the engine fail
    CRASHED = "crashed"  # it ended the process repeatedly


class DeadLetterHeaders(WireModel):
    """What failed, where, and where the record came from; Kafka headers named ``dlq.`` and the field."""

    schema_version: SchemaVersion = CONTRACT_VERSION
    reason: DeadLetterReason
    detail: str = ""  # what, where and what to do, without payload
    stage: str  # decode, session, snapshot, attribute
    source_topic: str
    source_partition: int
    source_offset: int
    source_timestamp: int | None = None
    vehicle_id: str | None = None
    session_id: str | None = None
    failed_at: int
    product_version: str

    def to_kafka(self) -> list[tuple[str, bytes]]:
        """Kafka headers, UTF-8 text; a field that is ``None`` has no header."""
        return [
            (HEADER_PREFIX + name, str(value).encode())
            for name, value in self.model_dump(mode="json", exclude_none=True).items()
        ]

    @classmethod
    def from_kafka(cls, headers: Iterable[tuple[str, bytes | None]]) -> DeadLetterHeaders:
        """Read back :meth:`to_kafka`; foreign headers are ignored. Raises ``ValidationError``."""
        fields = {
            name[len(HEADER_PREFIX) :]: value.decode()
            for name, value in headers
            if name.startswith(HEADER_PREFIX) and value is not None
        }
        return cls.model_validate(fields)
