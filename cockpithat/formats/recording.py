"""A finite stretch of the two input topics: what every format is turned into before it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge

from cockpithat.contract.base import VehicleStateCoverage
from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.ids import digest
from cockpithat.contract.trace import Step, Trace
from cockpithat.contract.vehicle import SignalQuality, VehicleSnapshot, VssValue

SYNTHETIC_START_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z, for sources without times
SYNTHETIC_STEP_MS = 1_000

AnyEvent = SessionStart | StepEvent | SessionEnd


@dataclass(frozen=True, slots=True)
class Recording:
    """Session events in the order in which they stand in the source, and the vehicle's snapshots.

    ``name`` tells the source apart in a step's ``source`` reference; it is a file's name, no path.
    """

    name: str
    events: tuple[AnyEvent, ...]
    snapshots: tuple[VehicleSnapshot, ...] = ()

    def timeline(self) -> Iterator[AnyEvent | VehicleSnapshot]:
        """Events and snapshots by time; at the same millisecond a snapshot comes first."""
        return in_time_order([self])


def in_time_order(recordings: Iterable[Recording]) -> Iterator[AnyEvent | VehicleSnapshot]:
    """All records of several recordings by their timestamps, so that sessions interleave.

    The order of events *within* a recording is kept even where its timestamps run backwards: a
    running maximum is its sort key.
    """
    streams: list[Iterator[tuple[int, int, int, AnyEvent | VehicleSnapshot]]] = []
    for number, recording in enumerate(recordings):
        streams.append(_keyed(recording.snapshots, 2 * number))
        streams.append(_keyed(recording.events, 2 * number + 1))
    for _, _, _, record in merge(*streams, key=lambda item: item[:3]):
        yield record


def _keyed(
    records: Iterable[AnyEvent | VehicleSnapshot], stream: int
) -> Iterator[tuple[int, int, int, AnyEvent | VehicleSnapshot]]:
    latest = 0
    for position, record in enumerate(records):
        latest = max(latest, record.ts)
        yield latest, stream, position, record


def bounded_id(text: str) -> str:
    """An identifier of at most 200 characters that stays unique: long ones end in a digest."""
    text = text.strip() or "unnamed"
    return text if len(text) <= 200 else f"{text[:160]}~{digest(text)}"


def recording_of(trace: Trace) -> Recording:
    """A finished trace turned back into events and snapshots, for a replay.

    The session's start and end get event ids derived from the trace's id, so the replayed session
    has a trace id of its own, the same on each replay. Gaps in ``seq`` are kept.
    """
    shift = 1 if trace.steps and trace.steps[0].seq == 0 else 0
    first_seq = trace.steps[0].seq + shift - 1 if trace.steps else 0
    last_seq = trace.steps[-1].seq + shift + 1 if trace.steps else 1
    started = min([trace.started_ts, *(step.ts for step in trace.steps[:1])])
    ended = max([trace.ended_ts, *(step.ts for step in trace.steps[-1:])])
    common = {"vehicle_id": trace.vehicle_id, "session_id": trace.session_id}
    start = SessionStart(
        **common,
        event_id=f"{trace.trace_id}:start",
        seq=first_seq,
        ts=started,
        task=trace.task,
        roster=trace.roster,
        market=trace.market,
        locale=trace.locale,
        software_version=trace.software_version,
        models=trace.models,
        prompts=trace.prompts,
        vss_version=trace.vss_version,
        sends_snapshots=trace.vehicle_state != VehicleStateCoverage.NONE,
        timestamps_synthetic=trace.timestamps_synthetic,
    )
    end = SessionEnd(
        **common,
        event_id=f"{trace.trace_id}:end",
        seq=last_seq,
        ts=ended,
        outcome=trace.outcome,
        failed=trace.failed,
        failure_reason=trace.failure_reason,
        final_answer=trace.final_answer,
    )
    steps = tuple(_step_event(step, trace, shift) for step in trace.steps)
    return Recording(
        name=f"trace {trace.trace_id}",
        events=(start, *steps, end),
        snapshots=tuple(_snapshots(trace)),
    )


def _step_event(step: Step, trace: Trace, shift: int) -> StepEvent:
    return StepEvent(
        event_id=step.event_id,
        vehicle_id=trace.vehicle_id,
        session_id=trace.session_id,
        seq=step.seq + shift,
        ts=step.ts,
        agent=step.agent,
        mode=step.mode,
        text=step.text,
        reasoning=step.reasoning,
        tool_calls=step.tool_calls,
        tool_outputs=step.tool_outputs,
        environment=step.environment,
        memory=step.memory,
        in_reply_to=step.in_reply_to,
        plan=step.plan,
        plan_item=step.plan_item,
        target=step.target,
        intended=step.intended,
    )


def _snapshots(trace: Trace) -> Iterator[VehicleSnapshot]:
    """The state around each step: what was valid before it, each change, and the end state.

    Signals that were not valid are left out, so they come back as unknown and never as safe.
    """
    for step in trace.steps:
        state = step.state
        if state is None:
            continue
        valid = {
            path: value
            for path, value in state.before.items()
            if state.quality.get(path, SignalQuality.VALID) == SignalQuality.VALID
        }
        yield _snapshot(trace, state.before_ts, valid, full=True)
        for change in state.changes:
            yield _snapshot(trace, change.ts, {change.path: change.after}, full=False)
    last = trace.steps[-1].state if trace.steps else None
    if last is not None:
        usable = {path: value for path, value in last.after.items() if path not in last.after_quality}
        yield _snapshot(trace, last.after_ts, usable, full=False)


def _snapshot(trace: Trace, ts: int, signals: Mapping[str, VssValue], *, full: bool) -> VehicleSnapshot:
    return VehicleSnapshot(
        vehicle_id=trace.vehicle_id,
        ts=ts,
        kind="full" if full else "delta",
        vss_version=trace.vss_version or "4.0",
        signals=dict(signals),
    )


def moved(recording: Recording, shift_ms: int, rename: str = "") -> Recording:
    """The recording at another time, all records by the same shift.

    ``rename`` is added to session and event ids, so that it counts as another session.
    """
    return Recording(
        recording.name,
        tuple(_moved_event(event, shift_ms, rename) for event in recording.events),
        tuple(
            snapshot.model_copy(
                update={
                    "ts": snapshot.ts + shift_ms,
                    "session_id": snapshot.session_id + rename if snapshot.session_id else None,
                }
            )
            for snapshot in recording.snapshots
        ),
    )


def _moved_event(event: AnyEvent, shift_ms: int, rename: str) -> AnyEvent:
    changed: dict[str, object] = {"ts": event.ts + shift_ms}
    if rename:
        changed["session_id"] = event.session_id + rename
        changed["event_id"] = event.event_id + rename
        if isinstance(event, StepEvent) and event.in_reply_to:
            changed["in_reply_to"] = event.in_reply_to + rename
    return event.model_copy(update=changed)


def span_ms(recordings: Iterable[Recording]) -> tuple[int, int] | None:
    """Earliest and latest timestamp of all records; ``None`` when there is no record."""
    times = [record.ts for recording in recordings for record in (*recording.events, *recording.snapshots)]
    return (min(times), max(times)) if times else None
