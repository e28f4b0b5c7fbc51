"""Topics on a real broker: created as needed, and differences told before they lose data."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from stream import topics
from stream.kafka_config import BrokerError
from stream.settings import Settings, load_settings
from tests.support.kafka import KafkaBroker, Secured, free_ports

pytestmark = pytest.mark.kafka


def settings_for(broker: KafkaBroker, /, **changes: Mapping[str, Any]) -> Settings:
    """Settings whose topics no other test has."""
    prefix = broker.unique("cockpit")
    names = {role: f"{prefix}.{role}" for role in load_settings().topics.names()}
    return load_settings(
        kafka={"bootstrap_servers": broker.bootstrap_servers, **changes.get("kafka", {})},
        topics={**names, "partitions": 3, **changes.get("topics", {})},
        **{name: value for name, value in changes.items() if name not in {"kafka", "topics"}},
    )


def set_config(kafka: KafkaBroker, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = kafka.admin  # kept: a client that is collected takes its requests along
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=20)
    plain = ConfigResource(ResourceType.TOPIC, topic)
    expected = {name.replace("_", "."): value for name, value in config.items()}
    deadline = time.monotonic() + 20
    while True:  # the brokers learn of it a moment later than the controller
        (described,) = admin.describe_configs([plain]).values()
        found = described.result(timeout=20)
        if all(found[name].value == value for name, value in expected.items()):
            return
        assert time.monotonic() < deadline, f"{topic} was not changed"
        time.sleep(0.05)


def test_nothing_exists_yet(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    findings = topics.check(settings)
    assert {finding.topic for finding in findings} == {spec.name for spec in topics.wanted(settings)}
    fatal = {finding.topic for finding in findings if finding.fatal}
    # CAN frames are an optional input.
    assert fatal == {spec.name for spec in topics.wanted(settings)} - {settings.topics.can_frames}
    assert "cockpithat topics create" in str(findings[0])


def test_what_was_created_has_nothing_to_find(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    created = topics.create(settings)
    assert all(created.values())
    assert set(created) == {spec.name for spec in topics.wanted(settings)}
    assert topics.check(settings) == []

    assert not any(topics.create(settings).values())  # a second time creates nothing and harms nothing
    assert topics.check(settings) == []


def test_created_and_checked_over_tls_with_a_password(kafka: KafkaBroker, secured_kafka: Secured) -> None:
    settings = settings_for(
        kafka,
        kafka={
            "bootstrap_servers": secured_kafka.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": secured_kafka.username,
            "sasl_password": secured_kafka.password,
            "ssl_ca_location": secured_kafka.ca,
        },
    )
    assert all(topics.create(settings).values())
    assert topics.check(settings) == []


def test_every_topic_read_has_a_dead_letter_topic(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    names = {spec.name for spec in topics.wanted(settings)}
    for topic in (*settings.topics.inputs, settings.topics.traces):
        assert f"{topic}.dlq" in names


def test_a_largest_record_fits_into_its_dead_letter_topic(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka, kafka={"max_message_bytes": 200_000, "compression": "none"})
    topics.create(settings)
    dead_letters = settings.topics.dlq(settings.topics.session_events)
    # Record and headers together are over the input's limit.
    kafka.produce(dead_letters, [(b"k", b"x" * 199_000)], headers=[("dlq.detail", b"d" * 20_000)])
    assert len(kafka.read(dead_letters)) == 1


def test_inputs_that_are_not_co_partitioned_are_fatal(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    topics.create(settings)
    snapshots = settings.topics.vehicle_snapshots
    admin = kafka.admin
    for future in admin.create_partitions([NewPartitions(snapshots, 5)]).values():
        future.result(timeout=20)
    while len(admin.list_topics(snapshots, timeout=20).topics[snapshots].partitions) != 5:
        time.sleep(0.05)
    (finding,) = topics.check(settings)
    assert (finding.topic, finding.what, finding.wanted, finding.found) == (snapshots, "partitions", "3", "5")
    assert finding.fatal


def test_an_output_with_fewer_partitions_than_the_inputs_is_told_and_more_are_fine(
    kafka: KafkaBroker,
) -> None:
    settings = settings_for(kafka)
    kafka.create_topics(settings.topics.alerts, partitions=2)
    kafka.create_topics(settings.topics.reviews, partitions=4)
    topics.create(settings)
    findings = topics.check(settings)
    (alerts,) = [finding for finding in findings if finding.what == "partitions"]
    assert (alerts.topic, alerts.wanted, alerts.fatal) == (settings.topics.alerts, "at least 3", False)


@pytest.mark.parametrize(
    ("config", "what", "fatal"),
    [
        ({"retention_ms": "3600000"}, "retention.ms", True),
        ({"cleanup_policy": "compact"}, "cleanup.policy", True),
        ({"retention_bytes": "1000000"}, "retention.bytes", False),
        ({"max_message_bytes": "1000000"}, "max.message.bytes", False),
        ({"message_timestamp_type": "CreateTime"}, "message.timestamp.type", False),
    ],
)
def test_a_changed_input_is_told(kafka: KafkaBroker, config: dict[str, str], what: str, fatal: bool) -> None:
    settings = settings_for(kafka)
    topics.create(settings)
    set_config(kafka, settings.topics.session_events, **config)
    (finding,) = topics.check(settings)
    assert (finding.topic, finding.what, finding.fatal) == (settings.topics.session_events, what, fatal)


def test_a_worker_is_refused_for_what_loses_data_and_not_for_topics_that_may_still_come(
    kafka: KafkaBroker,
) -> None:
    settings = settings_for(kafka)
    assert topics.refusal(settings) is None
    topics.create(settings)
    assert topics.refusal(settings) is None
    set_config(kafka, settings.topics.session_events, retention_ms="3600000")
    why = topics.refusal(settings)
    assert why is not None
    assert "retention.ms is 3600000" in why
    assert "longest hold" in why


def test_retention_for_ever_is_long_enough(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    topics.create(settings)
    set_config(kafka, settings.topics.session_events, retention_ms="-1")
    assert not any(finding.fatal for finding in topics.check(settings))


def test_the_least_retention_follows_the_engine_s_bounds(kafka: KafkaBroker) -> None:
    """Topics that were fine are not, once sessions may live for longer."""
    settings = settings_for(kafka, topics={"input_retention_ms": 10 * 3_600_000})
    topics.create(settings)
    assert topics.check(settings) == []
    longer = settings.model_copy(
        update={"engine": settings.engine.model_copy(update={"max_age_ms": 6 * 3_600_000})}
    )
    fatal = {finding.topic: finding for finding in topics.check(longer) if finding.fatal}
    assert set(fatal) == set(settings.topics.inputs)
    assert fatal[settings.topics.session_events].wanted == f"at least {2 * longer.longest_hold_ms}"


def test_fatal_findings_come_first(kafka: KafkaBroker) -> None:
    settings = settings_for(kafka)
    topics.create(settings)
    set_config(kafka, settings.topics.session_events, max_message_bytes="1000000")
    set_config(kafka, settings.topics.vehicle_snapshots, cleanup_policy="compact")
    assert [finding.fatal for finding in topics.check(settings)] == [True, False]


def test_an_unreachable_broker_and_an_impossible_topic_are_one_clear_line(kafka: KafkaBroker) -> None:
    impossible = settings_for(kafka, topics={"replication_factor": 7})
    with pytest.raises(BrokerError, match=r"cannot create topic .*replication") as error:
        topics.create(impossible)
    assert "\n" not in str(error.value)

    (port,) = free_ports(1)
    gone = load_settings(kafka={"bootstrap_servers": f"127.0.0.1:{port}", "request_timeout_ms": 1_000})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "_TIMEOUT_S", 1.0)
        for call in (topics.check, topics.create):
            with pytest.raises(BrokerError, match=f"127.0.0.1:{port}: "):
                call(gone)


def test_findings_are_plain_values() -> None:
    finding = topics.Finding("t", "partitions", "3", "5", True, "recreate the topic")
    assert str(finding) == "t: partitions is 5, wanted 3; recreate the topic"
    assert dataclasses.asdict(finding)["fatal"] is True
