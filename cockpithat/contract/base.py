"""What every wire record shares: vocabulary, versions and how unknown fields are treated.

Versioning rule: ``schema_version`` is ``MAJOR.MINOR``. A minor version only adds optional fields, and
a reader ignores or keeps the ones it does not know; another major version is refused with a clear
error (the stream dead-letters it with reason ``unknown_version``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, WithJsonSchema

CONTRACT_MAJOR = 1
CONTRACT_VERSION = "1.0"

MAX_TIMESTAMP_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


class Category(StrEnum):
    """The eight failure categories of CockpitHAT (Table 3), in the paper's order."""

    INVENTION_OF_NEW_INFORMATION = "invention_of_new_information"
    PLANNING_FAILURE = "planning_failure"
    PLAN_ADHERENCE_FAILURE = "plan_adherence_failure"
    MISINTERPRETATION_OF_TOOL_OUTPUT = "misinterpretation_of_tool_output"
    DRIVER_AGENT_INTERACTION = "driver_agent_interaction"
    ENVIRONMENTAL_MISGROUNDING = "environmental_misgrounding"
    SAFETY_SAFEGUARD_FAILURE = "safety_safeguard_failure"
    CROSS_DOMAIN_CONTAMINATION = "cross_domain_contamination"


class Asil(StrEnum):
    """Indicative rating. ``unrated`` means no hazard evidence, which is not the same as QM."""

    UNRATED = "unrated"
    QM = "QM"
    A = "A"
    B = "B"
    C = "C"
    D = "D"

    @property
    def rank(self) -> int:
        """Order for comparisons: unrated 0 < QM 1 < A 2 < B 3 < C 4 < D 5."""
        return _ASIL_RANK[self]


_ASIL_RANK = {asil: rank for rank, asil in enumerate(Asil)}


class Outcome(StrEnum):
    """How a session ended. ``unknown`` (no end event arrived) is judged like a failure."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class CloseReason(StrEnum):
    """What closed a session's window."""

    END_EVENT = "end_event"  # session_end, then the grace passed
    SILENCE = "silence"  # no end event, nothing more came
    MAX_AGE = "max_age"
    MAX_EVENTS = "max_events"
    MAX_BYTES = "max_bytes"
    MAX_OPEN_SESSIONS = "max_open_sessions"
    IMPORTED = "imported"  # read whole from a file
    SHUTDOWN = "shutdown"  # end of a finite input (files, demo)


class VehicleStateCoverage(StrEnum):
    """Whether the trace's vehicle state can be relied on."""

    COMPLETE = "complete"  # snapshots reach past the last step
    INCOMPLETE = "incomplete"  # the wait for snapshots ran out, or there are gaps
    NONE = "none"  # this vehicle sends no snapshots


class WireModel(BaseModel):
    """Base of all wire records: immutable, unknown fields kept so that a re-publish loses nothing."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)


def to_epoch_ms(value: Any) -> Any:
    """Epoch milliseconds from an integer or an RFC 3339 string with an offset.

    Floats are refused: whether 1.7e9 is seconds or milliseconds would be a guess. Anything that is
    not understood raises ``ValueError``, which pydantic reports with the field's place.
    """
    if isinstance(value, bool):
        raise ValueError("timestamp must be epoch milliseconds or RFC 3339, not a boolean")
    if isinstance(value, int):
        ms = value
    elif isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("RFC 3339 timestamp needs an offset such as Z or +01:00")
        # Integer arithmetic: float seconds lose the last millisecond far from the epoch. A difference
        # of aware times heeds their offsets without a date that the calendar may not have.
        delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
        ms = (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
    else:
        raise ValueError("timestamp must be integer epoch milliseconds or an RFC 3339 string")
    if not 0 <= ms <= MAX_TIMESTAMP_MS:
        raise ValueError("timestamp is outside 1970 to 9999")
    return ms


TimestampMs = Annotated[
    int,
    BeforeValidator(to_epoch_ms),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_TIMESTAMP_MS},
                {"type": "string", "format": "date-time"},
            ],
            "description": "Epoch milliseconds, or RFC 3339 with an offset. Written as milliseconds.",
        },
        mode="validation",
    ),
]

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def check_schema_version(value: Any) -> Any:
    """Refuse another major version; accept any minor one."""
    if not isinstance(value, str):
        raise ValueError("schema_version must be a string such as '1.0'")
    major = value.split(".", 1)[0]
    if major != str(CONTRACT_MAJOR):
        raise ValueError(
            f"unknown_version: schema_version {value[:16]!r} is not supported; "
            f"this product reads major version {CONTRACT_MAJOR}"
        )
    return value


SchemaVersion = Annotated[str, BeforeValidator(check_schema_version)]
