"""Every setting of the worker, described once.

Sources, strongest first: arguments of :func:`load_settings` (command-line options), environment variables
``COCKPITHAT_SECTION__FIELD``, the YAML or TOML file that ``COCKPITHAT_CONFIG`` names, the defaults below.
``python -m stream.settings`` prints the table for ``docs/configuration.md``.
"""

from __future__ import annotations

import os
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.settings import SnapshotSettings

ENV_PREFIX = "COCKPITHAT_"
CONFIG_VARIABLE = "COCKPITHAT_CONFIG"

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_MIB = 1024 * 1024


class ConfigurationError(Exception):
    """The settings cannot be used. The message is one line: which setting, what is wrong, what to do."""


def _split(value: Any) -> Any:
    """Lists from the environment: ``a,b`` as people write it, or a JSON list."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        return yaml.safe_load(text)  # JSON is YAML; a syntax error is reported by pydantic as a wrong type
    return [part.strip() for part in text.split(",") if part.strip()]


StringList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class KafkaSettings(_Section):
    """Connection to the brokers and the consumer group."""

    bootstrap_servers: str = Field("localhost:9092", min_length=1, description="Brokers, comma-separated.")
    client_id: str = Field("cockpithat", description="Shown in the brokers' logs and quotas.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to connect. SASL_PLAINTEXT sends credentials unencrypted."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, used with the SASL protocols."
    )
    sasl_username: str | None = Field(None, description="SASL user.")
    sasl_password: SecretStr | None = Field(None, description="SASL password. Never logged.")
    sasl_password_file: Path | None = Field(
        None, description="File that holds the SASL password, such as a mounted secret."
    )
    ssl_ca_location: Path | None = Field(None, description="CA bundle (PEM). Default: the system's.")
    ssl_certificate_location: Path | None = Field(None, description="Client certificate (PEM), for mTLS.")
    ssl_key_location: Path | None = Field(None, description="Client key (PEM), for mTLS.")
    ssl_key_password: SecretStr | None = Field(None, description="Password of the client key. Never logged.")
    ssl_check_hostname: bool = Field(True, description="Check that the certificate names the broker.")
    group_id: str = Field("cockpithat", min_length=1, description="Consumer group of the workers.")
    group_instance_id: str | None = Field(
        None, description="Static membership: a stable name per worker, so that a restart moves no partition."
    )
    session_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        le=300_000,
        description="A killed worker's partitions stay silent this long. Must lie in the brokers' bounds.",
    )
    heartbeat_interval_ms: int = Field(3_000, ge=100, description="At most a third of the session timeout.")
    max_poll_interval_ms: int = Field(
        300_000, ge=10_000, description="A worker that does not poll for this long loses its partitions."
    )
    request_timeout_ms: int = Field(30_000, ge=1_000, description="How long one request may take.")
    delivery_timeout_ms: int = Field(
        60_000,
        ge=2_000,
        description="A record not delivered by then counts as failed; the worker then stops.",
    )
    transaction_timeout_ms: int = Field(
        60_000, ge=5_000, description="Brokers abort a transaction that is open longer."
    )
    transactional_id_prefix: str = Field(
        "cockpithat", min_length=1, description="Start of the transactional ids, one a partition."
    )
    check_crcs: bool = Field(
        True,
        description="Check checksums of what is read. The embedded broker's transaction markers have none.",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "zstd", description="Compression of what the worker writes."
    )
    linger_ms: int = Field(5, ge=0, description="How long the producer waits to fill a batch.")
    fetch_wait_ms: int = Field(
        50,
        ge=0,
        le=500,
        description="How long a broker may gather records before it answers a fetch, unless 64 KiB are "
        "there (0: not at all). Many small answers cost more than the records in them.",
    )
    max_message_bytes: int = Field(
        8 * _MIB, ge=64 * 1024, description="Largest record to write or read. A longer trace is cut."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.security_protocol.startswith("SASL"):
            if not self.sasl_username:
                raise ValueError(f"security_protocol {self.security_protocol} needs sasl_username")
            if self.sasl_password is None and self.sasl_password_file is None:
                raise ValueError(
                    f"security_protocol {self.security_protocol} needs sasl_password or sasl_password_file"
                )
        if self.sasl_password is not None and self.sasl_password_file is not None:
            raise ValueError("set sasl_password or sasl_password_file, not both")
        if (self.ssl_certificate_location is None) != (self.ssl_key_location is None):
            raise ValueError("ssl_certificate_location and ssl_key_location go together")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be at most a third of session_timeout_ms")
        if self.delivery_timeout_ms > self.transaction_timeout_ms:
            raise ValueError("delivery_timeout_ms must not exceed transaction_timeout_ms")
        return self

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol in {"SSL", "SASL_SSL"}

    def password(self) -> str | None:
        """The SASL password, from the setting or its file. Raises :class:`ConfigurationError`."""
        if self.sasl_password is not None:
            return self.sasl_password.get_secret_value()
        if self.sasl_password_file is None:
            return None
        try:
            return self.sasl_password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"kafka.sasl_password_file: cannot read {self.sasl_password_file}: "
                f"{_reason(error)}; check the path and its permissions"
            ) from None


class SchemaRegistrySettings(_Section):
    """A Confluent-compatible schema registry; without one, records are plain JSON. Inputs may be either."""

    url: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="Address. With it the worker writes the registry's frame (zero byte, schema id) before "
        "the JSON of everything but dead letters.",
    )
    auto_register: bool = Field(
        False,
        description="The worker registers schemas that are missing. Otherwise `topics create` does, or you.",
    )
    username: str | None = Field(None, description="User, for basic authentication.")
    password: SecretStr | None = Field(None, description="Password. Never logged.")
    ca_location: Path | None = Field(None, description="CA bundle (PEM). Default: the system's.")
    timeout_s: float = Field(10.0, gt=0, le=300, description="How long one request may take.")
    attempts: int = Field(5, ge=1, le=100, description="Tries of a request that gets no answer.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        if self.url is not None and "@" in self.url.split("//", 1)[1].split("/", 1)[0]:
            raise ValueError("url holds credentials; set username and password instead")
        return self

    @property
    def shown(self) -> str:
        """The address as it may be logged."""
        return (self.url or "").split("?", 1)[0]

    def credentials(self) -> tuple[str, str] | None:
        """User and password, if set."""
        if self.username is None or self.password is None:
            return None
        return self.username, self.password.get_secret_value()

    def tls(self) -> ssl.SSLContext | bool:
        """What to check a certificate against. Raises :class:`ConfigurationError`."""
        if self.ca_location is None:
            return True
        try:
            return ssl.create_default_context(cafile=str(self.ca_location))
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"schema_registry.ca_location: cannot read {self.ca_location}: {error}; give a PEM bundle"
            ) from None


TopicName = Annotated[str, Field(min_length=1, max_length=245, pattern=r"^[A-Za-z0-9._-]+$")]


class TopicSettings(_Section):
    """Names of the topics, and what ``topics create`` gives them."""

    session_events: TopicName = Field(
        "cockpit.session.events.v1", description="In: session events, keyed by vehicle."
    )
    vehicle_snapshots: TopicName = Field(
        "cockpit.vehicle.snapshots.v1", description="In: vehicle snapshots, keyed by vehicle."
    )
    can_frames: TopicName = Field(
        "cockpit.can.frames.v1", description="In: raw CAN frames, keyed by vehicle; optional."
    )
    traces: TopicName = Field(
        "cockpit.traces.v1", description="Between the roles: finished traces, keyed by vehicle."
    )
    reports: TopicName = Field("cockpit.attribution.reports.v1", description="Out: attribution reports.")
    alerts: TopicName = Field("cockpit.attribution.alerts.v1", description="Out: alerts, ASIL C and D only.")
    reviews: TopicName = Field(
        "cockpit.attribution.reviews.v1", description="Out: requests that a person looks at a report."
    )
    metrics: TopicName = Field(
        "cockpit.attribution.metrics.v1", description="Out: metrics records of the attribution."
    )
    suspicions: TopicName = Field(
        "cockpit.suspicions.v1", description="Out: silent hazards in sessions that passed; never an alert."
    )
    sessions: TopicName = Field(
        "cockpit.sessions.v1", description="Out: one summary a session, passed or failed, written last."
    )
    crashes: TopicName = Field(
        "cockpit.internal.crashes.v1",
        description="Internal, compacted: how often a record ended the process.",
    )
    dlq_suffix: str = Field(
        ".dlq",
        pattern=r"^[A-Za-z0-9._-]{1,16}$",
        description="Name of an input's dead-letter topic: input + this.",
    )
    partitions: int = Field(
        12,
        ge=1,
        le=10_000,
        description="Partitions of inputs and traces, which must agree (`topics create`).",
    )
    replication_factor: int = Field(
        -1, ge=-1, le=16, description="Copies of each partition; -1 takes the brokers' default."
    )
    input_retention_ms: int = Field(
        7 * _DAY_MS, ge=_MINUTE_MS, description="Retention of inputs; at least twice the longest hold."
    )
    output_retention_ms: int = Field(30 * _DAY_MS, ge=_MINUTE_MS, description="Retention of outputs.")
    dlq_retention_ms: int = Field(
        30 * _DAY_MS, ge=_MINUTE_MS, description="Retention of dead letters: the time to redrive them."
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = list(self.names().values())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two topics share the name {twice[0]!r}")
        if self.replication_factor == 0:
            raise ValueError("replication_factor must be -1 or at least 1")
        return self

    def names(self) -> dict[str, str]:
        """Topic by role of the topic (``session_events`` ...), without dead-letter topics."""
        roles = (*INPUT_ROLES, "traces", *OUTPUT_ROLES, "crashes")
        return {role: getattr(self, role) for role in roles}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Topics that others write. Each has a dead-letter topic."""
        return tuple(getattr(self, role) for role in INPUT_ROLES)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Topics that the product writes for others."""
        return tuple(getattr(self, role) for role in OUTPUT_ROLES)

    @property
    def dead_lettered(self) -> tuple[str, ...]:
        """Topics that the worker reads, each with a dead-letter topic: the inputs and the traces."""
        return (*self.inputs, self.traces)

    def dlq(self, topic: str) -> str:
        """The dead-letter topic of ``topic``."""
        return topic + self.dlq_suffix


INPUT_ROLES = ("session_events", "vehicle_snapshots", "can_frames")
OUTPUT_ROLES = ("reports", "alerts", "reviews", "metrics", "suspicions", "sessions")


class WorkerSettings(_Section):
    """What a worker does and how it is bounded."""

    roles: StringList = Field(
        ("assemble", "attribute"),
        min_length=1,
        description="Roles that this worker takes, comma-separated: assemble (events and snapshots to "
        "traces), attribute (traces to reports), decode (CAN frames to snapshots, docs/can.md).",
    )
    pool_size: int = Field(4, ge=1, le=1_024, description="Sessions attributed at the same time.")
    queue_size: int = Field(
        64, ge=1, le=100_000, description="Sessions waiting for the pool; when full, partitions are paused."
    )
    attribution_deadline_s: float = Field(
        300.0, gt=0, description="Deadline from taking a trace to its local report; then it is put aside."
    )
    method: str = Field(
        "cockpithat",
        min_length=1,
        description="Method that judges failed sessions, with `analysts` one of docs/methods/README.md.",
    )
    method_options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the method, as its page names them; in the environment as JSON.",
    )
    analysts: Literal["local", "llm"] = Field(
        "local",
        description="`llm`: the method's verdict follows the local report as a revision; needs "
        "`attribution.panel`.",
    )
    panel_size: int = Field(4, ge=1, le=1_024, description="Panels of `llm` analysts in flight.")
    panel_backlog: int = Field(
        1_000, ge=0, description="Sessions that wait for a panel; beyond it the oldest local report stands."
    )
    panel_backlog_bytes: int = Field(64 * _MIB, ge=0, description="Bytes of the traces that wait.")
    panel_deadline_s: float = Field(
        2 * 3600.0,
        gt=0,
        description="From a trace to its last revision, outages of the endpoint included: then the local "
        "report stands. Offsets of traces are held this long.",
    )
    panel_max_tokens: int = Field(
        150_000, ge=1, description="A session whose failed panels took more tokens is not tried again."
    )
    stop_timeout_s: float = Field(
        25.0,
        gt=0,
        le=600,
        description="A stop takes at most this long, in seconds; work in flight is cancelled.",
    )
    page_max_age_ms: int = Field(
        15 * _MINUTE_MS, ge=0, description="A session that ended longer ago never pages (backfill, redrive)."
    )
    tick_interval_ms: int = Field(
        250, ge=10, le=60_000, description="How often the wall clock is looked at, for silence and waits."
    )
    metrics_interval_s: float = Field(
        60.0, ge=0, description="How often a record of all metrics is written to topics.metrics; 0: never."
    )
    suspicions_per_hour: int = Field(
        200,
        ge=0,
        le=1_000_000,
        description="Suspicions of one input partition that may pass in a row, and that come back evenly "
        "within an hour of Kafka timestamps, 0: no limit. "
        "Those beyond are counted and named in the session's summary, without a record of their own.",
    )
    transaction_interval_ms: int = Field(
        100,
        ge=0,
        le=10_000,
        description="Least time between two transactions of one input partition; what is done meanwhile "
        "shares the next one. More saves the brokers work, and delays alerts under load by at most as much.",
    )
    commit_interval_ms: int = Field(1_000, ge=50, description="How often offsets are committed.")
    crash_limit: int = Field(
        3, ge=1, description="A record that ended the process this often is dead-lettered as `crashed`."
    )
    dlq_window: int = Field(
        1_000, ge=1, description="Number of latest records over which the dead-letter ratio is taken."
    )
    dlq_max_ratio: float = Field(
        0.5, gt=0, le=1, description="Intake stops when a larger share of the window was dead-lettered."
    )
    dlq_max_run: int = Field(
        500, ge=1, description="Intake stops after this many dead letters with no good record between them."
    )


class CanSettings(_Section):
    """How the role ``decode`` reads CAN frames; not used by the other roles."""

    dbc: Path | None = Field(None, description="DBC file that describes the frames (docs/can.md).")
    mapping: Path | None = Field(
        None, description="VSS tree in KUKSA's syntax: `dbc2vss` names the signal that feeds each leaf."
    )
    vss_version: str = Field("4.0", description="VSS version whose paths the mapping uses.")


class HealthSettings(_Section):
    """The HTTP server for probes and metrics."""

    enabled: bool = Field(True, description="Serve /metrics, /healthz and /readyz.")
    host: str = Field("127.0.0.1", description="Address to listen on. In a container: 0.0.0.0.")
    port: int = Field(8484, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    stalled_after_s: float = Field(
        60.0, gt=0, description="/healthz fails when there is lag and no progress for this long, in seconds."
    )


class LogSettings(_Section):
    """Logs on standard error: one line an event, never payload."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level to log.")
    format: Literal["json", "text"] = Field("json", description="json for machines, text for a terminal.")


