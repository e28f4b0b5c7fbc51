"""A Kafka record as the roles see it, free of any client library."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cockpithat.contract.trace import SourceRef

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record read. ``timestamp`` is Kafka's, in epoch ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    def source(self) -> SourceRef:
        """Reference to this record, with the digest of its value."""
        return SourceRef(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            digest=hashlib.sha256(self.value or b"").hexdigest(),
        )


@dataclass(frozen=True, slots=True)
class Output:
    """One record to write. ``partition`` is explicit: outputs stay in their input's partition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
