"""Makes the trace of a session that is over."""

from __future__ import annotations

from collections.abc import Collection

from cockpithat.contract.base import CloseReason, Outcome, VehicleStateCoverage
from cockpithat.contract.events import SessionEnd, StepEvent
from cockpithat.contract.ids import derived_id, trace_id
from cockpithat.contract.reports import SessionStatus, SessionSummary
from cockpithat.contract.trace import SourceRef, Step, StepState, Trace, TraceGraph
from cockpithat.session.settings import EngineSettings
from cockpithat.session.state import OpenSession
from cockpithat.vehicle.alignment import AlignmentBounds, align
from cockpithat.vehicle.states import VehicleStates

TRUNCATING = frozenset(
    {
        CloseReason.MAX_AGE,
        CloseReason.MAX_EVENTS,
        CloseReason.MAX_BYTES,
        CloseReason.MAX_OPEN_SESSIONS,
    }
)


def build_trace(
    session: OpenSession,
    reason: CloseReason,
    vehicles: VehicleStates,
    watched: Collection[str],
    settings: EngineSettings,
) -> Trace:
    """The trace of ``session``, whose buffer is drained here. O(events + snapshots in its time)."""
    session.drain()
    states, coverage = _states(session, vehicles, watched, settings)
    steps = tuple(
        _step(index, event, source, states[index] if states else None)
        for index, (event, source) in enumerate(session.steps)
    )
    start = session.start
    end = session.end
    outcome, failed = outcome_of(end)
    times = [session.events[seq][0].ts for seq in sorted(session.events)]
    started = times[0] if times else 0
    return Trace(
        trace_id=identity(session),
        vehicle_id=session.vehicle_id,
        session_id=session.session_id,
        task=start.task if start else "",
        roster=start.roster if start else (),
        market=start.market if start else None,
        locale=start.locale if start else None,
        software_version=start.software_version if start else None,
        models=start.models if start else {},
        prompts=start.prompts if start else {},
        vss_version=start.vss_version if start else None,
        outcome=outcome,
        failed=failed,
        failure_reason=end.failure_reason if end else None,
        final_answer=end.final_answer if end else "",
        close_reason=reason,
        truncated=reason in TRUNCATING,
        clock_suspect=session.clock_suspect,
        timestamps_synthetic=start.timestamps_synthetic if start else False,
        vehicle_state=coverage,
        started_ts=started,
        ended_ts=max([started, *times[-1:], *([end.ts] if end else [])]),
        missing_seqs=tuple(session.reorder.missing),
        steps=steps,
        graph=session.graph.to_wire() if session.graph else TraceGraph(),
        first_source=session.first_source,
        last_source=session.last_source,
    )


def outcome_of(end: SessionEnd | None) -> tuple[Outcome, bool]:
    """Outcome and failure. Without an end, or with one that says nothing, it is unknown and failed."""
    if end is None or (end.outcome == Outcome.UNKNOWN and end.failed is None):
        return Outcome.UNKNOWN, True
    if end.outcome == Outcome.UNKNOWN:
        return (Outcome.FAILURE if end.failed else Outcome.SUCCESS), bool(end.failed)
    return end.outcome, end.is_failure


def identity(session: OpenSession) -> str:
    """The trace id: vehicle, session, first event by ``seq``."""
    first = session.events[min(session.events)][0].event_id if session.events else ""
    return trace_id(session.vehicle_id, session.session_id, first)


def quarantine_summary(session: OpenSession, error: str) -> SessionSummary:
    """The summary of a session that cannot be assembled; touches nothing that may have failed."""
    trace = identity(session)
    outcome, failed = outcome_of(session.end)
    times = [event.ts for event, _ in session.events.values()]
    return SessionSummary(
        summary_id=derived_id("summary", trace),
        trace_id=trace,
        vehicle_id=session.vehicle_id,
        session_id=session.session_id,
        status=SessionStatus.QUARANTINED,
        outcome=outcome,
        failed=failed,
        close_reason=session.close_reason or CloseReason.SHUTDOWN,
        started_ts=min(times, default=0),
        ended_ts=max(times, default=0),
        steps=len(session.steps),
        missing_events=sum(high - low + 1 for low, high in session.reorder.missing),
        clock_suspect=session.clock_suspect,
        error=error,
    )


def _states(
    session: OpenSession, vehicles: VehicleStates, watched: Collection[str], settings: EngineSettings
) -> tuple[list[StepState], VehicleStateCoverage]:
    announced = session.start is not None and session.start.sends_snapshots is True
    if not announced and not vehicles.sends(session.vehicle_id):
        return [], VehicleStateCoverage.NONE
    if not session.steps:
        return [], VehicleStateCoverage.INCOMPLETE
    until = session.state_needed_until
    # Without an end the last step's effects have no other bound than a little time after it.
    end = until if session.ends else until + settings.grace_ms
    window = vehicles.window(session.vehicle_id, session.steps[0][0].ts, end)
    states = align(
        [event for event, _ in session.steps],
        window,
        watched,
        AlignmentBounds(settings.grid_ms, settings.changes_per_signal, settings.unwatched_signals),
    )
    covered = vehicles.covered_until(session.vehicle_id)
    is_complete = window.complete and covered is not None and covered >= session.max_step_ts
    return states, VehicleStateCoverage.COMPLETE if is_complete else VehicleStateCoverage.INCOMPLETE


_STEP_FIELDS = frozenset(Step.model_fields)
_CARRIED_FIELDS = tuple(name for name in Step.model_fields if name in StepEvent.model_fields)


def _step(index: int, event: StepEvent, source: SourceRef, state: StepState | None) -> Step:
    extra = event.model_extra
    carried = event.__dict__
    fields = {name: carried[name] for name in _CARRIED_FIELDS}
    fields.update(index=index, state=state, source=source)
    if extra:
        fields.update((name, value) for name, value in extra.items() if name not in _STEP_FIELDS)
    # The validator in Rust takes a fifth of the time of model_construct, which loops in Python.
    return Step.model_validate(fields)
