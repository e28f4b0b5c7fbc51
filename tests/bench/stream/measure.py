"""One measurement in a process of its own: reads a topic as told, prints one JSON line of figures.

    python -m tests.bench.stream.measure WHAT '{"bootstrap": "...", "topic": "...", "count": 100000}'

WHAT is ``raw``, ``json``, ``windows``, ``faust`` or ``worker``. Times run from the first record taken to the
last one done, so that neither start-up nor rebalancing counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import faust
import orjson
from confluent_kafka import Consumer, TopicPartition

from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.trace import SourceRef
from cockpithat.session.effects import TraceClosed
from cockpithat.session.engine import SessionEngine
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.log import SnapshotLog
from stream import faust_compat, memory
from stream.app import Worker
from stream.settings import KafkaSettings, load_settings
from stream.snapshots import SnapshotReader

TIMEOUT_S = 120.0


def consumer_config(bootstrap: str) -> dict[str, Any]:
    """As the snapshot reader's, so that the loops differ in nothing but what they do with a record."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 32_768,
        "log_level": 2,
    }


def loop(bootstrap: str, topic: str, count: int, partitions: int, decode: bool) -> dict[str, float]:
    """A bare confluent-kafka batch loop: key and value of every record, decoded or not."""
    consumer = Consumer(consumer_config(bootstrap))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    taken = 0
    begun = cpu = 0.0
    try:
        while taken < count:
            messages = consumer.consume(1_000, timeout=1.0)
            if messages and not begun:
                begun, cpu = time.perf_counter(), time.process_time()
            for message in messages:
                message.key()
                value = message.value()
                if decode:
                    orjson.loads(value or b"")
            taken += len(messages)
        return {"count": taken, "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    finally:
        consumer.close()


def windows(
    bootstrap: str, topic: str, count: int, partitions: int, in_list: int, sessions: list[list[str]]
) -> dict[str, float]:
    """Our reader into closed windows: sessions that wait for the snapshots of their time, until all close.

    The events of a session are given to the engine before reading starts; what is timed is reading,
    checking, keeping, and for each window validation, alignment and the trace.
    """
    log = SnapshotLog()
    guard = threading.RLock()
    state: dict[str, float] = {"taken": 0.0, "begun": 0.0, "cpu": 0.0}

    def accepted(number: int) -> None:
        state["taken"] += number

    def failed(error: Exception) -> None:
        print(f"error: the reader failed: {error}", file=sys.stderr)
        os._exit(1)

    reader = SnapshotReader(
        consumer_config(bootstrap),
        topic,
        log,
        guard=guard,
        refused=lambda refused: failed(ValueError(refused[0].detail)),
        accepted=accepted,
        failed=failed,
        lookback_ms=0,
    )
    engine = SessionEngine(EngineSettings(snapshot_wait_ms=600_000), log)
    closed = steps = 0
    for session in sessions:
        for text in session:
            event = SESSION_EVENT.validate_json(text)
            engine.apply(
                event, SourceRef(topic="events"), size=len(text), broker_ts=event.ts, wall_ms=event.ts
            )
    waiting = len(sessions)
    for partition in range(partitions):
        reader.assign(partition, 0)
        reader.caught_up(partition)
    reader.start()
    deadline = time.monotonic() + TIMEOUT_S
    now = 0
    while state["taken"] < count or closed < waiting:
        if not state["begun"] and state["taken"]:
            state["begun"], state["cpu"] = time.perf_counter(), time.process_time()
        time.sleep(0.1)  # about as often as a worker; each look goes over all windows that wait
        with guard:
            effects = engine.advance(now)
        for effect in effects:
            if isinstance(effect, TraceClosed):
                closed += 1
                steps += sum(step.state is not None for step in effect.trace.steps)
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {state['taken']:.0f} of {count} records, {closed} of {waiting} windows")
    result = {
        "count": count * in_list,
        "seconds": time.perf_counter() - state["begun"],
        "cpu": time.process_time() - state["cpu"],
        "windows": closed,
        "steps": steps,
    }
    reader.stop()
    return result


class _Count:
    """Counts records and notes when the first and the last came."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self.count, self.done = count, done
        self.taken = 0
        self.begun = self.cpu = self.ended = 0.0

    def take(self, _: object) -> None:
        """What the bare agent does with an event."""
        if not self.taken:
            self.begun, self.cpu = time.perf_counter(), time.process_time()
        self.taken += 1
        if self.taken == self.count:
            self.ended = time.perf_counter()
            self.done()

    def result(self) -> dict[str, float]:
        """Figures."""
        return {
            "count": self.taken,
            "seconds": self.ended - self.begun,
            "cpu": time.process_time() - self.cpu,
        }


async def bare_agent(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Faust's own agent, with the worker's flags, that only counts."""
    stop = asyncio.Event()
    counter = _Count(count, stop.set)
    settings = KafkaSettings(bootstrap_servers=bootstrap, group_id=f"bare.{os.getpid()}")

    class BareApp(faust.App):
        BootStrategy = faust_compat.NoWebServer

        def _create_directories(self) -> None: ...

    app = BareApp(settings.group_id, **faust_compat.flags(settings, commit_interval_s=1.0))

    async def agent(stream: Any) -> None:
        async for event in stream.events():
            counter.take(event)

    app.agent(
        app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    )(agent)
    asyncio.get_running_loop().call_later(TIMEOUT_S, stop.set)
    await faust_compat.run(app, stop)
    return counter.result()


class _NoGraph:
    """In the graph's place, to tell what the graph costs."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def add(self, _: object) -> None:
        """Nothing."""

    def to_wire(self) -> None:
        """No graph."""


async def worker(settings: dict[str, Any], count: int, graph: bool, total: int) -> dict[str, float]:
    """Our worker's role ``assemble``, until ``count`` events are in and all that came of them is out.

    With several workers ``total`` is what they share; each ends when it has seen no event for a second.
    """
    if not graph:
        from cockpithat.session import state

        vars(state)["IncrementalGraph"] = _NoGraph
    running = Worker(load_settings(**settings))
    begun = cpu = last = 0.0
    taken = 0.0
    deadline = time.monotonic() + TIMEOUT_S

    async def watch() -> None:
        nonlocal begun, cpu, last, taken
        metric = running.metrics.events.labels("accepted")
        published = 0.0
        ready = False
        while time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            now = metric._value.get()
            if not ready and not running.health.readiness():
                ready = True
                print("ready", flush=True)
            if now != taken:
                if not begun:
                    begun, cpu = time.perf_counter(), time.process_time()
                taken, last = now, time.perf_counter()
            out = all(hold.pending == 0 for _, _, hold in running.context.holds)
            if out and taken and not published:
                published = time.perf_counter()
            if not out:
                published = 0.0
            quiet = last and time.perf_counter() - last > (1.5 if count < total else 0.0)
            if published and quiet and taken >= min(count, total if count == total else 1):
                last = max(last, published) if count == total else last
                break
        running.stop()

    task = asyncio.create_task(watch())
    await running.run()
    await task
    return {
        "count": taken,
        "begun": begun,
        "seconds": last - begun,
        "cpu": time.process_time() - cpu,
        "ended": last,
    }


def main(what: str, options: dict[str, Any]) -> dict[str, float]:
    """Run one measurement."""
    logging.disable(logging.INFO)
    memory.tune()
    if what in ("raw", "json"):
        return loop(**options, decode=what == "json")
    if what == "windows":
        return windows(**options)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bare_agent(**options) if what == "faust" else worker(**options))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        print(json.dumps(main(sys.argv[1], json.loads(sys.stdin.read()))), flush=True)
        gc.collect()
        os._exit(0)
