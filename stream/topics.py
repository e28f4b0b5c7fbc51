"""Create the topics that the product needs, and compare the ones that exist with what it needs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from stream.kafka_config import BrokerError, broker_error, client_config
from stream.settings import Settings

_HEADER_ROOM = 64 * 1024  # a dead letter is its record and the headers that say what failed
_TIMEOUT_S = 30.0


class Kind(StrEnum):
    """What a topic is for; decides its configuration and how strictly it is checked."""

    INPUT = "input"
    OPTIONAL_INPUT = "optional input"
    TRACES = "traces"
    OUTPUT = "output"
    DEAD_LETTERS = "dead letters"
    INTERNAL = "internal"


@dataclass(frozen=True)
class TopicSpec:
    """A topic as the product wants it."""

    name: str
    kind: Kind
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One difference between a topic and what is needed. ``fatal``: the worker must not start on it."""

    topic: str
    what: str
    wanted: str
    found: str
    fatal: bool
    hint: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.found}, wanted {self.wanted}; {self.hint}"


def wanted(settings: Settings) -> list[TopicSpec]:
    """Every topic of the product, dead-letter topics included.

    All have the same number of partitions: a session's outputs go into the partition its events came from.
    """
    names = settings.topics
    largest = settings.kafka.max_message_bytes

    def spec(
        name: str, kind: Kind, retention_ms: int | None, size: int = largest, **config: str
    ) -> TopicSpec:
        base = {"cleanup.policy": "delete", "max.message.bytes": str(size), "compression.type": "producer"}
        if retention_ms is not None:
            base["retention.ms"] = str(retention_ms)
        base.update({name.replace("_", "."): value for name, value in config.items()})
        return TopicSpec(name, kind, names.partitions, names.replication_factor, base)

    specs = []
    for topic in names.inputs:
        kind = Kind.OPTIONAL_INPUT if topic == names.can_frames else Kind.INPUT
        # The brokers' own time: with the senders', one wrong clock would decide about retention and order.
        specs.append(spec(topic, kind, names.input_retention_ms, message_timestamp_type="LogAppendTime"))
    specs.append(spec(names.traces, Kind.TRACES, names.input_retention_ms, compression_type="zstd"))
    specs += [spec(topic, Kind.OUTPUT, names.output_retention_ms) for topic in names.outputs]
    specs += [
        spec(names.dlq(topic), Kind.DEAD_LETTERS, names.dlq_retention_ms, largest + _HEADER_ROOM)
        for topic in names.dead_lettered
    ]
    specs.append(spec(names.crashes, Kind.INTERNAL, None, cleanup_policy="compact"))
    return specs


