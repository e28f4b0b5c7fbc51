"""Outputs appear together or not at all, once, and a new owner knows what is out. On Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from stream.kafka_config import consumer_config, producer_config
from stream.ledger import ClosedMark, Ledger, Mark, closed_sessions, marked, read_back
from stream.publish import FencedError, PartitionPublisher, TransactionalWriter
from stream.records import Output
from stream.settings import KafkaSettings
from tests.support.kafka import KafkaBroker

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(kafka: KafkaBroker) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, group_id=KafkaBroker.unique("g"))


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def writer(settings: KafkaSettings) -> TransactionalWriter:
    config = {**producer_config(settings), "transactional.id": settings.group_id}
    return TransactionalWriter(config, timeout_s=20)


def output(topic: str, text: str) -> Output:
    return Output(topic, 0, b"vehicle", text.encode())


def values(kafka: KafkaBroker, topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in kafka.read(topic)]


@pytest.fixture
def topics(kafka: KafkaBroker) -> tuple[str, str]:
    names = (KafkaBroker.unique("reports"), KafkaBroker.unique("sessions"))
    kafka.create_topics(*names, partitions=1)
    return names


def test_a_batch_is_visible_in_every_topic_once_it_is_committed(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    reports, sessions = topics
    ours = writer(settings)
    ours.open()
    ours.write([output(reports, "report"), output(sessions, "summary")])
    assert (values(kafka, reports), values(kafka, sessions)) == (["report"], ["summary"])


def test_what_a_dead_owner_left_open_is_never_seen(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    reports, _ = topics
    dead = writer(settings)
    dead.open()
    dead._producer.begin_transaction()
    dead._producer.produce(reports, b"half", b"vehicle", partition=0)
    dead._producer.flush(10)
    heir = writer(settings)
    heir.open()
    heir.write([output(reports, "whole")])
    assert values(kafka, reports) == ["whole"]


def test_a_former_owner_is_fenced(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    reports, _ = topics
    former, owner = writer(settings), writer(settings)
    former.open()
    former.write([output(reports, "before")])
    owner.open()
    with pytest.raises(FencedError):
        former.write([output(reports, "zombie")])
    owner.write([output(reports, "after")])
    assert values(kafka, reports) == ["before", "after"]


async def test_batches_are_committed_in_order_and_then_reported(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str], executor: ThreadPoolExecutor
) -> None:
    reports, _ = topics
    errors: list[Exception] = []
    publisher = PartitionPublisher(writer(settings), executor, failed=errors.append)
    await publisher.open()
    done: list[int] = []
    for number in range(300):
        publisher.submit([output(reports, str(number))], lambda number=number: done.append(number))  # type: ignore[misc]
    await asyncio.wait_for(publisher.drained(), 30)
    publisher.close()
    assert done == list(range(300))
    assert values(kafka, reports) == [str(number) for number in range(300)]
    assert errors == []


class SlowWriter:
    """Stands for a writer whose broker does not answer until it is told to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.written: list[Output] = []

    def open(self) -> None: ...

    def write(self, outputs: Sequence[Output]) -> None:
        self.answer.wait(10)
        self.written += outputs

    def close(self) -> None: ...


async def test_after_a_revocation_nothing_more_is_published_or_reported(executor: ThreadPoolExecutor) -> None:
    slow = SlowWriter()
    publisher = PartitionPublisher(slow, executor, failed=lambda _: None)  # type: ignore[arg-type]
    await publisher.open()
    done: list[str] = []
    publisher.submit([output("t", "under way")], lambda: done.append("under way"))
    await asyncio.sleep(0.05)
    publisher.submit([output("t", "waiting")], lambda: done.append("waiting"))
    publisher.close()
    publisher.submit([output("t", "too late")], lambda: done.append("too late"))
    slow.answer.set()
    await asyncio.sleep(0.1)
    assert done == []
    assert [each.value for each in slow.written] == [b"under way"]


async def test_what_is_done_within_the_interval_shares_a_transaction(executor: ThreadPoolExecutor) -> None:
    """The first after a silence goes at once, the rest waits its time and goes together."""

    class Counting(SlowWriter):
        def write(self, outputs: Sequence[Output]) -> None:
            transactions.append((time.monotonic(), [each.value for each in outputs]))

    transactions: list[tuple[float, list[bytes | None]]] = []
    publisher = PartitionPublisher(Counting(), executor, failed=lambda _: None, interval_s=0.3)  # type: ignore[arg-type]
    await publisher.open()
    begun = time.monotonic()
    for number in range(5):
        publisher.submit([output("t", str(number))])
        await asyncio.sleep(0.02)
    await asyncio.wait_for(publisher.drained(), 5)
    assert [values for _, values in transactions] == [[b"0"], [b"1", b"2", b"3", b"4"]]
    assert transactions[0][0] - begun < 0.2
    assert transactions[1][0] - transactions[0][0] >= 0.25
    publisher.close()


