"""Ids from identity, so that the same session read twice gets the same ids (design, decision 6)."""

from __future__ import annotations

import hashlib


def digest(*parts: str) -> str:
    """32 hex digits of SHA-256 over the parts, each with its length so that no two splits collide."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.hexdigest()[:32]


def trace_id(vehicle_id: str, session_id: str, first_event_id: str) -> str:
    """Identity of a session: vehicle, session and its first event by ``seq``."""
    return digest("trace", vehicle_id, session_id, first_event_id)


def report_id(trace: str, method: str, analysts: str, config_digest: str) -> str:
    """Identity of a report: the trace, the method and the configuration that judged it."""
    return digest("report", trace, method, analysts, config_digest)


def derived_id(kind: str, parent: str) -> str:
    """Id of a record that a trace or report has one of (alert, review, suspicion, summary)."""
    return digest(kind, parent)
