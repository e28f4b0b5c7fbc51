"""Dead letters on a real broker: shown without payload, sent back byte for byte, and once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cockpithat.contract.deadletter import DeadLetterReason
from stream import dlq
from stream.deadletters import dead_letter
from stream.kafka_config import BrokerError
from stream.records import Record
from stream.settings import Settings, load_settings
from tests.support.kafka import KafkaBroker

pytestmark = pytest.mark.kafka

PAYLOAD = b'{"text": "Anna drives to the clinic \xff"'
KEY = b"vehicle-\xfe"


class Desk:
    """One source topic and its dead-letter topic."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.source = kafka.unique("events")
        self.settings: Settings = load_settings(
            kafka={"bootstrap_servers": kafka.bootstrap_servers, "group_id": self.source},
            topics={"session_events": self.source},
        )
        self.topic = self.settings.topics.dlq(self.source)
        kafka.create_topics(self.source, self.topic)

    def put(
        self,
        reason: DeadLetterReason = DeadLetterReason.NOT_JSON,
        *,
        key: bytes | None = KEY,
        value: bytes | None = PAYLOAD,
        offset: int = 7,
    ) -> None:
        record = Record(self.source, 2, offset, 1_000, key, value, (("trace-context", b"abc"),))
        output = dead_letter(
            record,
            reason,
            detail="at position 40",
            stage="decode",
            topic=self.topic,
            partition=2,
            vehicle_id="vehicle-1",
        )
        self.kafka.produce(
            output.topic, [(output.key, output.value)], headers=output.headers, partition=output.partition
        )

    def read(self, **selection: object) -> list[dlq.DeadLetter]:
        return list(dlq.read(self.settings, [self.topic], dlq.Selection(**selection)))  # type: ignore[arg-type]


@pytest.fixture
def desk(kafka: KafkaBroker) -> Desk:
    return Desk(kafka)


def test_shown_without_payload_unless_asked(desk: Desk) -> None:
    desk.put()
    (letter,) = desk.read()
    line = letter.to_json()
    assert line["reason"] == "not_json"
    assert line["detail"] == "at position 40"
    assert (line["source_topic"], line["source_partition"], line["source_offset"]) == (desk.source, 2, 7)
    assert line["bytes"] == len(PAYLOAD)
    assert "Anna" not in json.dumps(line)
    assert "vehicle-" not in json.dumps(line)

    line = letter.to_json(payload=True)
    assert line["value"] == r'{"text": "Anna drives to the clinic \xff"'
    assert line["vehicle_id"] == "vehicle-1"
    json.dumps(line)


def test_counted_by_source_and_reason(desk: Desk) -> None:
    desk.put(DeadLetterReason.LATE)
    desk.put(DeadLetterReason.LATE)
    desk.put(DeadLetterReason.SCHEMA)
    desk.kafka.produce(desk.topic, [(b"k", b"somebody else's record")])
    assert dlq.count(desk.read()) == {
        (desk.source, "late"): 2,
        (desk.source, "schema"): 1,
        (desk.topic, "foreign"): 1,
    }


def test_redriven_byte_for_byte_with_its_own_headers_and_only_once(desk: Desk) -> None:
    desk.put()
    desk.put(key=None, value=None)
    assert dlq.redrive(desk.settings, desk.topic) == dlq.Redriven(sent=2, foreign=0)
    assert dlq.redrive(desk.settings, desk.topic) == dlq.Redriven(sent=0, foreign=0, before=2)

    sent = {message.key(): message for message in desk.kafka.read(desk.source)}
    assert set(sent) == {KEY, None}
    assert sent[KEY].value() == PAYLOAD
    assert sent[KEY].headers() == [("trace-context", b"abc"), (dlq.REDRIVEN, f"{desk.topic}/2/0".encode())]
    assert sent[None].value() is None
    assert sent[None].partition() == 2  # no key says where: back to where it was

    assert desk.read() == []
    assert [letter.redriven for letter in desk.read(include_redriven=True)] == [True, True]


