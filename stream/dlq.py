"""Look at dead letters, and send them back to where they came from.

A dead letter stays in its topic when it is redriven, since Kafka's records do not change. That it was is a
marker record in the same topic, written in one transaction with the redriven record: a redrive that dies
half-way, or is run twice, sends nothing twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from cockpithat.contract.deadletter import HEADER_PREFIX, DeadLetterHeaders, DeadLetterReason
from stream.kafka_config import BrokerError, broker_error, client_config, consumer_config, producer_config
from stream.settings import KafkaSettings, Settings

REDRIVEN = HEADER_PREFIX + "redriven"
"""On a redriven record: the dead letter it was, ``topic/partition/offset``."""

_MARKER = HEADER_PREFIX + "redriven_offset"
_TIMEOUT_S = 30.0
_BATCH = 200


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. ``headers`` is ``None`` for a record that carries none of the product's headers."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    foreign: tuple[tuple[str, bytes | None], ...]
    headers: DeadLetterHeaders | None
    redriven: bool

    def to_json(self, *, payload: bool = False) -> dict[str, Any]:
        """For output. Key, value and the ids they hold only with ``payload``."""
        line: dict[str, Any] = {
            "dlq_topic": self.topic,
            "dlq_partition": self.partition,
            "dlq_offset": self.offset,
            "redriven": self.redriven,
            "bytes": len(self.value or b""),
        }
        if self.headers is not None:
            line |= self.headers.model_dump(mode="json", exclude={"vehicle_id", "session_id"})
        if payload:
            line["key"] = _text(self.key)
            line["value"] = _text(self.value)
            if self.headers is not None:
                line["vehicle_id"] = self.headers.vehicle_id
                line["session_id"] = self.headers.session_id
        return line


@dataclass(frozen=True)
class Selection:
    """Which dead letters: empty fields select all. Offsets are those in the dead-letter topic."""

    reasons: frozenset[DeadLetterReason] = frozenset()
    partition: int | None = None
    offsets: frozenset[int] = frozenset()
    include_redriven: bool = False

    def takes(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` is selected."""
        if letter.redriven and not self.include_redriven:
            return False
        if self.partition is not None and letter.partition != self.partition:
            return False
        if self.offsets and letter.offset not in self.offsets:
            return False
        return not self.reasons or (letter.headers is not None and letter.headers.reason in self.reasons)


@dataclass(frozen=True)
class Redriven:
    """What :func:`redrive` did.

    ``foreign`` records carry no source and cannot be sent back; ``before`` would have been selected, but
    were sent back by an earlier redrive.
    """

    sent: int
    foreign: int
    before: int = 0


def read(
    settings: Settings, topics: Sequence[str], selection: Selection = Selection()
) -> Iterator[DeadLetter]:
    """Selected dead letters of dead-letter ``topics``, by topic, partition and offset, up to their end now.

    Raises :class:`BrokerError`, also for a topic that does not exist.
    """
    for topic in topics:
        redriven = {
            (m.partition(), offset) for m in _scan(settings, topic) if (offset := _marks(m)) is not None
        }
        for message in _scan(settings, topic):
            if _marks(message) is None:
                letter = _letter(message, redriven)
                if selection.takes(letter):
                    yield letter


def count(letters: Iterable[DeadLetter]) -> Counter[tuple[str, str]]:
    """Number of dead letters by source topic and reason."""
    return Counter(
        (letter.headers.source_topic, letter.headers.reason.value)
        if letter.headers
        else (letter.topic, "foreign")
        for letter in letters
    )


def redrive(
    settings: Settings,
    topic: str,
    selection: Selection = Selection(),
    *,
    limit: int | None = None,
    value: bytes | None = None,
    key: bytes | None = None,
) -> Redriven:
    """Send selected dead letters of one dead-letter topic back to their source topics.

    Key and value are the original bytes, or ``value`` and ``key`` where repaired ones are given: then
    exactly one record must be selected. Records with a key go where the Java partitioner puts the key,
    which also mends a wrong partitioner; others to the partition they came from. Raises
    :class:`BrokerError`, and ``ValueError`` for a repair that is not of exactly one record.
    """
    if value is not None or key is not None:
        letters = [letter for letter in read(settings, [topic], selection) if letter.headers is not None]
        if not letters and (before := _sent_before(settings, topic, selection)):
            raise ValueError(
                f"{topic}: {before} selected and already sent back; --include-redriven sends it once more"
            )
        if len(letters) != 1:
            raise ValueError(
                f"{topic}: a repaired record replaces exactly one dead letter, {len(letters)} are selected; "
                "name its partition and offset"
            )
    producer = _redriver(settings.kafka, topic)
    sent = foreign = 0
    batch: list[DeadLetter] = []
    for letter in read(settings, [topic], selection):
        if limit is not None and sent + len(batch) >= limit:
            break
        if letter.headers is None:
            foreign += 1
            continue
        batch.append(letter)
        if len(batch) == _BATCH:
            sent += _send(settings.kafka, producer, batch, key=key, value=value)
            batch = []
    sent += _send(settings.kafka, producer, batch, key=key, value=value)
    before = 0 if sent or foreign else _sent_before(settings, topic, selection)
    return Redriven(sent, foreign, before)


