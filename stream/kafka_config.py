"""The one place that turns settings into client configuration, for librdkafka and for Faust."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from stream.settings import ConfigurationError, KafkaSettings

if TYPE_CHECKING:
    from faust.types.auth import CredentialsT

# What librdkafka has to say goes to the ordinary logs; stream.logs knows that it carries no payload.
LIBRDKAFKA_LOGGER = "librdkafka"

# The partitioner of the Java clients, and so of Faust: with librdkafka's own default (CRC32) the same
# vehicle's events and snapshots would lie in different partitions.
PARTITIONER = "murmur2_random"
FETCH_MIN_BYTES = 64 * 1024


# Brokers that are away come back, and so does a leader; librdkafka calls these not retriable all the same.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,  # of a topic that was not seen before they went
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)


class BrokerError(Exception):
    """Something asked of the brokers failed. The message is one line: where, what, and what to do."""


def passes(error: KafkaError) -> bool:
    """Whether asking again may help: the brokers are away, or not ready yet."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING)


def broker_error(kafka: KafkaSettings, error: KafkaException, doing: str) -> BrokerError:
    """One line for a librdkafka error, with the setting to look at."""
    cause: KafkaError = error.args[0]
    name = cause.name()
    hint = ""
    if name in {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"}:
        hint = "; check COCKPITHAT_KAFKA__BOOTSTRAP_SERVERS and COCKPITHAT_KAFKA__SECURITY_PROTOCOL"
    elif name in {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"}:
        hint = "; check the SASL and SSL settings of the section kafka"
    elif "AUTHORIZATION" in name:
        hint = "; give this user the right"
    return BrokerError(f"{kafka.bootstrap_servers}: {doing}: {cause.str() or name}{hint}")


def client_config(kafka: KafkaSettings) -> dict[str, Any]:
    """What every librdkafka client needs to connect, also ``AdminClient``.

    Raises :class:`ConfigurationError` when the password file cannot be read.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": kafka.client_id,
        "security.protocol": kafka.security_protocol,
        "socket.timeout.ms": kafka.request_timeout_ms,
        "logger": logging.getLogger(LIBRDKAFKA_LOGGER),
    }
    if kafka.security_protocol.startswith("SASL"):
        config["sasl.mechanism"] = kafka.sasl_mechanism
        config["sasl.username"] = kafka.sasl_username
        config["sasl.password"] = kafka.password()
    if kafka.uses_tls:
        if kafka.ssl_ca_location is not None:
            config["ssl.ca.location"] = str(kafka.ssl_ca_location)
        if kafka.ssl_certificate_location is not None:
            config["ssl.certificate.location"] = str(kafka.ssl_certificate_location)
            config["ssl.key.location"] = str(kafka.ssl_key_location)
            if kafka.ssl_key_password is not None:
                config["ssl.key.password"] = kafka.ssl_key_password.get_secret_value()
        config["ssl.endpoint.identification.algorithm"] = "https" if kafka.ssl_check_hostname else "none"
    return config


def consumer_config(kafka: KafkaSettings, *, group_id: str | None = None) -> dict[str, Any]:
    """A consumer that commits nothing by itself and sees only what transactions committed."""
    return {
        **client_config(kafka),
        "group.id": group_id or kafka.group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": kafka.session_timeout_ms,
        "heartbeat.interval.ms": kafka.heartbeat_interval_ms,
        "max.poll.interval.ms": kafka.max_poll_interval_ms,
        **fetch_config(kafka),
        "max.partition.fetch.bytes": kafka.max_message_bytes,
        "fetch.max.bytes": max(kafka.max_message_bytes, 50 * 1024 * 1024),
        # librdkafka wants some room over the largest fetch.
        "receive.message.max.bytes": max(kafka.max_message_bytes, 50 * 1024 * 1024) + 1024 * 1024,
    }


def fetch_config(kafka: KafkaSettings) -> dict[str, Any]:
    """When a fetch is answered: at enough bytes, or after the wait."""
    if not kafka.fetch_wait_ms:
        return {}
    return {"fetch.min.bytes": FETCH_MIN_BYTES, "fetch.wait.max.ms": kafka.fetch_wait_ms}


def producer_config(kafka: KafkaSettings) -> dict[str, Any]:
    """An idempotent producer that waits for all in-sync replicas."""
    return {
        **client_config(kafka),
        "partitioner": PARTITIONER,
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": kafka.compression,
        "linger.ms": kafka.linger_ms,
        "message.max.bytes": kafka.max_message_bytes,
        "delivery.timeout.ms": kafka.delivery_timeout_ms,
    }


def transactional_config(kafka: KafkaSettings, topic: str, partition: int) -> dict[str, Any]:
    """The producer of one input partition: a new owner of the partition fences the old one's."""
    return {
        **producer_config(kafka),
        "transactional.id": f"{kafka.transactional_id_prefix}.{kafka.group_id}.{topic}.{partition}",
        "transaction.timeout.ms": kafka.transaction_timeout_ms,
    }


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext | None:
    """The TLS context for clients that are not librdkafka, or ``None`` without TLS.

    Raises :class:`ConfigurationError` naming the certificate file that cannot be used.
    """
    if not kafka.uses_tls:
        return None
    if kafka.ssl_ca_location is not None and not kafka.ssl_ca_location.is_file():
        raise ConfigurationError(f"kafka.ssl_ca_location: no file {kafka.ssl_ca_location}; check the path")
    try:
        context = ssl.create_default_context(
            cafile=str(kafka.ssl_ca_location) if kafka.ssl_ca_location else None
        )
    except ssl.SSLError:
        raise ConfigurationError(
            f"kafka.ssl_ca_location: no PEM certificate in {kafka.ssl_ca_location}"
        ) from None
    context.check_hostname = kafka.ssl_check_hostname
    if kafka.ssl_certificate_location is not None:
        password = kafka.ssl_key_password.get_secret_value() if kafka.ssl_key_password else None
        try:
            # A function, since OpenSSL would ask on the terminal for a password that is missing.
            context.load_cert_chain(
                str(kafka.ssl_certificate_location), str(kafka.ssl_key_location), lambda: password or ""
            )
        except OSError as error:  # ssl.SSLError among them
            raise ConfigurationError(
                f"kafka.ssl_certificate_location, kafka.ssl_key_location: cannot load "
                f"{kafka.ssl_certificate_location} with {kafka.ssl_key_location}: "
                f"{error.strerror or 'not a matching PEM pair'}"
            ) from None
    return context


def faust_credentials(kafka: KafkaSettings) -> CredentialsT | None:
    """Faust's ``broker_credentials``, or ``None`` for a plain connection."""
    from faust.auth import SASLCredentials, SSLCredentials

    context = ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        return SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.password(),
            ssl_context=context,
            mechanism=kafka.sasl_mechanism,
        )
    return SSLCredentials(context) if context is not None else None


def faust_broker(kafka: KafkaSettings) -> list[str]:
    """Faust's ``broker``: one URL a server."""
    servers = (server.strip() for server in kafka.bootstrap_servers.split(","))
    return [f"aiokafka://{server}" for server in servers if server]
