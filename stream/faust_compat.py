"""Everything that touches private parts of Faust 0.15.3 and aiokafka; nothing else in the project does.

What is changed, and why (design, "What Faust 0.15.3 does that will bite"; each has a test):

* The committable offset is ours. Faust's steps over a missing offset at the head and commits nothing
  without new acknowledgements; ours asks the holds, so a hold released on a silent partition is committed.
* Reading is ``read_committed`` where the topic is written in transactions, which Faust ties to its own
  broken ``exactly_once``.
* A fetch waits a little for records to gather, which Faust has no setting for.
* A record goes from the consumer straight to who takes it. Faust's way, a pair of tasks for the wait, a
  message, an event, a queue, a stream and two dozen sensor calls for each record, took more processor time
  than all that is done with it. As nothing is queued, nothing stale is delivered after a rebalance either.
* Pausing goes to aiokafka, which keeps its position. Faust's own drops the records it has fetched already.
* No web server, no tables, no leader topic, no topic declared by Faust, raw bytes in and nothing out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, cast

import faust
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.partitioner import murmur2 as _murmur2
from faust.app import BootStrategy
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from yarl import URL

from stream.kafka_config import FETCH_MIN_BYTES, faust_broker, faust_credentials
from stream.records import Record
from stream.settings import KafkaSettings

log = logging.getLogger(__name__)

_TURN_S = 0.005  # records are taken for so long before the event loop does something else

Committable = Callable[[str, int], int | None]
Receive = Callable[[Record], None]
Listener = Callable[[set[tuple[str, int]]], Awaitable[None]]


class HoldingThread(driver.AIOKafkaConsumerThread):
    """The consumer thread, reading only what is committed."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # The fetcher is made in ``start()`` from this field, so it is early enough to set it here.
        consumer._isolation_level = "read_committed"
        wait_ms = cast(StreamApp, transport.app).fetch_wait_ms
        if wait_ms:
            consumer._fetch_min_bytes, consumer._fetch_max_wait_ms = FETCH_MIN_BYTES, wait_ms
        return consumer