def create(settings: Settings, *, admin: AdminClient | None = None) -> dict[str, bool]:
    """Create the topics that do not exist. Maps each topic to whether it was created now.

    Topics that exist are left as they are: see :func:`check`. Raises :class:`BrokerError`.
    """
    admin = admin or AdminClient(client_config(settings.kafka))
    specs = wanted(settings)
    new = [
        NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            config=dict(spec.config),
        )
        for spec in specs
    ]
    created: dict[str, bool] = {}
    try:
        futures = admin.create_topics(new, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
        for name, future in futures.items():
            try:
                future.result(timeout=_TIMEOUT_S * 2)
                created[name] = True
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise broker_error(settings.kafka, error, f"cannot create topic {name}") from None
                created[name] = False
    except TimeoutError:
        raise BrokerError(f"{settings.kafka.bootstrap_servers}: no answer in {_TIMEOUT_S:.0f} s") from None
    _await_visible(settings, admin, specs)
    return created


def _await_visible(settings: Settings, admin: AdminClient, specs: list[TopicSpec]) -> None:
    """The controller answers before the brokers know of the topics; what starts next wants to see them."""
    deadline = time.monotonic() + _TIMEOUT_S
    while unseen := {spec.name for spec in specs} - set(_partitions(settings, admin)):
        if time.monotonic() > deadline:
            raise BrokerError(
                f"{settings.kafka.bootstrap_servers}: {len(unseen)} topics created but not visible after "
                f"{_TIMEOUT_S:.0f} s; run `cockpithat topics check` later"
            )
        time.sleep(0.05)


def check(settings: Settings, *, admin: AdminClient | None = None) -> list[Finding]:
    """What differs from :func:`wanted`, fatal differences first. Raises :class:`BrokerError`.

    Fatal is what would lose or misattribute data: a topic that is missing, inputs that are not
    co-partitioned, an input that is compacted or whose retention is shorter than twice the longest hold.
    """
    admin = admin or AdminClient(client_config(settings.kafka))
    specs = wanted(settings)
    partitions = _partitions(settings, admin)
    existing = [spec for spec in specs if spec.name in partitions]
    configs = _configs(settings, admin, [spec.name for spec in existing])

    findings = [_missing(spec) for spec in specs if spec.name not in partitions]
    findings += _partition_findings(settings, existing, partitions)
    for spec in existing:
        findings += _config_findings(settings, spec, configs[spec.name])
    return sorted(findings, key=lambda finding: not finding.fatal)


def refusal(settings: Settings, *, admin: AdminClient | None = None) -> str | None:
    """Why a worker must not start on the existing topics, one line; ``None`` if nothing speaks against it.

    Topics that are missing are no reason: they may come. Raises :class:`BrokerError`.
    """
    fatal = [
        finding for finding in check(settings, admin=admin) if finding.fatal and finding.found != "missing"
    ]
    return str(fatal[0]) if fatal else None


def least_retention_ms(settings: Settings, kind: Kind) -> int | None:
    """Retention below which a held record could be deleted before it is read again; twice the hold."""
    if kind in {Kind.INPUT, Kind.OPTIONAL_INPUT}:
        return 2 * settings.longest_hold_ms
    if kind == Kind.TRACES:
        worker = settings.worker
        held_s = worker.panel_deadline_s if worker.analysts == "llm" else 0.0
        return 2 * int(max(worker.attribution_deadline_s, held_s) * 1000)
    return None


def _missing(spec: TopicSpec) -> Finding:
    return Finding(
        spec.name,
        "the topic",
        spec.kind.value,
        "missing",
        fatal=spec.kind != Kind.OPTIONAL_INPUT,
        hint="run `cockpithat topics create`",
    )


def _partition_findings(
    settings: Settings, existing: list[TopicSpec], partitions: Mapping[str, int]
) -> list[Finding]:
    findings = []
    reference = settings.topics.session_events
    count = partitions.get(reference, settings.topics.partitions)
    for spec in existing:
        found = partitions[spec.name]
        if spec.kind in {Kind.INPUT, Kind.OPTIONAL_INPUT, Kind.TRACES} and found != count:
            hint = f"all inputs and traces need as many partitions as {reference}; recreate the topic"
            findings.append(Finding(spec.name, "partitions", str(count), str(found), True, hint))
        elif spec.kind in {Kind.OUTPUT, Kind.DEAD_LETTERS, Kind.INTERNAL} and found < count:
            hint = f"what came from several partitions shares one; add partitions to {spec.name}"
            findings.append(Finding(spec.name, "partitions", f"at least {count}", str(found), False, hint))
    return findings


def _config_findings(settings: Settings, spec: TopicSpec, found: Mapping[str, str]) -> list[Finding]:
    findings = []

    def differ(name: str, wanted: str, *, fatal: bool, why: str) -> None:
        change = (
            f"{why}; set it with kafka-configs.sh --alter" if why else "set it with kafka-configs.sh --alter"
        )
        findings.append(Finding(spec.name, name, wanted, found.get(name, "unknown"), fatal, change))

    least = least_retention_ms(settings, spec.kind)
    for name, value in spec.config.items():
        actual = found.get(name, "unknown")
        if name == "retention.ms":
            kept = _integer(actual)
            if least is not None and kept is not None and 0 <= kept < least:
                why = "shorter than twice the longest hold: held records would be deleted unread"
                differ(name, f"at least {least}", fatal=True, why=why)
            elif actual != value:
                differ(name, value, fatal=False, why="")
        elif name == "max.message.bytes":
            size = _integer(actual)
            if size is not None and size < int(value):
                differ(name, f"at least {value}", fatal=False, why="larger records are refused")
        elif name == "cleanup.policy" and actual != value:
            compacted = "compact" in actual and least is not None
            why = "compaction deletes all but a vehicle's latest record" if compacted else ""
            differ(name, value, fatal=compacted, why=why)
        elif actual != value:
            differ(name, value, fatal=False, why="")
    kept_bytes = _integer(found.get("retention.bytes", "-1"))
    if least is not None and kept_bytes is not None and kept_bytes >= 0:
        differ("retention.bytes", "-1", fatal=False, why="a burst can delete held records unread")
    return findings


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _partitions(settings: Settings, admin: AdminClient) -> dict[str, int]:
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise broker_error(settings.kafka, error, "cannot list topics") from None
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}


def _configs(settings: Settings, admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs: dict[str, dict[str, str]] = {}
    try:
        for resource, future in admin.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            entries: Mapping[str, Any] = future.result(timeout=_TIMEOUT_S * 2)
            configs[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
    except KafkaException as error:
        raise broker_error(settings.kafka, error, "cannot read the topics' configuration") from None
    except TimeoutError:
        raise BrokerError(f"{settings.kafka.bootstrap_servers}: no answer in {_TIMEOUT_S:.0f} s") from None
    return configs
