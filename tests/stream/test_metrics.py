"""Metrics: names, units, labels, and that none of them can grow without bound."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from cockpithat.contract.base import Asil, Category
from stream.metrics import Metrics

LABELS = {
    "le",
    "topic",
    "partition",
    "reason",
    "result",
    "role",
    "outcome",
    "direction",
    "asil",
    "category",
    "method",
} | {
    "version",
    "contract_version",
    "python_version",
    "implementation",
    "major",
    "minor",
    "patchlevel",
}


def test_names_follow_the_conventions() -> None:
    families = list(text_string_to_metric_families(Metrics().render()[0].decode()))
    assert len(families) > 30
    for family in families:
        assert family.name.startswith(("cockpithat_", "process_", "python_")), family.name
        assert family.documentation, family.name
        assert not re.search(r"_(ms|millis|milliseconds|kb|mb|count|minutes)$", family.name), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_labels_are_of_a_bounded_kind() -> None:
    metrics = Metrics()
    metrics.watch_topic("t")
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample


def test_counters_start_at_zero_so_that_a_first_count_is_seen() -> None:
    metrics = Metrics()
    metrics.watch_topic("t")
    text = metrics.render()[0].decode()
    assert 'cockpithat_dead_letters_total{reason="late",topic="t"} 0.0' in text
    assert 'cockpithat_sessions_closed_total{reason="silence"} 0.0' in text
    assert 'cockpithat_reports_total{asil="D",category="planning_failure"} 0.0' in text
    assert "_created" not in text


def test_reports_are_counted_with_and_without_a_category() -> None:
    metrics = Metrics()
    metrics.count_report(Asil.D, Category.PLANNING_FAILURE)
    metrics.count_report(Asil.QM, None)
    sample = metrics.registry.get_sample_value
    assert sample("cockpithat_reports_total", {"asil": "D", "category": "planning_failure"}) == 1
    assert sample("cockpithat_reports_total", {"asil": "QM", "category": "none"}) == 1


def test_a_revoked_partition_is_no_longer_reported() -> None:
    metrics = Metrics()
    for partition in ("0", "1"):
        metrics.hold_age.labels("t", partition).set(5)
    metrics.forget_partition("t", 0)
    metrics.forget_partition("t", 7)  # never reported
    assert (
        metrics.registry.get_sample_value("cockpithat_hold_age_seconds", {"topic": "t", "partition": "0"})
        is None
    )
    assert (
        metrics.registry.get_sample_value("cockpithat_hold_age_seconds", {"topic": "t", "partition": "1"})
        == 5
    )


def test_two_objects_share_nothing() -> None:
    one, other = Metrics(), Metrics()
    one.summaries.inc()
    assert other.registry.get_sample_value("cockpithat_summaries_total") == 0