class HoldingConsumer(driver.Consumer):
    """Faust's consumer with offsets that the holds decide on."""

    def _new_consumer_thread(self) -> HoldingThread:
        return HoldingThread(self, loop=self.loop, beacon=self.beacon)

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        """Every assigned partition: a hold may have been released without a new event."""
        try:
            assignment = self.assignment()
        except ConsumerNotStarted:
            return
        for tp in assignment:
            if topics is None or tp in topics or tp.topic in topics:
                yield tp

    def _new_offset(self, tp: TP) -> int | None:
        return cast(StreamApp, self.app).committable(tp.topic, tp.partition)

    def _should_commit(self, tp: TP, offset: int) -> bool:
        committed = self._committed_offset[tp]
        return offset > (committed or 0)

    async def _drain_messages(self, fetcher: Any) -> None:
        """What Faust's fetcher runs: fetch, give away, until either is to stop.

        Nothing is taken while a rebalance goes on: partitions are sought back to their committed offset after
        it, and what is left of the batch is read again.
        """
        try:
            await self._drain(fetcher)
        except (*self.consumer_stopped_errors, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _drain(self, fetcher: Any) -> None:
        app = cast(StreamApp, self.app)
        while not (self._stopped.is_set() or fetcher._stopped.is_set()):
            records, active = await self._wait_next_records(1.0)
            if records is None or self.should_stop:
                continue
            if not self.flow_active:
                await self._seek_back()
                continue
            generation = app.consumer_generation_id
            turn_ends = self.loop.time() + _TURN_S
            for tp, record in self.scheduler.iterate(records):
                if not self.flow_active or app.consumer_generation_id != generation:
                    break
                read = self._read_offset[tp]
                if (active is not None and tp not in active) or (read is not None and record.offset < read):
                    continue
                if not await self._give(tp.topic, record):
                    return
                self._read_offset[tp] = record.offset + 1
                if self.loop.time() > turn_ends:
                    await asyncio.sleep(0)  # heartbeats, commits, what is to be written
                    turn_ends = self.loop.time() + _TURN_S
            await asyncio.sleep(0)

    async def _give(self, topic: str, record: Any) -> bool:
        """Give a record to who takes its topic; false if that failed, and the app with it."""
        app = cast(StreamApp, self.app)
        taken = Record(
            topic,
            record.partition,
            record.offset,
            record.timestamp or 0,
            record.key,
            record.value,
            tuple(record.headers or ()),
        )
        try:
            app.receivers[topic](taken)
        except Exception as error:
            log.critical(
                "a record could not be taken; the process ends with it uncommitted",
                extra={"topic": topic, "partition": record.partition, "offset": record.offset},
            )
            await app.crash(error)
            return False
        return True

    async def _seek_back(self) -> None:
        try:
            await self.perform_seek()
        except Exception as error:
            log.warning("partitions not sought back", extra={"error": error})

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's livelock detector takes a held offset for a stuck stream; the worker has its own probe."""


class HoldingTransport(driver.Transport):
    """Faust's aiokafka transport with :class:`HoldingConsumer`."""

    Consumer = HoldingConsumer


class NoWebServer(BootStrategy):
    """Faust starts its web server although ``web_enabled`` is false; this one has none to start."""

    enable_web = False

    def web_server(self) -> Iterable[Any]:
        return []

    def web_components(self) -> Iterable[Any]:
        return []


class StreamApp(faust.App):
    """A Faust app whose commits follow ``committable(topic, partition)``."""

    BootStrategy = NoWebServer
    committable: Committable
    fetch_wait_ms: int
    receivers: dict[str, Receive]

    def _create_directories(self) -> None:
        """Tables would need a data folder in the current one; there are none."""

    def _new_transport(self) -> HoldingTransport:
        return HoldingTransport(self.conf.broker_consumer, self)


def create_app(settings: KafkaSettings, *, committable: Committable, commit_interval_s: float) -> StreamApp:
    """The app, connected to nothing yet. Must be called inside the event loop that will run it."""
    app = StreamApp(settings.group_id, **flags(settings, commit_interval_s=commit_interval_s))
    app.committable = committable
    app.fetch_wait_ms = settings.fetch_wait_ms
    app.receivers = {}
    return app


def flags(settings: KafkaSettings, *, commit_interval_s: float) -> dict[str, Any]:
    """Faust's configuration. Must be called inside the event loop that will run the app."""
    return {
        "broker": [URL(url) for url in faust_broker(settings)],
        "broker_client_id": settings.client_id,
        "broker_credentials": faust_credentials(settings),
        "broker_commit_interval": commit_interval_s,
        "broker_session_timeout": settings.session_timeout_ms / 1000,
        "broker_heartbeat_interval": settings.heartbeat_interval_ms / 1000,
        "broker_max_poll_interval": settings.max_poll_interval_ms / 1000,
        "broker_request_timeout": max(settings.request_timeout_ms, settings.session_timeout_ms) / 1000,
        "broker_rebalance_timeout": max(settings.session_timeout_ms, 30_000) / 1000,
        # Bounded, aiokafka would empty one partition after the other, and traces would wait for a backlog of
        # events; unbounded, Faust takes turns between topics. What is fetched at once is bounded in bytes.
        "broker_max_poll_records": None,
        "broker_check_crcs": settings.check_crcs,
        "consumer_group_instance_id": settings.group_instance_id,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": max(settings.max_message_bytes, 1024 * 1024),
        "producer_max_request_size": settings.max_message_bytes,
        "key_serializer": "raw",
        "value_serializer": "raw",
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "stream_wait_empty": False,
        "stream_recovery_delay": 0.0,
        "stream_publish_on_commit": False,
        "cython_optimizations": True,
        "worker_redirect_stdouts": False,
        "autodiscover": False,
        "loop": asyncio.get_running_loop(),
    }


def subscribe(app: StreamApp, topic: str, receive: Receive) -> None:
    """Let ``receive`` have every record of ``topic``, in the order of each partition.

    ``receive`` must neither block nor raise: what escapes it ends the process, with the record uncommitted.
    """
    channel = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    app.receivers[topic] = receive
    app.topics.add(channel)


def on_rebalance(app: StreamApp, *, revoked: Listener, assigned: Listener) -> None:
    """Call the listeners with ``(topic, partition)`` pairs before and after every rebalance.

    ``assigned`` gets all partitions, kept ones too: Faust seeks every one back to its committed offset.
    """

    async def when_revoked(_: Any, partitions: set[TP], **__: Any) -> None:
        await revoked({(tp.topic, tp.partition) for tp in partitions})

    async def when_assigned(_: Any, partitions: set[TP], **__: Any) -> None:
        await assigned({(tp.topic, tp.partition) for tp in partitions})

    # weak=False: the signal would otherwise lose these closures at the next garbage collection.
    app.on_partitions_revoked.connect(when_revoked, weak=False)
    app.on_partitions_assigned.connect(when_assigned, weak=False)


def _consumer_thread(app: StreamApp) -> Any:
    return cast(Any, app.consumer)._thread


def _set_paused(app: StreamApp, topic: str, partition: int, paused: bool) -> None:
    thread = _consumer_thread(app)

    def apply() -> None:
        consumer = thread._consumer
        try:
            tp = TopicPartition(topic, partition)
            consumer.pause(tp) if paused else consumer.resume(tp)
        except IllegalStateError:
            log.debug("partition is not ours any more", extra={"topic": topic, "partition": partition})

    # aiokafka's futures belong to the loop of its own thread.
    thread.thread_loop.call_soon_threadsafe(apply)


def pause(app: StreamApp, topic: str, partition: int) -> None:
    """Stop fetching a partition. What was fetched already still arrives; nothing is lost."""
    _set_paused(app, topic, partition, True)


def resume(app: StreamApp, topic: str, partition: int) -> None:
    """Fetch a paused partition again, from where it stopped."""
    _set_paused(app, topic, partition, False)


def end_offset(app: StreamApp, topic: str, partition: int) -> int | None:
    """Where the partition ends for a ``read_committed`` reader, as of the last fetch; ``None`` if unknown."""
    try:
        consumer = _consumer_thread(app)._ensure_consumer()
        return cast("int | None", consumer.last_stable_offset(TopicPartition(topic, partition)))
    except (IllegalStateError, KafkaError, AttributeError, KeyError, AssertionError, ConsumerNotStarted):
        return None


def fetched_offset(app: StreamApp, topic: str, partition: int) -> int | None:
    """The offset that is fetched next, past transaction markers; ``None`` if unknown."""
    try:
        subscription = _consumer_thread(app)._ensure_consumer()._subscription.subscription
        state = subscription.assignment.state_value(TopicPartition(topic, partition))
        return cast(int, state.position) if state.has_valid_position else None
    except (IllegalStateError, KafkaError, AttributeError, KeyError, AssertionError, ConsumerNotStarted):
        return None


def last_contact_ms(app: StreamApp, topic: str, partition: int) -> int | None:
    """Wall clock of the last answer about a partition, empty ones too, in epoch ms; ``None`` before one."""
    try:
        consumer = _consumer_thread(app)._ensure_consumer()
        return cast("int | None", consumer.last_poll_timestamp(TopicPartition(topic, partition)))
    except (IllegalStateError, KafkaError, AttributeError, KeyError, AssertionError, ConsumerNotStarted):
        return None


def committed_offset(app: StreamApp, topic: str, partition: int) -> int | None:
    """The committed offset that Faust sought to after the last rebalance; ``None`` when there was none."""
    return cast("int | None", cast(Any, app.consumer)._committed_offset.get(TP(topic, partition)))


def murmur2(key: bytes) -> int:
    """The hash of Kafka's default partitioner, as an unsigned 32-bit integer."""
    return int(_murmur2(key)) & 0xFFFFFFFF


def assignment(app: StreamApp) -> Collection[tuple[str, int]]:
    """The partitions that this member has now."""
    try:
        return {(tp.topic, tp.partition) for tp in app.consumer.assignment()}
    except ConsumerNotStarted:
        return set()


async def commit(app: StreamApp) -> None:
    """Commit what the holds allow, now."""
    await app.consumer.commit()


def check_group(app: StreamApp) -> None:
    """Raises what ended this member's part in the group, such as a session timeout the broker refuses.

    aiokafka keeps the error for whoever polls next; Faust polls in a way that never looks at it.
    """
    consumer = _consumer_thread(app)._consumer
    coordinator = getattr(consumer, "_coordinator", None)
    if coordinator is None:
        return
    error = coordinator._pending_exception
    task = coordinator._coordination_task
    if error is None and task.done() and not task.cancelled():
        error = task.exception()
    if error is not None:
        raise error


async def run(
    app: faust.App,
    stop: asyncio.Event,
    *,
    before_stop: Callable[[], Awaitable[None]] | None = None,
    stop_timeout_s: float = 20.0,
) -> None:
    """Run the app until ``stop`` is set or it crashes; raises what it crashed with.

    A crashed app may wait for itself for a minute; it is left alone after ``stop_timeout_s``.

    ``before_stop`` runs while the consumer is still there to commit. Faust's own worker is not used: it
    takes over logging, the process title and the signals.
    """
    app.in_worker = True
    starting = asyncio.create_task(app.start(), name="faust-start")
    stopping = asyncio.create_task(stop.wait(), name="stop-requested")
    crashed = asyncio.create_task(_crashed(app), name="faust-crashed")
    try:
        await asyncio.wait({stopping, crashed, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            await asyncio.wait({stopping, crashed}, return_when=asyncio.FIRST_COMPLETED)
        if before_stop is not None and not crashed.done():
            await before_stop()
    finally:
        for task in (starting, stopping, crashed):
            task.cancel()
        await asyncio.gather(starting, stopping, crashed, return_exceptions=True)
        try:
            async with asyncio.timeout(stop_timeout_s):
                await app.stop()
        except TimeoutError:
            log.warning("Faust did not stop in time", extra={"seconds": stop_timeout_s})
    if not starting.cancelled() and (error := starting.exception()) is not None:
        raise error
    if app.crash_reason is not None:
        raise app.crash_reason


async def _crashed(app: faust.App) -> None:
    # mode has nothing to wait for that survives its own restarts of children.
    while app.crash_reason is None:
        await asyncio.sleep(0.1)
