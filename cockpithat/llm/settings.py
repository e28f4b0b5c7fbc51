"""Endpoint, model and bounds for each role that calls a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

RESERVED_BODY_FIELDS = frozenset(
    {"model", "messages", "response_format", "stream", "temperature", "top_p", "n"}
)


class Role(StrEnum):
    """Who calls. The paper uses a large model for the analysts and a light one for the other two."""

    ANALYST = "analyst"
    SCANNER = "scanner"
    LINKER = "linker"


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class OutputMode(StrEnum):
    """How JSON is asked for. ``auto`` starts with a schema and steps down when the endpoint refuses it."""

    AUTO = "auto"
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    TEXT = "text"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoleSettings(_Frozen):
    """One role's endpoint. Decoding is deterministic as in the paper: temperature 0, top-p 1."""

    base_url: str = Field(description="Base of the API, such as https://host/v1; /chat/completions is added")
    model: str = Field(min_length=1, description="Model name as the endpoint knows it")
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the environment variable that holds the key; none for endpoints without one",
    )
    api_key_header: str = Field(
        default="Authorization", pattern=r"^[A-Za-z0-9-]+$", description="Header of the key"
    )
    api_key_prefix: str = Field(default="Bearer ", description="What stands before the key in the header")
    temperature: float = Field(default=0.0, ge=0.0, le=2.0, description="Paper: 0")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="Paper: 1")
    max_output_tokens: int = Field(default=1_024, ge=64, description="Longest answer of one call, tokens")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="Name the endpoint gives the answer's bound"
    )
    output: OutputMode = Field(default=OutputMode.AUTO, description="How JSON output is asked for")
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="Further request fields of the endpoint's own, such as reasoning_effort",
    )
    input_price: float = Field(default=0.0, ge=0.0, description="Price of a million input tokens")
    output_price: float = Field(default=0.0, ge=0.0, description="Price of a million output tokens")
    hourly_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Input and output tokens this role may use in any hour; none: unbounded",
    )

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        """Credentials in a URL would end in logs; they belong in the environment."""
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must be an http or https URL with a host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "base_url must hold no credentials, query or fragment; name the key by api_key_env"
            )
        return value.rstrip("/")

    @field_validator("extra_body")
    @classmethod
    def _own_fields_only(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := RESERVED_BODY_FIELDS & value.keys():
            raise ValueError(f"extra_body may not set {', '.join(sorted(taken))}")
        return value


class RetrySettings(_Frozen):
    """Full jitter: a wait is drawn between 0 and ``base * 2**attempt``, at most ``cap``; seconds."""

    attempts: int = Field(default=4, ge=1, description="Tries of one call, the first included")
    base_seconds: float = Field(default=0.5, gt=0.0, description="Upper end of the first wait")
    cap_seconds: float = Field(
        default=20.0, gt=0.0, description="Upper end of any wait the endpoint did not ask for"
    )


class BreakerSettings(_Frozen):
    """When an endpoint is left alone."""

    failures: int = Field(default=5, ge=1, description="Failures in a row that open the circuit")
    reset_seconds: float = Field(default=30.0, gt=0.0, description="Time until one call may try again")


class CacheSettings(_Frozen):
    """Answers kept by content: the same request is paid for once."""

    enabled: bool = Field(default=True, description="Keep answers at all")
    memory_bytes: int = Field(default=32 * 2**20, ge=0, description="Bound of the answers held in memory")
    directory: Path | None = Field(default=None, description="Folder for answers that outlive the process")
    directory_bytes: int = Field(
        default=512 * 2**20, ge=0, description="Bound of that folder; the oldest go first"
    )


class LlmSettings(_Frozen):
    """All roles and the bounds they share. A role that is not set is done without a model."""

    analyst: RoleSettings = Field(description="The panel's analysts")
    scanner: RoleSettings | None = Field(
        default=None, description="Salience scan; none: the local rules scan"
    )
    linker: RoleSettings | None = Field(
        default=None, description="Entity linking; none: deterministic edges only"
    )
    concurrency: Annotated[int, Field(ge=1)] = Field(default=8, description="Calls in flight at one endpoint")
    call_seconds: float = Field(default=60.0, gt=0.0, description="Deadline of one call with all its retries")
    connect_seconds: float = Field(default=5.0, gt=0.0, description="Time to reach the endpoint")
    max_response_bytes: int = Field(
        default=2 * 2**20, ge=1_024, description="A longer answer is refused unread"
    )
    trust_environment: bool = Field(default=True, description="Follow proxy variables of the environment")
    retry: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    cache: CacheSettings = CacheSettings()

    def role(self, role: Role) -> RoleSettings | None:
        """Settings of a role, ``None`` where it has none."""
        return {Role.ANALYST: self.analyst, Role.SCANNER: self.scanner, Role.LINKER: self.linker}[role]