class Settings(BaseSettings):
    """All settings of the worker. Build with :func:`load_settings`, which reads every source."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid", validate_default=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description=KafkaSettings.__doc__)
    topics: TopicSettings = Field(default_factory=TopicSettings, description=TopicSettings.__doc__)
    schema_registry: SchemaRegistrySettings = Field(
        default_factory=SchemaRegistrySettings, description=SchemaRegistrySettings.__doc__
    )
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description=WorkerSettings.__doc__)
    can: CanSettings = Field(default_factory=CanSettings, description=CanSettings.__doc__)
    engine: EngineSettings = Field(default_factory=EngineSettings, description=EngineSettings.__doc__)
    snapshots: SnapshotSettings = Field(
        default_factory=SnapshotSettings, description=SnapshotSettings.__doc__
    )
    graph: GraphSettings = Field(default_factory=GraphSettings, description=GraphSettings.__doc__)
    attribution: AttributionSettings = Field(
        default_factory=AttributionSettings, description=AttributionSettings.__doc__
    )
    health: HealthSettings = Field(default_factory=HealthSettings, description=HealthSettings.__doc__)
    logs: LogSettings = Field(default_factory=LogSettings, description=LogSettings.__doc__)

    @model_validator(mode="after")
    def _panel_has_an_endpoint(self) -> Self:
        if self.worker.analysts == "llm" and self.attribution.panel is None:
            raise ValueError(
                "worker.analysts is llm, but no endpoint is set; set attribution.panel.llm.analyst.base_url "
                "and .model (docs/cockpithat.md), or worker.analysts to local"
            )
        least = int(2_000 * self.worker.panel_deadline_s)
        if self.worker.analysts == "llm" and self.topics.input_retention_ms < least:
            raise ValueError(
                f"topics.input_retention_ms is {self.topics.input_retention_ms}: traces that wait for a "
                f"panel could be deleted; set it to {least} or more, or lower worker.panel_deadline_s"
            )
        return self

    @model_validator(mode="after")
    def _kept_long_enough(self) -> Self:
        least = 2 * self.longest_hold_ms
        if self.topics.input_retention_ms < least:
            raise ValueError(
                f"topics.input_retention_ms is {self.topics.input_retention_ms}: shorter than twice the "
                f"longest hold, events could be deleted while they are needed; set it to {least} or more, "
                "or lower engine.max_age_ms"
            )
        return self

    @property
    def longest_hold_ms(self) -> int:
        """Longest time an input's offset is held: a session's greatest age and all waits after it."""
        engine = self.engine
        waits = 2 * engine.silence_ms + engine.grace_ms + engine.end_wait_ms + engine.snapshot_wait_ms
        return engine.max_age_ms + waits

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, then the file. No ``.env`` is read: it would depend on the folder."""
        path = os.environ.get(CONFIG_VARIABLE)
        content = _read_file(Path(path)) if path else {}
        return init_settings, env_settings, InitSettingsSource(settings_cls, content)