async def test_a_fenced_queue_stops_and_says_so_once(executor: ThreadPoolExecutor) -> None:
    class Fenced(SlowWriter):
        def write(self, outputs: Sequence[Output]) -> None:
            raise FencedError("fenced")

    errors: list[Exception] = []
    done: list[int] = []
    publisher = PartitionPublisher(Fenced(), executor, failed=errors.append)  # type: ignore[arg-type]
    await publisher.open()
    publisher.submit([output("t", "1")], lambda: done.append(1))
    publisher.submit([output("t", "2")], lambda: done.append(2))
    await asyncio.wait_for(publisher.drained(), 5)
    publisher.submit([output("t", "3")], lambda: done.append(3))
    await asyncio.sleep(0.05)
    assert [type(error) for error in errors] == [FencedError]
    assert done == []


# ---------------------------------------------------------------- the published set


def test_marks_survive_headers() -> None:
    mark = Mark("id\ud800é", 3, "events", 7, 41, high=99, session=("v", "s"), last=True)
    assert Mark.read([("other", b"1"), *mark.headers()]) == mark
    assert Mark.read([("other", b"1")]) is None
    closed = ClosedMark("v", "sé", 41, 1_000, 17, ((3, 4), (9, 9)), True)
    assert ClosedMark.read(closed.headers()) == closed
    assert ClosedMark.read([("cockpithat.closed", b"[1]")]) is None


def test_a_new_owner_reads_back_exactly_what_can_be_read_again(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    reports, _ = topics
    ledger, other = Ledger("events", 0), Ledger("events", 1)
    batch = []
    for number in range(3_000):
        batch.append(marked(output(reports, "x"), ledger.mark(f"t{number}", offset=number * 2)))
        if number % 10 == 0:
            batch.append(marked(output(reports, "y"), other.mark(f"o{number}", offset=9)))
    ours = writer(settings)
    ours.open()
    ours.write(batch)
    found = read_back(consumer_config(settings), reports, 0, input=("events", 0), needed_from=5_900)
    assert [mark.id for mark in found] == [f"t{number}" for number in range(2_950, 3_000)]


def test_outputs_that_a_slower_earlier_owner_made_are_found_behind_the_new_ones(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    """The first owner got far and died with an old commit; the second, read back, writes from there on."""
    reports, _ = topics
    first = Ledger("events", 0)
    ours = writer(settings)
    ours.open()
    ours.write([marked(output(reports, "far"), first.mark("far", offset=990, session=("v", "far")))])
    second = Ledger("events", 0)
    second.restore(read_back(consumer_config(settings), reports, 0, input=("events", 0), needed_from=500))
    assert second.has("far")
    ours.write(
        [marked(output(reports, "x"), second.mark(f"n{n}", offset=500 + n // 10)) for n in range(1_000)]
    )
    third = Ledger("events", 0)
    third.restore(read_back(consumer_config(settings), reports, 0, input=("events", 0), needed_from=650))
    assert third.has("far")
    assert third.accounts_for(("v", "far"), 990)
    assert not third.accounts_for(("v", "far"), 991)


def test_a_ledger_forgets_what_cannot_be_read_again() -> None:
    ledger = Ledger("events", 0)
    ledger.mark("old", 10, session=("v", "old"), last=True)
    ledger.mark("new", 20, session=("v", "new"), last=True)
    ledger.forget_before(15)
    assert (ledger.has("old"), ledger.has("new")) == (False, True)
    assert (ledger.is_done(10), ledger.is_done(20)) == (False, True)
    assert (ledger.closed_at(("v", "old")), ledger.closed_at(("v", "new"))) == (None, 20)


def test_another_revision_is_another_record() -> None:
    ledger = Ledger("events", 0)
    ledger.mark("trace", 10)
    assert ledger.has("trace", 1)
    assert not ledger.has("trace", 2)


def test_closed_sessions_are_read_from_the_tail(
    kafka: KafkaBroker, settings: KafkaSettings, topics: tuple[str, str]
) -> None:
    _, sessions = topics
    marks = [ClosedMark("v", f"s{n}", n, at_ms=1_000 + n, highest_seq=5) for n in range(50)]
    ours = writer(settings)
    ours.open()
    ours.write([replace(output(sessions, "s"), headers=mark.headers()) for mark in marks])

    def tail(**bounds: Any) -> list[str]:
        found = closed_sessions(consumer_config(settings), sessions, 0, **bounds)
        return [mark.session_id for mark in found]

    assert tail(since_ms=1_045, limit=100) == [f"s{n}" for n in range(45, 50)]
    # Eleven offsets are ten records and the transaction's own marker.
    assert tail(since_ms=0, limit=11) == [f"s{n}" for n in range(40, 50)]
