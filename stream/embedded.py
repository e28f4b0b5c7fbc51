"""librdkafka's mock cluster inside the process: a broker for the demo and for fast tests.

It is no proof of anything. It cannot create topics (they appear on first use, with four partitions), look
up an offset by timestamp, compact, or hide the records of an aborted transaction. See ``docs/operations.md``.
"""

from __future__ import annotations

import time
from types import TracebackType

from confluent_kafka import Producer

PARTITIONS = 4


def is_embedded(cluster_id: str | None) -> bool:
    """Whether a cluster of that id is a mock cluster: it does not answer to what it does not know."""
    return (cluster_id or "").startswith("mockCluster")


class EmbeddedBroker:
    """A mock cluster that lives as long as this object. Use it as a context manager."""

    def __init__(self, brokers: int = 1) -> None:
        self._client: Producer | None = Producer({"test.mock.num.brokers": brokers, "log_level": 2})
        # The mock cluster replaces the client's own broker list; its metadata is the only place that says it.
        deadline = time.monotonic() + 10.0
        members: list[str] = []
        client = self._live()
        while not members:
            metadata = client.list_topics(timeout=5.0)
            members = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
            if not members and time.monotonic() > deadline:
                raise RuntimeError("the embedded broker did not start within 10 s")
        self.bootstrap_servers = ",".join(sorted(members))

    def create(self, *topics: str) -> None:
        """Bring topics into being: the mock cluster makes one when its metadata is asked for."""
        deadline = time.monotonic() + 10.0
        client = self._live()
        for topic in topics:
            while (found := client.list_topics(topic, timeout=5.0).topics[topic]).error is not None or (
                not found.partitions
            ):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the embedded broker did not make topic {topic} within 10 s")
                time.sleep(0.02)

    def _live(self) -> Producer:
        if self._client is None:
            raise RuntimeError("the embedded broker is closed")
        return self._client

    def close(self) -> None:
        """Drop the cluster and everything in it."""
        self._client = None

    def __enter__(self) -> EmbeddedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
