"""Client configuration: what librdkafka and Faust are given, and that it connects for real."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from stream.kafka_config import (
    broker_error,
    client_config,
    consumer_config,
    faust_broker,
    faust_credentials,
    producer_config,
    ssl_context,
    transactional_config,
)
from stream.settings import ConfigurationError, KafkaSettings, load_settings
from tests.support.kafka import KafkaBroker, Secured, free_ports


def kafka_settings(**fields: Any) -> KafkaSettings:
    return load_settings(kafka=fields).kafka


def test_a_plain_connection() -> None:
    kafka = kafka_settings(bootstrap_servers="a:1, b:2")
    assert faust_credentials(kafka) is None
    assert faust_broker(kafka) == ["aiokafka://a:1", "aiokafka://b:2"]
    assert not {name for name in client_config(kafka) if name.startswith(("sasl.", "ssl."))}


def test_the_producer_agrees_with_java_about_partitions_and_never_doubles() -> None:
    config = producer_config(kafka_settings())
    assert config["partitioner"] == "murmur2_random"
    assert config["enable.idempotence"] is True
    assert config["acks"] == "all"


def test_the_consumer_commits_nothing_by_itself_and_sees_only_committed_records() -> None:
    config = consumer_config(kafka_settings())
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["isolation.level"] == "read_committed"


def test_a_fetch_waits_for_records_to_gather_unless_told_not_to() -> None:
    config = consumer_config(kafka_settings())
    assert (config["fetch.min.bytes"], config["fetch.wait.max.ms"]) == (65_536, 50)
    assert not {name for name in consumer_config(kafka_settings(fetch_wait_ms=0)) if "fetch.min" in name}


def test_each_partition_has_a_transactional_id_of_its_own_that_a_new_owner_takes_over() -> None:
    kafka = kafka_settings(group_id="g")
    ids = {transactional_config(kafka, "t", partition)["transactional.id"] for partition in (0, 1, 1)}
    assert ids == {"cockpithat.g.t.0", "cockpithat.g.t.1"}


def test_librdkafka_takes_every_option() -> None:
    """A misspelt or inconsistent option is refused at creation, without a broker."""
    kafka = kafka_settings(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_username="u",
        sasl_password="p",
        max_message_bytes=64 * 2**20,
    )
    Consumer(consumer_config(kafka)).close()
    Producer(producer_config(kafka))
    Producer(transactional_config(kafka, "t", 0))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_faust_gets_the_same_credentials(mechanism: str) -> None:
    kafka = kafka_settings(
        security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_username="u", sasl_password="p"
    )
    auth = credentials_to_aiokafka_auth(faust_credentials(kafka))
    assert auth["security_protocol"] == "SASL_SSL"
    assert auth["sasl_mechanism"] == mechanism == client_config(kafka)["sasl.mechanism"]
    assert auth["sasl_plain_password"] == "p"
    assert isinstance(auth["ssl_context"], ssl.SSLContext)


def test_faust_gets_tls_without_sasl() -> None:
    auth = credentials_to_aiokafka_auth(faust_credentials(kafka_settings(security_protocol="SSL")))
    assert auth["security_protocol"] == "SSL"
    assert auth["ssl_context"].verify_mode == ssl.CERT_REQUIRED


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("not a certificate", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"ssl_ca_location: no PEM certificate in .*ca\.pem"):
        ssl_context(kafka_settings(security_protocol="SSL", ssl_ca_location=broken))
    with pytest.raises(ConfigurationError, match="ssl_ca_location: no file"):
        ssl_context(kafka_settings(security_protocol="SSL", ssl_ca_location=tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match="ssl_key_location: cannot load"):
        ssl_context(
            kafka_settings(security_protocol="SSL", ssl_certificate_location=broken, ssl_key_location=broken)
        )


def test_an_unreachable_broker_is_one_clear_line() -> None:
    (port,) = free_ports(1)
    kafka = kafka_settings(bootstrap_servers=f"127.0.0.1:{port}")
    with pytest.raises(KafkaException) as error:
        AdminClient({**client_config(kafka), "log_level": 0}).list_topics(timeout=1)
    line = str(broker_error(kafka, error.value, "cannot list topics"))
    assert line.startswith(f"127.0.0.1:{port}: cannot list topics: ")
    assert "COCKPITHAT_KAFKA__BOOTSTRAP_SERVERS" in line
    assert "\n" not in line


def secured_settings(secured: Secured, **fields: Any) -> KafkaSettings:
    base = {
        "bootstrap_servers": secured.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": secured.username,
        "sasl_password": secured.password,
        "ssl_ca_location": secured.ca,
    }
    return kafka_settings(**base | fields)


@pytest.mark.kafka
def test_librdkafka_connects_with_tls_and_sasl(secured_kafka: Secured) -> None:
    admin = AdminClient(client_config(secured_settings(secured_kafka)))
    assert admin.list_topics(timeout=15).brokers


@pytest.mark.kafka
@pytest.mark.parametrize("wrong", [{"sasl_password": "wrong"}, {"ssl_ca_location": None}])
def test_a_wrong_password_or_an_unknown_authority_is_refused(
    secured_kafka: Secured, wrong: dict[str, Any]
) -> None:
    admin = AdminClient({**client_config(secured_settings(secured_kafka, **wrong)), "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


@pytest.mark.kafka
async def test_faust_credentials_connect_with_tls_and_sasl(secured_kafka: Secured) -> None:
    kafka = secured_settings(secured_kafka)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, **credentials_to_aiokafka_auth(faust_credentials(kafka))
    )
    await consumer.start()
    try:
        assert isinstance(await consumer.topics(), set)
    finally:
        await consumer.stop()


@pytest.mark.kafka
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_others_compress_is_read_by_faust_s_client(kafka: KafkaBroker, compression: str) -> None:
    topic = kafka.unique("compressed")
    kafka.create_topics(topic, partitions=1)
    settings = kafka_settings(bootstrap_servers=kafka.bootstrap_servers, compression=compression)
    producer = Producer(producer_config(settings))
    for _ in range(50):
        producer.produce(topic, b"the same text again and again " * 50, b"key")
    assert producer.flush(15) == 0
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=settings.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        message = await asyncio.wait_for(consumer.getone(), 15)
    finally:
        await consumer.stop()
    assert message.value == b"the same text again and again " * 50