def load_settings(**overrides: Any) -> Settings:
    """Settings from all sources; ``overrides`` are nested dictionaries such as ``kafka={"group_id": "x"}``.

    Raises :class:`ConfigurationError` for a wrong value, an unknown name or an unreadable file.
    """
    _refuse_unknown_variables(os.environ)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_explain(error))) from None
    except SettingsError as error:
        # pydantic-settings says which field could not be decoded, and nothing of its value.
        raise ConfigurationError(f"{error}; for this setting write JSON") from None


def _explain(error: ValidationError) -> Iterator[str]:
    """One clause a mistake. The input is left out: it may be a password."""
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        place = ".".join(str(part) for part in item["loc"]) or "settings"
        if item["type"] == "extra_forbidden":
            yield f"{place}: no such setting; see docs/configuration.md"
        else:
            message = item["msg"].removeprefix("Value error, ")
            variable = f" ({variable_name(item['loc'])})" if item["loc"] else ""
            yield f"{place}: {message}{variable}"


def variable_name(place: tuple[int | str, ...]) -> str:
    """Environment variable of a setting: ``("kafka", "group_id")`` is ``COCKPITHAT_KAFKA__GROUP_ID``."""
    return ENV_PREFIX + "__".join(str(part).upper() for part in place)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{CONFIG_VARIABLE}: cannot read {path}: {_reason(error)}; give a readable YAML or TOML file"
        ) from None
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else _reason(error)
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        raise ConfigurationError(f"{path}: not {kind}: {where}; correct the file") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"{path}: expected sections such as `kafka:`, found a {type(content).__name__}"
        )
    return content


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error).splitlines()[0]


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """A misspelt variable would otherwise be ignored without a word."""
    known = {variable_name(place) for place, _ in fields()}
    prefixes = tuple(variable_name(place) + "__" for place, field in fields() if _takes_keys(field))
    sections = {variable_name((name,)) for name in Settings.model_fields}
    for name in sorted(environment):
        upper = name.upper()
        if not upper.startswith(ENV_PREFIX) or upper == CONFIG_VARIABLE or upper in known | sections:
            continue
        if not upper.startswith(prefixes):
            raise ConfigurationError(f"{name}: no such setting; see docs/configuration.md, or unset it")


