"""Publishes the worker's metrics to Kafka, for teams whose dashboards read topics (``MetricsRecord``).

The same names and values as ``/metrics`` but for histogram buckets, which multiply a record's size and
serve queries that only Prometheus can make. A record that cannot be delivered is dropped: the next one
holds the same counters.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from cockpithat import __version__
from cockpithat.contract.reports import MetricsRecord
from stream.kafka_config import producer_config
from stream.logs import describe
from stream.metrics import Metrics
from stream.settings import Settings

log = logging.getLogger(__name__)

_FLUSH_S = 2.0


def worker_name(settings: Settings) -> str:
    """Name of this worker: its static membership id if it has one, else client id, host and process."""
    kafka = settings.kafka
    return kafka.group_instance_id or f"{kafka.client_id}@{socket.gethostname()}:{os.getpid()}"


def values_of(metrics: Metrics) -> dict[str, float]:
    """Every sample of the registry but histogram buckets, by name with labels as Prometheus writes them."""
    values: dict[str, float] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                continue
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(sample.labels.items()))
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = float(sample.value)
    return values


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsTopic:
    """Writes a record every interval, on a producer of its own: outside transactions, never waited for."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        now_ms: Callable[[], int],
        frames: Mapping[str, bytes],
    ) -> None:
        """``frames`` may be filled until :meth:`start`."""
        self._frames = frames
        self._topic = settings.topics.metrics
        self._interval_s = settings.worker.metrics_interval_s
        self._metrics = metrics
        self._now_ms = now_ms
        self._worker = worker_name(settings)
        self._config: dict[str, Any] = producer_config(settings.kafka)
        self._producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to publish; nothing is published with an interval of 0."""
        if self._interval_s > 0:
            self._producer = Producer(self._config)
            self._task = asyncio.create_task(self._run(), name="metrics-topic")

    async def stop(self) -> None:
        """Publish the last counts, for at most two seconds."""
        if self._producer is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._publish()
        await asyncio.get_running_loop().run_in_executor(None, self._producer.flush, _FLUSH_S)
        self._producer = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self._publish()

    def _publish(self) -> None:
        record = MetricsRecord(
            worker=self._worker,
            ts=self._now_ms(),
            interval_seconds=self._interval_s,
            values=values_of(self._metrics),
            info={"product_version": __version__},
        )
        assert self._producer is not None
        try:
            self._producer.produce(
                self._topic,
                key=self._worker.encode(),
                value=self._frames.get(self._topic, b"") + record.model_dump_json().encode(),
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.warning("metrics record dropped", extra={"error": describe(error), "topic": self._topic})

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            log.warning("metrics record dropped", extra={"error": error.name(), "topic": self._topic})
