"""Sends a load to its topics at a pace, and keeps sending through a broker that is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.load import Sent
from tests.stream.cockpit import Cluster

_SLICE_S = 0.05


class Feeder:
    """Sends records in their order from a thread, within about ``seconds`` (0: as fast as it goes).

    Idempotent: a broker that is restarted meanwhile has every record once, in order.
    """

    def __init__(self, cluster: Cluster, records: Sequence[Sent], *, seconds: float) -> None:
        self._cluster = cluster
        self._records = records
        self._seconds = seconds
        self._failed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self.sent = 0
        self.error: BaseException | None = None

    def start(self) -> Feeder:
        """Begin to send."""
        self._thread.start()
        return self

    @property
    def share(self) -> float:
        """How much of the load is sent, from 0 to 1."""
        return self.sent / max(1, len(self._records))

    def finish(self, timeout_s: float = 600.0) -> None:
        """Wait until everything is delivered."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"load not sent in {timeout_s:.0f} s"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._send()
        except BaseException as error:  # reported by whoever waits for it
            self.error = error

    def _send(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.broker.bootstrap_servers,
                "log_level": 2,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "message.max.bytes": 8 * 1024 * 1024,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
            }
        )
        began = time.monotonic()
        first, last = self._records[0].at_ms, self._records[-1].at_ms
        pace = self._seconds / max(1, last - first)
        for sent in self._records:
            due = began + (sent.at_ms - first) * pace
            while (early := due - time.monotonic()) > 0:
                producer.poll(min(early, _SLICE_S))
            self._produce(producer, sent)
            self.sent += 1
        assert producer.flush(120) == 0, "load not delivered within 120 s"
        assert not self._failed, self._failed[0]

    def _produce(self, producer: Producer, sent: Sent) -> None:
        while True:
            try:
                producer.produce(
                    self._cluster.topic(sent.input),
                    sent.value,
                    sent.key,
                    partition=sent.partition,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)
