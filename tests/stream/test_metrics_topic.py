"""Metrics on their topic: the same names as /metrics, no vehicle or session, a last record at the end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cockpithat.contract.reports import MetricsRecord
from stream.metrics import Metrics
from stream.metrics_topic import values_of
from tests.stream.cockpit import Cluster, session, worker
from tests.support.kafka import KafkaBroker


def test_names_are_those_of_the_metrics_page_without_buckets() -> None:
    metrics = Metrics()
    metrics.alerts.labels("D").inc(2)
    metrics.attribution_seconds.labels('odd"name\\').observe(0.5)
    values = values_of(metrics)
    assert values['cockpithat_alerts_total{asil="D"}'] == 2
    assert values['cockpithat_attribution_seconds_count{method="odd\\"name\\\\"}'] == 1
    page = metrics.render()[0].decode()
    assert not any("_bucket" in name for name in values)
    assert all(name.split("{")[0] in page for name in values)


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_a_worker_writes_its_counts_and_a_last_record_when_it_stops(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, overrides={"worker": {"metrics_interval_s": 1.0}})
    cluster.send(session("vehicle-1", "failed-1", start_ts=int(time.time() * 1000) - 10_000))
    with worker(cluster, tmp_path) as running:
        cluster.wait("sessions", 1)
        before = len(cluster.wait("metrics", 1))
        running.terminate()
        records = [MetricsRecord.model_validate(body) for body in cluster.wait("metrics", before + 1)]
    last = records[-1]
    assert last.values["cockpithat_summaries_total"] == 1
    assert last.values['cockpithat_events_total{result="accepted"}'] == 6
    assert last.interval_seconds == 1.0
    assert len({record.worker for record in records}) == 1
    assert "vehicle-1" not in last.model_dump_json()
    assert "failed-1" not in last.model_dump_json()
