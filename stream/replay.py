"""Sends recorded sessions to the input topics, keeping their relative timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.formats.recording import AnyEvent, Recording, in_time_order, moved, span_ms
from stream.kafka_config import BrokerError, broker_error, producer_config
from stream.settings import Settings

_LONG_S = 5.0  # a replay that takes longer says how to make it shorter
_LONGEST_NAP_S = 0.25  # so that deliveries are reported while nothing is due


@dataclass(slots=True)
class Replayed:
    """What a replay sent. ``failed`` records were refused or not delivered; ``first_error`` says why."""

    events: int = 0
    snapshots: int = 0
    delivered: int = 0
    failed: int = 0
    first_error: str = ""
    sessions: set[tuple[str, str]] = field(default_factory=set)


def prepared(
    recordings: Iterable[Recording],
    *,
    speed: float,
    keep_time: bool = False,
    rename: str = "",
    now_ms: int | None = None,
) -> list[Recording]:
    """The recordings as they are to be sent: all moved by the same amount, or none with ``keep_time``.

    No record is dated after it is sent. At real speed or slower the first one is dated ``now_ms`` (the
    wall clock by default); at ``speed`` above 1, or as fast as possible (0), the last one is dated at the
    moment at which it will be sent.
    """
    listed = list(recordings)
    span = span_ms(listed)
    if span is None:
        return listed
    first, last = span
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if keep_time:
        shift = 0
    elif 0 < speed <= 1:
        shift = now - first
    else:
        shift = now + (round((last - first) / speed) if speed else 0) - last
    return [moved(recording, shift, rename) for recording in listed]


def outlook(recordings: Sequence[Recording], speed: float) -> str:
    """What a replay will send and how long that takes, in one line, with a hint where it takes long."""
    records = sum(len(recording.events) + len(recording.snapshots) for recording in recordings)
    span = span_ms(recordings)
    if span is None:
        return "nothing to send"
    if speed == 0:
        return f"sending {records} records without waiting"
    seconds = (span[1] - span[0]) / 1000 / speed
    hint = "; --speed 10 is ten times as fast, --speed 0 does not wait" if seconds >= _LONG_S else ""
    return f"sending {records} records, about {_duration(seconds)} at speed {speed:g}{hint}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def replay(
    recordings: Sequence[Recording],
    settings: Settings,
    *,
    speed: float = 1.0,
    on_record: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Replayed:
    """Send every record, by its timestamp, keyed by vehicle.

    ``speed`` 2 sends twice as fast as recorded, 0 without waiting. Raises ``BrokerError`` when the
    brokers cannot be reached or an input topic is missing; single records that fail are counted.
    """
    result = Replayed()
    producer = Producer(producer_config(settings.kafka))
    _require_topics(producer, settings)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            result.delivered += 1
        else:
            _count_failure(result, str(error))

    started = clock()
    first: int | None = None
    latest = 0
    for record in in_time_order(recordings):
        latest = max(latest, record.ts)
        first = latest if first is None else first
        if speed > 0:
            _wait(producer, started + (latest - first) / 1000 / speed, clock, sleep)
        _send(producer, settings, record, result, delivered)
        on_record()
    deadline = clock() + settings.kafka.delivery_timeout_ms / 1000
    while len(producer) and clock() < deadline:
        producer.poll(_LONGEST_NAP_S)
    if left := len(producer):
        result.failed += left
        result.first_error = result.first_error or "not delivered in time"
    return result


def _send(
    producer: Producer,
    settings: Settings,
    record: AnyEvent | VehicleSnapshot,
    result: Replayed,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    if isinstance(record, VehicleSnapshot):
        topic = settings.topics.vehicle_snapshots
        result.snapshots += 1
    else:
        topic = settings.topics.session_events
        result.events += 1
        result.sessions.add((record.vehicle_id, record.session_id))
    value = record.model_dump_json().encode()
    while True:
        try:
            producer.produce(topic, value, record.vehicle_id.encode(), on_delivery=delivered)
            producer.poll(0)
            return
        except BufferError:  # the queue is full: let deliveries make room
            producer.poll(_LONGEST_NAP_S)
        except KafkaException as error:  # such as a record larger than max_message_bytes
            _count_failure(result, error.args[0].str())
            return


def _count_failure(result: Replayed, error: str) -> None:
    result.failed += 1
    result.first_error = result.first_error or error


def _wait(
    producer: Producer, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    while (left := until - clock()) > 0:
        producer.poll(0)
        sleep(min(left, _LONGEST_NAP_S))


def _require_topics(producer: Producer, settings: Settings) -> None:
    for topic in (settings.topics.session_events, settings.topics.vehicle_snapshots):
        try:
            metadata = producer.list_topics(topic, timeout=settings.kafka.request_timeout_ms / 1000).topics[
                topic
            ]
        except KafkaException as error:
            raise broker_error(settings.kafka, error, "cannot reach the brokers") from None
        if metadata.error is not None and not metadata.partitions:
            raise BrokerError(
                f"{settings.kafka.bootstrap_servers}: topic {topic} is not there "
                f"({metadata.error.str()}); run `cockpithat topics create`"
            )
