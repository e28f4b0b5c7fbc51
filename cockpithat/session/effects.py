"""What the session engine asks its host to do. The engine itself does no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.reports import SessionSummary
from cockpithat.contract.trace import SourceRef, Trace


@dataclass(frozen=True, slots=True)
class TraceClosed:
    """A session is over. ``trace.revision`` is above 1 when a late failure flag reopened it."""

    trace: Trace


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """One event cannot be used; its record goes to the dead-letter topic."""

    source: SourceRef
    reason: DeadLetterReason
    detail: str
    vehicle_id: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True)
class SessionQuarantined:
    """A session made the engine fail: all its records go to the dead-letter topic, others go on."""

    vehicle_id: str
    session_id: str
    sources: tuple[SourceRef, ...]
    error: str
    summary: SessionSummary


@dataclass(frozen=True, slots=True)
class DuplicateIgnored:
    """An event that was already taken came again."""

    source: SourceRef


Effect = TraceClosed | DeadLettered | SessionQuarantined | DuplicateIgnored
