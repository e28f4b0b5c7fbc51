"""Turns a recording into traces, through the same session engine and snapshot log as the stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cockpithat.contract.trace import SourceRef, Trace
from cockpithat.formats.base import ignore_warning
from cockpithat.formats.reading import MAX_FILE_BYTES
from cockpithat.formats.recording import Recording
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.effects import DeadLettered, SessionQuarantined, TraceClosed
from cockpithat.session.engine import SessionEngine
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.settings import SnapshotSettings


def assemble(
    recording: Recording,
    *,
    engine: EngineSettings | None = None,
    graph: GraphSettings | None = None,
    warn: Callable[[str], None] = ignore_warning,
) -> list[Trace]:
    """The traces of a recording, each session's newest revision, in the order in which they closed.

    Wall time stands still: a file is never silent, and every snapshot of it is there at once.
    Records the engine puts aside (late, conflicting) are told to ``warn`` and not lost silently.
    """
    if not recording.events:
        warn(
            f"{recording.name}: holds vehicle snapshots and no session; "
            "put sessions and the snapshots of their vehicles into one file"
        )
    log = SnapshotLog(_roomy(len(recording.snapshots)), SignalCatalogue.shipped())
    for snapshot in recording.snapshots:
        log.add(snapshot)
    sessions = SessionEngine(engine or EngineSettings(), log, graph=graph or GraphSettings())
    effects = []
    for offset, event in enumerate(recording.events):
        value = event.model_dump_json().encode("utf-8", "replace")
        source = SourceRef(topic=recording.name, offset=offset, digest=hashlib.sha256(value).hexdigest())
        effects += sessions.apply(event, source, size=len(value), broker_ts=event.ts, wall_ms=0)
    effects += sessions.flush(0)
    closed: dict[str, Trace] = {}
    for effect in effects:
        match effect:
            case TraceClosed(trace=trace):
                closed[trace.trace_id] = trace
            case DeadLettered(reason=reason, detail=detail, source=source):
                warn(f"{source.topic}: event {source.offset} put aside as {reason.value}: {detail}")
            case SessionQuarantined(session_id=session, error=error):
                warn(f"{recording.name}: session {session} could not be assembled: {error}")
            case _:
                pass
    return list(closed.values())


def _roomy(snapshots: int) -> SnapshotSettings:
    """Bounds under which nothing of a file that fits in memory is folded away before it is used."""
    defaults = SnapshotSettings()
    return SnapshotSettings(
        ring_records=max(defaults.ring_records, snapshots + 1),
        vehicle_bytes=8 * MAX_FILE_BYTES,
        max_bytes=8 * MAX_FILE_BYTES,
    )
