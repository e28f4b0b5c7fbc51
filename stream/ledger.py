"""What is out already: the published set of one input partition, kept in the outputs' own headers.

Each output carries what it is (id and revision), which input it accounts for, and the highest input offset
that any output so far accounts for. That last one only grows along a partition, so a new owner reads the
tail backwards until everything earlier lies before the committed offset; no clock and no store is needed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.kafka_config import passes
from stream.publish import PublicationError
from stream.records import Output

log = logging.getLogger(__name__)

PREFIX = "cockpithat."
_FIRST_CHUNK = 500
_READ_TIMEOUT_S = 60.0
_CLOSED = PREFIX + "closed"
_MAX_RANGES = 100


@dataclass(frozen=True, slots=True)
class Mark:
    """What an output says of itself in its headers.

    ``input`` and ``partition`` name the input partition that it was made from, ``offset`` the last input
    offset that it accounts for, ``high`` the highest such offset so far, ``session`` the pair of vehicle
    and session for which it closes the account, if it does.
    """

    id: str
    revision: int
    input: str
    partition: int
    offset: int
    high: int = -1
    session: tuple[str, str] | None = None
    last: bool = False

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As Kafka headers."""
        pairs = [
            ("id", self.id),
            ("revision", str(self.revision)),
            ("input", self.input),
            ("partition", str(self.partition)),
            ("offset", str(self.offset)),
            ("high", str(self.high)),
        ]
        if self.last:
            pairs.append(("last", "1"))
        if self.session is not None:
            pairs += [("vehicle", self.session[0]), ("session", self.session[1])]
        return tuple((PREFIX + name, value.encode("utf-8", "surrogatepass")) for name, value in pairs)

    @classmethod
    def read(cls, headers: Iterable[tuple[str, bytes | None]] | None) -> Mark | None:
        """The mark in a record's headers, or ``None`` if it carries none of ours."""
        found = {
            name[len(PREFIX) :]: value.decode("utf-8", "surrogatepass")
            for name, value in headers or ()
            if name.startswith(PREFIX) and value is not None
        }
        try:
            session = (found["vehicle"], found["session"]) if "session" in found else None
            return cls(
                found["id"],
                int(found["revision"]),
                found["input"],
                int(found["partition"]),
                int(found["offset"]),
                int(found["high"]),
                session,
                "last" in found,
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class ClosedMark:
    """In an output's headers: that a session is over, and enough to know what still comes of it.

    ``offset`` is the last input offset that went into it, ``at_ms`` the wall clock when it closed,
    ``highest_seq`` and ``missing`` say which events it had.
    """

    vehicle_id: str
    session_id: str
    offset: int
    at_ms: int
    highest_seq: int
    missing: tuple[tuple[int, int], ...] = ()
    quarantined: bool = False

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As one Kafka header."""
        body = [
            self.vehicle_id,
            self.session_id,
            self.offset,
            self.at_ms,
            self.highest_seq,
            self.missing[:_MAX_RANGES],
            self.quarantined,
        ]
        return ((_CLOSED, json.dumps(body).encode()),)

    @classmethod
    def read(cls, headers: Iterable[tuple[str, bytes | None]] | None) -> ClosedMark | None:
        """The mark in a record's headers, or ``None``."""
        raw = next((value for name, value in headers or () if name == _CLOSED), None)
        if raw is None:
            return None
        try:
            vehicle, session, offset, at_ms, highest, missing, quarantined = json.loads(raw)
            ranges = tuple((int(low), int(high)) for low, high in missing)
            return cls(
                str(vehicle), str(session), int(offset), int(at_ms), int(highest), ranges, bool(quarantined)
            )
        except (ValueError, TypeError):
            return None


class Ledger:
    """The published set of one input partition, as far back as it can matter."""

    def __init__(self, input_topic: str, partition: int) -> None:
        self.input = input_topic
        self.partition = partition
        self.high = -1
        self._ids: dict[tuple[str, int], int] = {}
        self._closed: dict[tuple[str, str], int] = {}
        self._done: set[int] = set()

    def restore(self, marks: Iterable[Mark]) -> None:
        """Take over what :func:`read_back` found."""
        for mark in marks:
            if (mark.input, mark.partition) == (self.input, self.partition):
                self.note(mark)

    def note(self, mark: Mark) -> None:
        """``mark``'s output is out, or will be before anything that is submitted later."""
        self._ids[mark.id, mark.revision] = mark.offset
        if mark.session is not None:
            self._closed[mark.session] = max(mark.offset, self._closed.get(mark.session, -1))
        if mark.last:
            self._done.add(mark.offset)
        self.high = max(self.high, mark.offset, mark.high)

    def has(self, identity: str, revision: int = 1) -> bool:
        """Whether that revision of that record is out."""
        return (identity, revision) in self._ids

    def is_done(self, offset: int) -> bool:
        """Whether everything that comes of the input record at ``offset`` is out."""
        return offset in self._done

    def accounts_for(self, session: tuple[str, str], offset: int) -> bool:
        """Whether an event of ``session`` at ``offset`` went into an output that is out."""
        return offset <= self._closed.get(session, -1)

    def closed_at(self, session: tuple[str, str]) -> int | None:
        """Last input offset that the closed session's outputs account for; ``None`` if it is not known."""
        return self._closed.get(session)

    def mark(
        self,
        identity: str,
        offset: int,
        *,
        revision: int = 1,
        session: tuple[str, str] | None = None,
        last: bool = False,
    ) -> Mark:
        """A mark for an output that is about to be written, noted as published from now on."""
        mark = Mark(identity, revision, self.input, self.partition, offset, session=session, last=last)
        self.note(mark)
        return replace(mark, high=self.high)

    def forget_before(self, offset: int) -> None:
        """Drop what accounts only for input before ``offset``: it cannot be read again."""
        self._ids = {key: at for key, at in self._ids.items() if at >= offset}
        self._closed = {key: at for key, at in self._closed.items() if at >= offset}
        self._done = {at for at in self._done if at >= offset}

    def __len__(self) -> int:
        return len(self._ids)


def marked(output: Output, mark: Mark) -> Output:
    """``output`` with the mark's headers added."""
    return replace(output, headers=(*output.headers, *mark.headers()))


def read_back(
    config: Mapping[str, Any], topic: str, partition: int, *, input: tuple[str, int], needed_from: int
) -> list[Mark]:
    """Marks of the ``input`` partition in ``topic``'s partition, for offsets from ``needed_from`` on. Blocks.

    ``config`` is a librdkafka consumer configuration that reads committed records only. Raises
    :class:`PublicationError` when the topic cannot be read.
    """
    found: list[Mark] = []
    with _tail(config, topic, partition) as (read, low, end, _):
        chunk = _FIRST_CHUNK
        while end > low:
            start = max(low, end - chunk)
            marks = [
                mark
                for message in read(start, end)
                if (mark := Mark.read(_headers(message))) is not None
                and (mark.input, mark.partition) == input
            ]
            found = [*marks, *found]
            # The highest offset so far only grows: if the earliest of these lies before, so do all before it.
            if marks and marks[0].high < needed_from:
                break
            end = start
            chunk *= 4
    return [mark for mark in found if mark.offset >= needed_from]


def closed_sessions(
    config: Mapping[str, Any], topic: str, partition: int, *, since_ms: int, limit: int
) -> list[ClosedMark]:
    """Sessions that the latest ``limit`` records of ``topic``'s partition say are over, oldest first. Blocks.

    Those closed before ``since_ms`` are left out. Raises :class:`PublicationError`.
    """
    with _tail(config, topic, partition) as (read, low, end, _):
        if end <= low or limit <= 0:
            return []
        marks = (ClosedMark.read(_headers(message)) for message in read(max(low, end - limit), end))
        return [mark for mark in marks if mark is not None and mark.at_ms >= since_ms]


def find_trace(
    config: Mapping[str, Any],
    topic: str,
    partition: int,
    *,
    session: tuple[str, str],
    since_ms: int,
    limit: int,
) -> bytes | None:
    """Value of the newest revision of a session's trace among ``limit`` records from ``since_ms`` on. Blocks.

    ``since_ms`` is Kafka's time; ``None`` when it is not there. Raises :class:`PublicationError`.
    """

    def is_of_session(message: Message) -> bool:
        mark = Mark.read(_headers(message))
        return mark is not None and mark.session == session

    found: bytes | None = None
    with _tail(config, topic, partition) as (read, low, end, offset_at):
        start = offset_at(since_ms)
        if start < 0:
            return None
        for message in read(max(low, start), min(end, start + limit), is_of_session):
            value = message.value()
            if isinstance(value, bytes):
                found = value
    return found


@contextmanager
def _tail(
    config: Mapping[str, Any], topic: str, partition: int
) -> Iterator[tuple[Callable[..., list[Message]], int, int, Callable[[int], int]]]:
    """A way to read a span of offsets, where the partition begins and ends, and the offset of a time."""
    consumer = Consumer({**config, "enable.partition.eof": True, "queued.max.messages.kbytes": 16_384})
    try:
        low, end = _bounds(consumer, topic, partition)

        def offset_at(timestamp_ms: int) -> int:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            return int(consumer.offsets_for_times(asked, timeout=30.0)[0].offset)

        read = partial(_read, consumer, topic, partition)
        yield read, low, end, offset_at
    except KafkaException as error:
        raise PublicationError(f"cannot read back {topic} partition {partition}: {error}") from error
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Where a partition begins and ends. A broker that has just come back needs a moment to lead it."""
    deadline = time.monotonic() + _READ_TIMEOUT_S
    while True:
        try:
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30.0)
            return int(low), int(end)
        except KafkaException as error:
            if not passes(error.args[0]) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _read(
    consumer: Consumer,
    topic: str,
    partition: int,
    start: int,
    end: int,
    keeps_value: Callable[[Message], bool] = lambda _: False,
) -> list[Message]:
    consumer.assign([TopicPartition(topic, partition, start)])
    messages: list[Message] = []
    deadline = time.monotonic() + _READ_TIMEOUT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.5):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return messages
                if passes(error):
                    continue
                raise KafkaException(error)
            if (message.offset() or 0) >= end:
                return messages
            if not keeps_value(message):
                message.set_value(None)  # a tail of traces would fill the memory
            messages.append(message)
    raise PublicationError(
        f"cannot read back {topic} partition {partition}: no end after {_READ_TIMEOUT_S:.0f} s"
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers()
    if not isinstance(headers, list):
        return []
    return [(name, value) for name, value in headers if isinstance(value, bytes)]
