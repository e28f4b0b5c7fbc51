"""Writes the outputs of one input partition, each batch in one transaction (design, decision 6).

A producer's transactional id comes from group, input topic and partition, so a new owner of the partition
fences the old one: what the old owner had not committed is never seen. Outputs that a reader takes as
belonging together (report, alert, summary last) go into one batch and appear together or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from stream.records import Output

log = logging.getLogger(__name__)

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_MAX_BATCH_OUTPUTS = 2_000
_MAX_BATCH_BYTES = 16 * 1024 * 1024


class FencedError(Exception):
    """Another worker owns the partition now. What was in the batch is the new owner's to write."""


class PublicationError(Exception):
    """The outputs could not be written, and trying again here will not help."""


class TransactionalWriter:
    """One transactional producer. All methods block and belong on one thread at a time."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        timeout_s: float,
        attempts: int = 5,
        frames: Mapping[str, bytes] | None = None,
    ) -> None:
        """``config`` is a librdkafka producer configuration with a ``transactional.id``.

        ``frames``: what stands before the values of a topic (:mod:`stream.schema_registry`).
        """
        self._frames = frames or {}
        self._producer = Producer(dict(config))
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._failed: list[KafkaError] = []

    def open(self) -> None:
        """Fence earlier owners and abort what they left open. Raises :class:`PublicationError`."""
        self._call(lambda: self._producer.init_transactions(self._timeout_s))

    def write(self, outputs: Sequence[Output]) -> None:
        """Write all ``outputs`` in order and in one transaction, or none of them.

        Raises :class:`FencedError` or :class:`PublicationError`; both leave nothing visible.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                self._producer.begin_transaction()
                self._produce(outputs)
                self._call(lambda: self._producer.commit_transaction(self._timeout_s))
                return
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if problem.code() in _FENCED:
                    raise FencedError(str(problem)) from error
                if problem.fatal():
                    raise PublicationError(str(problem)) from error
                if attempt == self._attempts:
                    raise PublicationError(f"{problem} after {attempt} attempts") from error
                log.warning("transaction aborted; trying again", extra={"error": error, "attempt": attempt})
                self._abort()

    def _produce(self, outputs: Sequence[Output]) -> None:
        self._failed.clear()
        for output in outputs:
            value = output.value
            if value is not None and (frame := self._frames.get(output.topic)) is not None:
                value = frame + value
            while True:
                try:
                    self._producer.produce(
                        output.topic,
                        value=value,
                        key=output.key,
                        partition=output.partition,
                        headers=list(output.headers),
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self._producer.poll(0)
        if self._failed:
            raise KafkaException(self._failed[0])

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _call(self, call: Callable[[], None]) -> None:
        """librdkafka's transaction calls may be repeated while their error is retriable."""
        for attempt in range(1, self._attempts + 1):
            try:
                call()
                return
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if problem.retriable() and attempt < self._attempts:
                    continue
                if problem.txn_requires_abort() or problem.fatal() or problem.code() in _FENCED:
                    raise
                raise PublicationError(str(problem)) from error

    def _abort(self) -> None:
        try:
            self._call(lambda: self._producer.abort_transaction(self._timeout_s))
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() in _FENCED:
                raise FencedError(str(problem)) from error
            raise PublicationError(str(problem)) from error

    def close(self) -> None:
        """Drop what is queued; an open transaction is left to the next owner or to its timeout."""
        self._producer.purge()
        self._producer.poll(0)


@dataclass(slots=True)
class _Batch:
    outputs: Sequence[Output]
    done: Callable[[], None]


class PartitionPublisher:
    """The publication queue of one input partition, on the event loop.

    Batches are committed in the order they were given; those that wait while a transaction is under way
    share the next one, and from the beginning of one to that of the next at least ``interval_s`` passes: a
    transaction costs the brokers a dozen requests, whatever is in it. The first after a silence goes at
    once. ``done`` of a batch is called on the event loop once it is committed. On the first
    failure the queue stops for good and ``failed`` is called once; the batches that are left are dropped,
    since their input is still held and will be read again.
    """

    def __init__(
        self,
        writer: TransactionalWriter,
        executor: Executor,
        *,
        failed: Callable[[Exception], None],
        committed: Callable[[Sequence[Output]], None] = lambda _: None,
        max_bytes: int = _MAX_BATCH_BYTES,
        interval_s: float = 0.0,
    ) -> None:
        self._writer = writer
        self._interval_s = interval_s
        self._executor = executor
        self._failed = failed
        self._committed = committed
        self._max_bytes = max_bytes
        self._queue: deque[_Batch] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fence earlier owners, then start to write. Raises what :meth:`TransactionalWriter.open` raises."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._writer.open)
        if not self._closed:
            self._task = asyncio.create_task(self._run(), name="publisher")

    def submit(self, outputs: Sequence[Output], done: Callable[[], None] = lambda: None) -> None:
        """Queue ``outputs``, to be committed together. Without outputs, ``done`` waits for its turn."""
        if self._closed:
            return
        self._queue.append(_Batch(outputs, done))
        self._idle.clear()
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Batches that are not taken up yet."""
        return len(self._queue)

    async def drained(self) -> None:
        """Wait until everything that was submitted is committed, or the queue has stopped."""
        await self._idle.wait()

    def close(self) -> None:
        """Publish nothing more: the partition is revoked. A commit under way is not waited for."""
        self._closed = True
        self._queue.clear()
        self._idle.set()
        if self._task is not None:
            self._task.cancel()
        self._executor.submit(self._writer.close)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_at = 0.0
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and not self._closed:
                if (wait_s := next_at - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                next_at = loop.time() + self._interval_s
                batches = self._take()
                outputs = [output for batch in batches for output in batch.outputs]
                if outputs:
                    try:
                        await loop.run_in_executor(self._executor, self._writer.write, outputs)
                    except (FencedError, PublicationError) as error:
                        self._stop(error)
                        return
                    except Exception as error:  # a fault of ours must not leave the queue silently dead
                        self._stop(PublicationError(type(error).__name__))
                        log.exception("publisher failed")
                        return
                if self._closed:
                    return
                self._committed(outputs)
                for batch in batches:
                    batch.done()
            if not self._queue:
                self._idle.set()

    def _take(self) -> list[_Batch]:
        batches: list[_Batch] = []
        size = count = 0
        while self._queue:
            batch = self._queue[0]
            batch_bytes = sum(len(output.value or b"") for output in batch.outputs)
            too_much = size + batch_bytes > self._max_bytes or count + len(batch.outputs) > _MAX_BATCH_OUTPUTS
            if batches and too_much:
                break
            size += batch_bytes
            count += len(batch.outputs)
            batches.append(self._queue.popleft())
        return batches

    def _stop(self, error: Exception) -> None:
        closed = self._closed
        self._closed = True
        self._queue.clear()
        self._idle.set()
        if not closed:
            self._failed(error)