def _sent_before(settings: Settings, topic: str, selection: Selection) -> int:
    """How many of the selected dead letters are left out since they were sent back already."""
    everything = read(settings, [topic], replace(selection, include_redriven=True))
    return sum(letter.redriven for letter in everything)


def _redriver(kafka: KafkaSettings, topic: str) -> Producer:
    config = {
        **producer_config(kafka),
        "message.max.bytes": kafka.max_message_bytes,
        "transactional.id": f"{kafka.transactional_id_prefix}.redrive.{topic}",
        "transaction.timeout.ms": kafka.transaction_timeout_ms,
    }
    producer = Producer(config)
    try:
        producer.init_transactions(_TIMEOUT_S)
    except KafkaException as error:
        raise broker_error(kafka, error, f"cannot start to redrive {topic}") from None
    return producer


def _send(
    kafka: KafkaSettings,
    producer: Producer,
    batch: list[DeadLetter],
    *,
    key: bytes | None,
    value: bytes | None,
) -> int:
    if not batch:
        return 0
    try:
        producer.begin_transaction()
        for letter in batch:
            assert letter.headers is not None
            record_key = letter.key if key is None else key
            producer.produce(
                letter.headers.source_topic,
                letter.value if value is None else value,
                record_key,
                partition=-1 if record_key is not None else letter.headers.source_partition,
                headers=[
                    *letter.foreign,
                    (REDRIVEN, f"{letter.topic}/{letter.partition}/{letter.offset}".encode()),
                ],
            )
            producer.produce(
                letter.topic,
                None,
                None,
                partition=letter.partition,
                headers=[(_MARKER, str(letter.offset).encode())],
            )
        producer.commit_transaction(_TIMEOUT_S)
    except (KafkaException, BufferError) as error:
        _abort(producer)
        if isinstance(error, KafkaException):
            raise broker_error(kafka, error, f"cannot redrive from {batch[0].topic}") from None
        raise BrokerError(f"{kafka.bootstrap_servers}: the producer's queue is full; try again") from None
    return len(batch)


def _abort(producer: Producer) -> None:
    try:
        producer.abort_transaction(_TIMEOUT_S)
    except KafkaException:
        return  # the brokers abort it when its time is up; the first error is the one to show


def _scan(settings: Settings, topic: str) -> Iterator[Message]:
    """Committed records of ``topic`` from the start to the end that it has now."""
    kafka = settings.kafka
    config = {**consumer_config(kafka, group_id=f"{kafka.group_id}.dlq"), "enable.partition.eof": True}
    consumer = Consumer(config)
    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise BrokerError(f"{topic}: no such topic; see `cockpithat topics check`")
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)[1]
            for partition in sorted(metadata.partitions)
        }
        for partition, end in ends.items():
            if end > 0:
                yield from _scan_partition(consumer, topic, partition, end)
    except KafkaException as error:
        raise broker_error(kafka, error, f"cannot read {topic}") from None
    finally:
        consumer.close()


def _scan_partition(consumer: Consumer, topic: str, partition: int, end: int) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        message = consumer.poll(0.5)
        if message is None:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{topic} partition {partition}: no answer in {_TIMEOUT_S:.0f} s; try again"
                )
            continue
        error = message.error()
        if error is None:
            if (message.offset() or 0) >= end:
                return
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(error)
        # The reader may take its time between two records: the clock runs only while nothing comes.
        deadline = time.monotonic() + _TIMEOUT_S


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers()
    return [(name, value) for name, value in headers or ()]


def _marks(message: Message) -> int | None:
    """Offset of the dead letter that this record marks as redriven, ``None`` for a dead letter."""
    for name, value in _headers(message):
        if name == _MARKER and value is not None and value.isdigit():
            return int(value)
    return None


def _letter(message: Message, redriven: set[tuple[int | None, int]]) -> DeadLetter:
    pairs = _headers(message)
    parsed: DeadLetterHeaders | None
    try:
        parsed = DeadLetterHeaders.from_kafka(pairs)
    except (ValidationError, UnicodeDecodeError):
        parsed = None
    partition, offset = message.partition() or 0, message.offset() or 0
    key, value = message.key(), message.value()
    return DeadLetter(
        topic=message.topic() or "",
        partition=partition,
        offset=offset,
        timestamp=message.timestamp()[1],
        key=key.encode() if isinstance(key, str) else key,
        value=value.encode() if isinstance(value, str) else value,
        foreign=tuple((name, item) for name, item in pairs if not name.startswith(HEADER_PREFIX)),
        headers=parsed,
        redriven=(partition, offset) in redriven,
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def all_topics(settings: Settings) -> list[str]:
    """The dead-letter topics that exist. Raises :class:`BrokerError`."""
    try:
        known = AdminClient(client_config(settings.kafka)).list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise broker_error(settings.kafka, error, "cannot list topics") from None
    names = (settings.topics.dlq(topic) for topic in settings.topics.dead_lettered)
    return [name for name in names if name in known]
