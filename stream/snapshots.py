"""Reads vehicle snapshots into the snapshot log, beside Faust (design, decision 9).

Snapshots are by far the most records, so a librdkafka batch loop on a thread of its own takes them. It has
no consumer group: it reads the partitions that the worker owns of session events, since both topics are
keyed by vehicle and have the same number of partitions. Nothing is committed; after an assignment it starts
at the time from which the held sessions need vehicle state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.trace import SourceRef
from cockpithat.vehicle.states import StateWindow, VehicleStates
from stream.kafka_config import passes
from stream.records import Record

log = logging.getLogger(__name__)

_BATCH = 1_000
_HELD = 100  # records that are taken before the guard is given away once
_POLL_S = 0.1
_LOOKUP_S = 10.0
_REMEMBERED_KEYS = 200_000
_AGAIN_S = 1.0  # between two tries to look up where to read from, while brokers are away


class Rejection(Protocol):
    """Why a snapshot record was refused."""

    @property
    def source(self) -> SourceRef: ...
    @property
    def reason(self) -> DeadLetterReason: ...
    @property
    def detail(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class Log(Protocol):
    """What the reader needs of :class:`cockpithat.vehicle.log.SnapshotLog`."""

    def offer(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        topic: str,
        partition: int,
        offset: int,
        broker_ts: int,
    ) -> Rejection | None: ...
    def take_rejected(self) -> Sequence[Rejection]: ...
    def forget_partition(self, partition: int) -> None: ...


class SharedStates:
    """Vehicle states that one thread reads while the reader's fills them.

    Only a window takes the lock, once a session: a lock for each event would make the event loop wait for
    the reader, and the reader for the interpreter. The other answers are single look-ups.
    """

    def __init__(self, states: VehicleStates, guard: AbstractContextManager[Any]) -> None:
        self._states = states
        self._guard = guard
        self.sends = states.sends
        self.covered_until = states.covered_until

    def window(self, vehicle_id: str, start_ms: int, end_ms: int) -> StateWindow:
        """See :class:`VehicleStates`."""
        with self._guard:
            return self._states.window(vehicle_id, start_ms, end_ms)


@dataclass(frozen=True, slots=True)
class Refused:
    """A record to dead-letter, with its bytes."""

    record: Record
    reason: DeadLetterReason
    detail: str


@dataclass(slots=True)
class _State:
    """One partition's reading. Written by the thread, read from the event loop: single fields only."""

    start: int | None = None  # first offset read, once it is known
    newest_ts: int = 0  # Kafka timestamp of the newest record taken
    at_end: bool = False
    paused: bool = False
    head_ts: int | None = None  # Kafka timestamp of the event that waits for snapshots; None: no pacing