def _takes_keys(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict or field.annotation is dict


def fields(
    model: type[BaseModel] = Settings, place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every leaf setting with its place, in the order of the classes."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, (*place, name))
        else:
            yield (*place, name), field


def reference() -> str:
    """Markdown of ``docs/configuration.md``: a table a section, from the descriptions above."""
    lines = [
        "# Configuration",
        "",
        "Generated by `python -m stream.settings > docs/configuration.md`; a test keeps it in step.",
        "",
        "A setting is taken from the command line, else from its environment variable, else from the file",
        f"that `{CONFIG_VARIABLE}` names (YAML, or TOML if it ends in `.toml`), else from the default. In",
        "the file, `kafka.group_id` is `group_id` in the section `kafka`. An unknown name is an error.",
        "",
    ]
    section = ""
    for place, field in fields():
        if place[0] != section:
            section = place[0]
            lines += ["", f"## {section}", "", _cell(Settings.model_fields[section].description or "")]
            lines += [
                "",
                "| setting | environment variable | default | meaning |",
                "| --- | --- | --- | --- |",
            ]
        cells = (
            f"`{'.'.join(place)}`",
            f"`{variable_name(place)}`",
            _default(field),
            _sentence(field.description or ""),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(line.rstrip() for line in lines).replace("\n\n\n", "\n\n") + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _sentence(text: str) -> str:
    text = _cell(text).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    return f"`{_cell(_plain(value))}`" if _plain(value) else "empty"


def _plain(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{_plain(key)}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, (tuple, list, set, frozenset)):
        return ",".join(_plain(item) for item in value)
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return str(value)


if __name__ == "__main__":
    print(reference(), end="")