def test_redriven_keys_go_where_java_puts_them(desk: Desk) -> None:
    keys = [f"vehicle-{n}".encode() for n in range(20)]
    for key in keys:
        desk.put(DeadLetterReason.WRONG_KEY, key=key)  # all lie in partition 2
    dlq.redrive(desk.settings, desk.topic)
    desk.kafka.produce(desk.source, [(key, b"java") for key in keys])
    where: dict[bytes, set[int]] = {}
    for message in desk.kafka.read(desk.source):
        where.setdefault(message.key(), set()).add(message.partition())  # type: ignore[arg-type]
    assert all(len(partitions) == 1 for partitions in where.values())
    assert len(where) == 20


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (lambda: {"reasons": frozenset({DeadLetterReason.LATE})}, [b"late"]),
        (lambda: {"offsets": frozenset({0, 2}), "partition": 2}, [b"late", b"empty"]),
        (lambda: {"partition": 1}, []),
        (dict, [b"late", b"schema", b"empty"]),
    ],
)
def test_redrive_takes_what_is_selected(
    desk: Desk, select: Callable[[], dict[str, object]], expected: list[bytes]
) -> None:
    for reason in (DeadLetterReason.LATE, DeadLetterReason.SCHEMA, DeadLetterReason.EMPTY):
        desk.put(reason, value=reason.value.encode())
    dlq.redrive(desk.settings, desk.topic, dlq.Selection(**select()))  # type: ignore[arg-type]
    assert [message.value() for message in desk.kafka.read(desk.source)] == expected
    assert len(desk.read()) == 3 - len(expected)


def test_a_limit_is_kept_and_the_rest_comes_next(desk: Desk) -> None:
    for n in range(5):
        desk.put(value=str(n).encode())
    assert dlq.redrive(desk.settings, desk.topic, limit=2).sent == 2
    assert dlq.redrive(desk.settings, desk.topic, limit=10).sent == 3
    assert [message.value() for message in desk.kafka.read(desk.source)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_repaired_record_replaces_exactly_one(desk: Desk) -> None:
    desk.put(offset=1)
    desk.put(offset=2)
    with pytest.raises(ValueError, match="exactly one dead letter, 2 are selected"):
        dlq.redrive(desk.settings, desk.topic, value=b"{}")
    one = dlq.Selection(partition=2, offsets=frozenset({1}))
    assert dlq.redrive(desk.settings, desk.topic, one, value=b"{}", key=b"vehicle-1").sent == 1
    with pytest.raises(ValueError, match="already sent back; --include-redriven"):
        dlq.redrive(desk.settings, desk.topic, one, value=b"{}", key=b"vehicle-1")
    (message,) = desk.kafka.read(desk.source)
    assert (message.key(), message.value()) == (b"vehicle-1", b"{}")


def test_a_redrive_that_dies_before_its_commit_sends_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put()

    class DiesError(Exception):
        pass

    class Dying:
        def __init__(self, producer: object) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> object:
            return getattr(self._producer, name)

        def commit_transaction(self, _: float) -> None:
            raise DiesError

    make = dlq._redriver
    monkeypatch.setattr(dlq, "_redriver", lambda *arguments: Dying(make(*arguments)))
    with pytest.raises(DiesError):
        dlq.redrive(desk.settings, desk.topic)
    monkeypatch.setattr(dlq, "_redriver", make)
    assert dlq.redrive(desk.settings, desk.topic).sent == 1  # fences the dead one
    assert len(desk.kafka.read(desk.source)) == 1


def test_records_of_others_are_counted_and_left_alone(desk: Desk) -> None:
    desk.kafka.produce(desk.topic, [(b"k", b"somebody else's record")])
    assert dlq.redrive(desk.settings, desk.topic) == dlq.Redriven(sent=0, foreign=1)
    assert desk.kafka.read(desk.source) == []


def test_a_topic_that_does_not_exist_is_one_clear_line(desk: Desk) -> None:
    with pytest.raises(BrokerError, match="nowhere: no such topic"):
        list(dlq.read(desk.settings, ["nowhere"]))
    assert dlq.all_topics(desk.settings) == [desk.topic]