class SnapshotReader:
    """Follows an assignment given partition by partition. Safe to call from the event loop.

    ``refused`` is called on the reader's thread with each batch of dead letters, ``failed`` once with what
    ended the thread. ``guard`` is held while records are offered (see :class:`SharedStates`).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        snapshots: Log,
        *,
        guard: AbstractContextManager[Any],
        refused: Callable[[list[Refused]], None],
        accepted: Callable[[int], None] = lambda _: None,
        new_key: Callable[[Record], None] = lambda _: None,
        failed: Callable[[Exception], None],
        lookback_ms: int,
        lead_ms: int = 60_000,
    ) -> None:
        """``new_key`` is called, on the reader's thread, with the first record of a key in a partition.

        ``lookback_ms``: how far before the oldest needed event to read. ``lead_ms``: how far to read
        ahead of events that are being caught up with, which bounds what a backlog brings into memory."""
        self._config = {
            **config,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 32_768,
            # The client's own is a second: a queue that was full then runs dry, and the thread waits.
            "fetch.queue.backoff.ms": 10,
        }
        self._topic = topic
        self._log = snapshots
        self._guard = guard
        self._refused = refused
        self._accepted = accepted
        self._new_key = new_key
        self._keys: set[tuple[bytes, int]] = set()
        self._failed = failed
        self._lookback_ms = lookback_ms
        self._lead_ms = lead_ms
        self._commands: list[tuple[str, int, int]] = []
        self._mutex = threading.Lock()
        self._states: dict[int, _State] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="snapshots", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the thread and leave the brokers."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def assign(self, partition: int, needed_from_ms: int) -> None:
        """Read ``partition`` for events whose oldest has the Kafka timestamp ``needed_from_ms``."""
        self._states[partition] = _State(head_ts=needed_from_ms)
        with self._mutex:
            self._commands.append(("assign", partition, max(0, needed_from_ms - self._lookback_ms)))

    def unassign(self, partition: int) -> None:
        """Stop reading ``partition`` and forget its vehicles."""
        self._states.pop(partition, None)
        with self._mutex:
            self._commands.append(("unassign", partition, 0))

    def start_offset(self, partition: int) -> int | None:
        """First offset that is read of an assigned partition; ``None`` until it has been looked up."""
        state = self._states.get(partition)
        return None if state is None else state.start

    def at_end(self, partition: int) -> bool:
        """Whether everything that was there has been taken."""
        state = self._states.get(partition)
        return state is None or state.at_end

    def read_until(self, partition: int) -> int | None:
        """Kafka timestamp up to which everything has been taken; ``None`` at the end, or if not assigned."""
        state = self._states.get(partition)
        return None if state is None or state.at_end else state.newest_ts

    def reached(self, partition: int, timestamp_ms: int) -> bool:
        """Whether snapshots up to that Kafka timestamp are in, or there are none yet.

        The answer also paces the reader: the timestamp is that of the event that waits.
        """
        state = self._states.get(partition)
        if state is None:
            return True
        state.head_ts = timestamp_ms
        return state.at_end or state.newest_ts >= timestamp_ms

    def caught_up(self, partition: int) -> None:
        """The events of ``partition`` are read to their end: read ahead without bound from now on."""
        state = self._states.get(partition)
        if state is not None:
            state.head_ts = None

    def _main(self) -> None:
        try:
            consumer = Consumer(self._config)
            try:
                while not self._stop.is_set():
                    self._obey(consumer)
                    self._pace(consumer)
                    self._take(consumer)
            finally:
                consumer.close()
        except Exception as error:
            log.exception("the snapshot reader ended")
            self._failed(error)

    def _obey(self, consumer: Consumer) -> None:
        with self._mutex:
            commands, self._commands = self._commands, []
        for done, (command, partition, from_ms) in enumerate(commands):
            held = {tp.partition for tp in consumer.assignment()}
            if partition in held:
                consumer.incremental_unassign([TopicPartition(self._topic, partition)])
                with self._guard:
                    self._log.forget_partition(partition)
            state = self._states.get(partition)
            if command == "assign" and state is not None:
                try:
                    start = self._lookup(consumer, partition, from_ms)
                except KafkaException as error:
                    if not passes(error.args[0]):
                        raise
                    self._later(commands[done:], error)
                    return
                state.start = start
                assigned = TopicPartition(self._topic, partition, start)
                consumer.incremental_assign([assigned])
                # The client keeps a pause over the assignments; the state here begins without one.
                consumer.resume([assigned])
                log.info(
                    "snapshots assigned",
                    extra={"topic": self._topic, "partition": partition, "offset": start},
                )

    def _later(self, commands: list[tuple[str, int, int]], error: KafkaException) -> None:
        """Try again in a moment: what is assigned goes on as it can, and whoever waits for the rest waits."""
        log.warning(
            "brokers do not say where snapshots begin; trying again",
            extra={"topic": self._topic, "partition": commands[0][1], "error": error},
        )
        with self._mutex:
            self._commands[:0] = commands
        self._stop.wait(_AGAIN_S)

    def _lookup(self, consumer: Consumer, partition: int, from_ms: int) -> int:
        """First offset at or after ``from_ms``; the beginning where the broker cannot look up by time."""
        tp = TopicPartition(self._topic, partition)
        low, end = consumer.get_watermark_offsets(tp, timeout=_LOOKUP_S)
        if low >= end:
            return end
        found = self._offset_at(consumer, partition, from_ms)
        if found >= 0:
            return found
        # "The end" is also what the mock cluster answers to everything. A broker that can look up knows the
        # first record's place.
        return end if self._offset_at(consumer, partition, 0) >= 0 else low

    def _offset_at(self, consumer: Consumer, partition: int, timestamp_ms: int) -> int:
        answer = consumer.offsets_for_times(
            [TopicPartition(self._topic, partition, timestamp_ms)], timeout=_LOOKUP_S
        )[0]
        if answer.error is not None:
            raise KafkaException(answer.error)
        return int(answer.offset)

    def _pace(self, consumer: Consumer) -> None:
        """Pause what runs too far ahead of the events it is for, resume what they have caught up with."""
        for partition, state in list(self._states.items()):
            if state.start is None:
                continue
            ahead = state.head_ts is not None and state.newest_ts > state.head_ts + self._lead_ms
            if ahead == state.paused:
                continue
            tp = TopicPartition(self._topic, partition)
            if ahead:
                consumer.pause([tp])
            else:
                consumer.resume([tp])
            state.paused = ahead

    def _take(self, consumer: Consumer) -> None:
        messages = consumer.consume(_BATCH, timeout=_POLL_S)
        refused: list[Refused] = []
        accepted = 0
        for first in range(0, max(1, len(messages)), _HELD):
            if first:
                time.sleep(0)  # whoever waits for the guard gets it between
            with self._guard:
                for message in messages[first : first + _HELD]:
                    accepted += self._offer(message, refused)
                later = self._log.take_rejected()
            refused.extend(_refused_later(rejection) for rejection in later)
        if accepted:
            self._accepted(accepted)
        if refused:
            self._refused(refused)

    def _offer(self, message: Message, refused: list[Refused]) -> int:
        """Give a message to the log; the number of records accepted."""
        error = message.error()
        if error is not None:
            self._note(message, error)
            return 0
        partition, offset = message.partition() or 0, message.offset() or 0
        state = self._states.get(partition)
        if state is None:
            return 0
        key, timestamp = message.key(), message.timestamp()[1]
        rejected = self._log.offer(
            key,
            message.value(),
            topic=self._topic,
            partition=partition,
            offset=offset,
            broker_ts=timestamp,
        )
        if type(key) is bytes and (key, partition) not in self._keys:
            self._look_at_key(key, partition, offset)
        state.at_end = False
        state.newest_ts = max(state.newest_ts, timestamp)
        if rejected is None:
            return 1
        refused.append(Refused(record_of(message), rejected.reason, rejected.detail))
        return 0

    def _look_at_key(self, key: bytes, partition: int, offset: int) -> None:
        if len(self._keys) >= _REMEMBERED_KEYS:
            self._keys.clear()
        self._keys.add((key, partition))
        self._new_key(Record(self._topic, partition, offset, 0, key, None))

    def _note(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            state = self._states.get(message.partition() or 0)
            if state is not None:
                state.at_end = True
        elif not passes(error):
            raise KafkaException(error)


def _refused_later(rejection: Rejection) -> Refused:
    """Found when a session used the record; the log kept its key and value."""
    source = rejection.source
    record = Record(source.topic, source.partition, source.offset, 0, rejection.key, rejection.value)
    return Refused(record, rejection.reason, rejection.detail)


def record_of(message: Message) -> Record:
    """A confluent-kafka message as a :class:`Record`."""
    headers = message.headers()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        _bytes(message.key()),
        _bytes(message.value()),
        tuple((name, value) for name, value in headers if isinstance(value, bytes))
        if isinstance(headers, list)
        else (),
    )


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def fetch(
    config: Mapping[str, Any],
    topic: str,
    partition: int,
    offsets: Collection[int],
    timeout_s: float = 30.0,
) -> dict[int, Record]:
    """Records by their offsets; those that are gone (retention) are missing from the answer. Blocks.

    Raises ``KafkaException`` when the broker does not answer in time: that tells nothing of the records.
    """
    wanted = sorted(set(offsets))
    found: dict[int, Record] = {}
    consumer = Consumer({**config, "enable.partition.eof": True})
    deadline = time.monotonic() + timeout_s
    try:
        position = -1
        for offset in wanted:
            if offset < position:
                continue
            if position < 0 or offset - position > _BATCH:
                consumer.assign([TopicPartition(topic, partition, offset)])
                position = offset
            while position <= offset:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                if error is not None:
                    if passes(error):
                        continue
                    raise KafkaException(error)
                position = (message.offset() or 0) + 1
                if position - 1 in offsets:
                    found[position - 1] = record_of(message)
        return found
    finally:
        consumer.close()


def first_timestamp(
    config: Mapping[str, Any], topic: str, partition: int, offset: int, timeout_s: float = 10.0
) -> int | None:
    """Kafka timestamp of the first record at or after ``offset``; ``None`` when there is none. Blocks.

    Raises ``KafkaException`` when the broker does not answer in time.
    """
    consumer = Consumer({**config, "enable.partition.eof": True})
    deadline = time.monotonic() + timeout_s
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
        consumer.assign([TopicPartition(topic, partition, max(low, offset))])
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return int(message.timestamp()[1])
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            if not passes(error):
                raise KafkaException(error)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.close()
