"""The worker: Faust, the roles, the clock that ticks, and the way up and down."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import uvloop
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stream import faust_compat, memory
from stream.context import Partitions, Pauses, WorkerContext, epoch_ms
from stream.crashes import CrashCounter
from stream.deadletters import DeadLetterGuard
from stream.embedded import is_embedded
from stream.health import Health, HealthServer
from stream.kafka_config import (
    BrokerError,
    broker_error,
    client_config,
    consumer_config,
    producer_config,
)
from stream.logs import configure, describe
from stream.metrics import Metrics
from stream.metrics_topic import MetricsTopic
from stream.partitioning import uneven
from stream.publish import PublicationError
from stream.roles import build
from stream.roles.base import Role
from stream.schema_registry import frames
from stream.settings import ConfigurationError, Settings
from stream.topics import refusal

log = logging.getLogger(__name__)

_TOPICS_EVERY_S = 30.0
_THREADS = 16
_INTAKE = "dead letters"
_FAILED_GRACE_S = 5.0
_FOR_PEOPLE = (BrokerError, ConfigurationError, PublicationError)


class WorkerError(Exception):
    """The worker ended on something that a restart may cure. The message is one line."""


class Worker:
    """One worker. Make it inside the event loop that runs it."""

    def __init__(self, settings: Settings, *, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        worker = settings.worker
        self.health = Health(settings.health, self.metrics, busy_allowance_s=worker.attribution_deadline_s)
        self.partitions = Partitions()
        self.stopping = asyncio.Event()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka")
        self._loop = asyncio.get_running_loop()
        self._fatal: Exception | None = None
        self._assigned = False
        self._topics_problem: str | None = "topics not looked at yet"
        self._intake_stopped = False
        self._changed: dict[str, str] = {}
        self._unreached: KafkaException | None = None
        self._cluster_id: str | None = None
        self.context = WorkerContext(
            settings=settings,
            metrics=self.metrics,
            health=self.health,
            pauses=Pauses(
                lambda topic, partition: faust_compat.pause(self._app, topic, partition),
                lambda topic, partition: faust_compat.resume(self._app, topic, partition),
                self.metrics.paused_partitions.set,
            ),
            partitions=self.partitions,
            executor=self._executor,
            fatal=self.fail,
            end_offset=lambda topic, partition: faust_compat.end_offset(self._app, topic, partition),
            fetched_offset=lambda topic, partition: faust_compat.fetched_offset(self._app, topic, partition),
            committed_offset=lambda topic, partition: faust_compat.committed_offset(
                self._app, topic, partition
            ),
            last_contact_ms=lambda topic, partition: faust_compat.last_contact_ms(
                self._app, topic, partition
            ),
            guard=DeadLetterGuard(
                window=worker.dlq_window, max_ratio=worker.dlq_max_ratio, max_run=worker.dlq_max_run
            ),
            crashes=CrashCounter(
                settings.topics.crashes,
                limit=worker.crash_limit,
                producer=producer_config(settings.kafka),
                consumer=consumer_config(settings.kafka, group_id=f"{settings.kafka.group_id}.reader"),
            ),
        )
        self._app = faust_compat.create_app(
            settings.kafka,
            committable=self.context.holds.committable,
            commit_interval_s=worker.commit_interval_ms / 1000,
        )
        self.roles: list[Role] = build(worker.roles, self.context)
        for role in self.roles:
            self.metrics.watch_topic(role.topic)
            faust_compat.subscribe(self._app, role.topic, role.receive)
        faust_compat.on_rebalance(self._app, revoked=self._on_revoked, assigned=self._on_assigned)
        self.health.require("topics", lambda: self._topics_problem)
        self.health.require("assignment", lambda: None if self._assigned else "no partition assigned yet")
        self.health.require("intake", lambda: self.context.guard.tripped)

    def stop(self) -> None:
        """Ask the worker to stop; it does within ``worker.stop_timeout_s``."""
        self.stopping.set()

    def fail(self, error: Exception) -> None:
        """End the process: the infrastructure failed, and a restart reads everything again."""
        if self._fatal is None:
            self._fatal = error
            # Only these are written for people; any other message may quote a record.
            told = {"detail": str(error)} if isinstance(error, _FOR_PEOPLE) else {}
            log.critical("the worker ends", extra={"error": describe(error), **told})
            self.health.fail(describe(error))
        self.stopping.set()

    async def run(self) -> None:
        """Run until :meth:`stop`. Raises :class:`WorkerError` when something failed for good."""
        server = HealthServer(self.settings.health, self.health, self.metrics)
        if self.settings.health.enabled:
            server.start()
        ticking: asyncio.Task[None] | None = None
        records = MetricsTopic(self.settings, self.metrics, now_ms=epoch_ms, frames=self.context.frames)
        try:
            await self._start_checks()
            records.start()
            for role in self.roles:
                await role.start()
            ticking = asyncio.create_task(self._tick(), name="tick")
            ticking.add_done_callback(self._ticked_out)
            await faust_compat.run(
                self._app,
                self.stopping,
                before_stop=self._let_out,
                stop_timeout_s=self.settings.worker.stop_timeout_s / 2,
            )
        except Exception as error:
            self.fail(error)
        finally:
            if ticking is not None:
                ticking.cancel()
            for role in self.roles:
                role.revoked()
            await records.stop()
            server.stop()
            self._executor.shutdown(wait=False, cancel_futures=True)
        if self._fatal is not None:
            if isinstance(self._fatal, _FOR_PEOPLE):
                raise WorkerError(str(self._fatal)) from self._fatal  # made for people already
            raise WorkerError(f"the worker ended: {describe(self._fatal)}; see its log") from self._fatal

    async def _let_out(self) -> None:
        """Before Faust stops: what is under way goes out and is committed, in the time there is."""
        try:
            async with asyncio.timeout(self.settings.worker.stop_timeout_s / 2):
                for role in self.roles:
                    await role.stop()
        except TimeoutError:
            log.warning("stopping with work under way; the next owner does it again")
        if self._fatal is None:
            await faust_compat.commit(self._app)

    async def _on_revoked(self, _: set[tuple[str, int]]) -> None:
        for role in self.roles:
            role.revoked()
        self._assigned = False
        self.metrics.rebalances.inc()

    async def _on_assigned(self, assigned: set[tuple[str, int]]) -> None:
        if self.stopping.is_set():
            return
        self.context.pauses.reset()
        self._intake_stopped = False
        for role in self.roles:
            partitions = sorted(partition for topic, partition in assigned if topic == role.topic)
            role.assigned(partitions)
            log.info("partitions assigned", extra={"topic": role.topic, "partitions": partitions})
        self._assigned = True

    async def _tick(self) -> None:
        interval = self.settings.worker.tick_interval_ms / 1000
        looked = self._loop.time()
        while True:
            await asyncio.sleep(interval)
            now = epoch_ms()
            for role in self.roles:
                role.tick(now)
            self._report(now)
            self._watch_intake()
            faust_compat.check_group(self._app)
            if self._loop.time() - looked > _TOPICS_EVERY_S:
                looked = self._loop.time()
                await self._look_at_topics()

    def _ticked_out(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    def _report(self, now: int) -> None:
        lag = 0
        for topic, partition, hold in self.context.holds:
            position, committable = hold.position, hold.committable
            behind = None if position is None else self.context.waiting(topic, partition, position)
            if behind is not None:
                self.metrics.lag.labels(topic, str(partition)).set(behind)
                lag += behind
            if position is not None and committable is not None:
                self.metrics.hold.labels(topic, str(partition)).set(position - committable)
            self.metrics.hold_age.labels(topic, str(partition)).set(hold.age_ms(now) / 1000)
        self.health.set_lag(lag)
        self.health.set_in_flight(sum(role.in_flight for role in self.roles))

    def _watch_intake(self) -> None:
        why = self.context.guard.tripped
        self.metrics.intake_stopped.set(1 if why else 0)
        if why is None or self._intake_stopped:
            return
        self._intake_stopped = True
        log.critical("intake stopped; restart the worker when the cause is removed", extra={"detail": why})
        for topic, partition, _ in self.context.holds:
            self.context.pauses.pause(topic, partition, _INTAKE)

    async def _start_checks(self) -> None:
        """Raises ``BrokerError`` without brokers, ``ConfigurationError`` on topics that would lose data."""
        await self._look_at_topics()
        if self._unreached is not None:
            raise broker_error(self.settings.kafka, self._unreached, "cannot reach the brokers")
        self.context.frames.update(await self._loop.run_in_executor(self._executor, frames, self.settings))
        if partitions := self.partitions.count(self.settings.topics.crashes):
            await self._loop.run_in_executor(self._executor, self.context.crashes.load, partitions)
        if is_embedded(self._cluster_id):
            return
        try:
            why = await self._loop.run_in_executor(self._executor, refusal, self.settings)
        except BrokerError as error:
            # Not everyone may read configurations.
            log.warning("the topics' configuration could not be checked", extra={"detail": str(error)})
            return
        if why is not None:
            raise ConfigurationError(why)

    async def _look_at_topics(self) -> None:
        try:
            counts = await self._loop.run_in_executor(self._executor, self._partition_counts)
        except KafkaException as error:
            self._unreached = error
            self._topics_problem = f"brokers not reached: {describe(error)}"
            log.warning("topics could not be looked at", extra={"error": describe(error)})
            return
        self._unreached = None
        topics = self.settings.topics
        self._note_changes(counts)
        self.partitions.update(counts)
        # Whatever its roles, a worker's records meet those of the others by partition.
        meeting = dict.fromkeys((topics.session_events, topics.vehicle_snapshots, topics.traces))
        meeting.update(dict.fromkeys(role.topic for role in self.roles))
        problem = uneven(counts, meeting)
        outputs = [*topics.outputs, *(topics.dlq(topic) for topic in meeting)]
        if missing := [topic for topic in outputs if topic not in counts]:
            problem = problem or f"missing topics: {', '.join(missing)}; run `cockpithat topics create`"
        if self._changed:
            # Said until the restart, even if all topics agree again: keys lie elsewhere from now on, and
            # the sessions that were open are cut in two.
            changes = ", ".join(f"{name} {change}" for name, change in sorted(self._changed.items()))
            problem = f"partition counts changed while running: {changes}; restart all workers"
        if problem and problem != self._topics_problem:
            log.error("topics are not as they must be", extra={"detail": problem})
        self._topics_problem = problem

    def _note_changes(self, counts: Mapping[str, int]) -> None:
        topics = self.settings.topics
        ours = (*topics.names().values(), *(topics.dlq(topic) for topic in topics.dead_lettered))
        for name in ours:
            before, now = self.partitions.count(name), counts.get(name)
            if before and now and before != now:
                self._changed[name] = f"from {before} to {now}"
                self.metrics.partitions_added.labels(name).inc(max(0, now - before))

    def _partition_counts(self) -> dict[str, int]:
        admin = AdminClient(client_config(self.settings.kafka))
        found = admin.list_topics(timeout=self.settings.kafka.request_timeout_ms / 1000)
        self._cluster_id = found.cluster_id
        return {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}


def run_worker(settings: Settings, *, started: Callable[[Worker], None] = lambda _: None) -> None:
    """Run a worker in this process until SIGTERM or SIGINT. Exits with 1 after a failure.

    A stop takes at most ``worker.stop_timeout_s``; after that the process ends by force, which loses
    nothing: what was not committed is read again.
    """
    configure(settings.logs)
    memory.tune()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(settings, started))
    except WorkerError as error:
        print(f"cockpithat: {error}", file=sys.stderr)
        raise SystemExit(1) from None


async def _main(settings: Settings, started: Callable[[Worker], None]) -> None:
    worker = Worker(settings)
    loop = asyncio.get_running_loop()

    def asked(number: signal.Signals) -> None:
        log.info("stopping", extra={"signal": number.name})
        worker.stop()
        _end_by_force_after(settings.worker.stop_timeout_s, 0)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)
    started(worker)
    try:
        await worker.run()
    except WorkerError:
        # Threads of clients that are stuck must not keep a failed process alive.
        _end_by_force_after(_FAILED_GRACE_S, 1)
        raise


def _end_by_force_after(seconds: float, code: int) -> None:
    timer = threading.Timer(seconds, _by_force, [code])
    timer.daemon = True
    timer.start()


def _by_force(code: int) -> None:
    log.warning("not stopped in time; ending by force")
    os._exit(code)
