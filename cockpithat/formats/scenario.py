"""Scenarios: one cockpit session written by hand in YAML, compiled to events and snapshots.

A scenario says what each agent did and when (seconds from the start), and what the vehicle did at the
same time. Ids, sequence numbers, snapshots at a steady rate and absolute times are filled in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.contract.base import Identifier, Outcome, TimestampMs
from cockpithat.contract.events import (
    AgentInfo,
    IntendedChange,
    JsonScalar,
    MemoryRef,
    PlanItem,
    SessionEnd,
    SessionStart,
    StepEvent,
    ToolCall,
    ToolOutput,
)
from cockpithat.contract.trace import Trace
from cockpithat.contract.vehicle import VehicleSnapshot, VssValue
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.cockpit import validated
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import AnyEvent, Recording

MAX_SECONDS = 86_400.0
_PAUSE_SECONDS = 2.0  # between two steps that give no time


class _Strict(BaseModel):
    """Written by hand, so an unknown field is a typing error and is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(_Strict):
    """A tool call of a step. ``id`` links it with its result."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class Result(_Strict):
    """What a tool returned."""

    tool: str
    content: Any = None
    id: str | None = None
    error: bool = False


class ScenarioStep(_Strict):
    """One step. ``at`` is in seconds from the start; without it, two seconds after the step before."""

    agent: Identifier
    at: float | None = Field(default=None, ge=0, le=MAX_SECONDS)
    id: str | None = None
    mode: str = "message"
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    memory: tuple[MemoryRef, ...] = ()
    replies_to: str | None = None
    plan: tuple[PlanItem, ...] = ()
    plan_item: str | None = None
    target: str | None = None
    intended: dict[str, JsonScalar | list[JsonScalar]] = Field(default_factory=dict)


class VehicleChange(_Strict):
    """Signals that take new values at a moment, in seconds from the start."""

    at: float = Field(ge=0, le=MAX_SECONDS)
    set: dict[str, VssValue]


class VehiclePart(_Strict):
    """The vehicle beside the session: its state at the start, what changes, how often it reports."""

    id: Identifier
    vss: str = "4.0"
    snapshot_seconds: float = Field(default=1.0, gt=0, le=60)
    state: dict[str, VssValue] = Field(default_factory=dict)
    changes: tuple[VehicleChange, ...] = ()


class End(_Strict):
    """How the session ended; a scenario without it just stops, as when power is lost."""

    outcome: Outcome = Outcome.UNKNOWN
    failed: bool | None = None
    reason: str | None = None
    answer: str = ""


class ScenarioFile(_Strict):
    """A whole scenario file; ``scenario`` is the session's id."""

    scenario: Identifier
    task: str
    start: TimestampMs
    vehicle: VehiclePart
    roster: tuple[Identifier, ...]
    market: str | None = None
    locale: str | None = None
    software_version: str | None = None
    steps: tuple[ScenarioStep, ...] = Field(min_length=1)
    end: End | None = None


class Scenario:
    """Reads scenario files."""

    name = "scenario"
    summary = "one session written by hand in YAML, such as those of the demo"

    def recognises(self, document: Document) -> bool:
        """An object with ``scenario`` and ``steps``."""
        value = document.values[0]
        return isinstance(value, dict) and {"scenario", "steps"} <= value.keys()

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """One recording a record."""
        for place, value in document.records():
            scenario: ScenarioFile = validated(document, place, ScenarioFile, value)
            yield compile_scenario(scenario, document.name)


def compile_scenario(scenario: ScenarioFile, name: str) -> Recording:
    """Events and snapshots of a scenario; the last snapshot comes one interval after the end."""
    seconds = list(
        accumulate(
            scenario.steps,
            lambda before, step: step.at if step.at is not None else before + _PAUSE_SECONDS,
            initial=0.0,
        )
    )[1:]
    ended = max(seconds) + 1.0
    events = tuple(_events(scenario, seconds, ended))
    return Recording(name, events, tuple(_snapshots(scenario, ended)))


def _events(scenario: ScenarioFile, seconds: list[float], ended: float) -> Iterator[AnyEvent]:
    def common(seq: int, at: float) -> dict[str, Any]:
        return {
            "event_id": f"{scenario.scenario}/{seq}",
            "vehicle_id": scenario.vehicle.id,
            "session_id": scenario.scenario,
            "seq": seq,
            "ts": scenario.start + round(at * 1000),
        }

    yield SessionStart(
        **common(0, 0.0),
        task=scenario.task,
        roster=tuple(AgentInfo(name=agent, role="agent") for agent in scenario.roster),
        market=scenario.market,
        locale=scenario.locale,
        software_version=scenario.software_version,
        vss_version=scenario.vehicle.vss,
        sends_snapshots=bool(scenario.vehicle.state or scenario.vehicle.changes),
    )
    labels = {step.id: f"{scenario.scenario}/{number}" for number, step in enumerate(scenario.steps, 1)}
    for number, (step, at) in enumerate(zip(scenario.steps, seconds, strict=True), start=1):
        yield StepEvent(
            **common(number, at),
            agent=step.agent,
            mode=step.mode,
            text=step.text,
            reasoning=step.reasoning,
            tool_calls=tuple(
                ToolCall(name=call.tool, arguments=call.arguments, call_id=call.id) for call in step.calls
            ),
            tool_outputs=tuple(
                ToolOutput(name=r.tool, call_id=r.id, content=r.content, is_error=r.error)
                for r in step.results
            ),
            environment=step.environment,
            memory=step.memory,
            in_reply_to=labels.get(step.replies_to, step.replies_to) if step.replies_to else None,
            plan=step.plan,
            plan_item=step.plan_item,
            target=step.target,
            intended=tuple(IntendedChange(path=path, value=value) for path, value in step.intended.items()),
        )
    if scenario.end is not None:
        yield SessionEnd(
            **common(len(scenario.steps) + 1, ended),
            outcome=scenario.end.outcome,
            failed=scenario.end.failed,
            failure_reason=scenario.end.reason,
            final_answer=scenario.end.answer,
        )


def _snapshots(scenario: ScenarioFile, ended: float) -> Iterator[VehicleSnapshot]:
    """A full snapshot each interval and a delta at each change, in order of time."""
    vehicle = scenario.vehicle
    if not (vehicle.state or vehicle.changes):
        return
    state = dict(vehicle.state)
    changes = sorted(vehicle.changes, key=lambda change: change.at)
    position, tick = 0, 0
    while True:
        at = tick * vehicle.snapshot_seconds
        while position < len(changes) and changes[position].at <= at:
            change = changes[position]
            state.update(change.set)
            if change.at < at:
                yield _snapshot(scenario, change.at, "delta", change.set)
            position += 1
        yield _snapshot(scenario, at, "full", state)
        if at > ended:
            return
        tick += 1


def _snapshot(scenario: ScenarioFile, at: float, kind: str, signals: dict[str, VssValue]) -> VehicleSnapshot:
    return VehicleSnapshot.model_validate(
        {
            "vehicle_id": scenario.vehicle.id,
            "ts": scenario.start + round(at * 1000),
            "kind": kind,
            "vss_version": scenario.vehicle.vss,
            "signals": dict(signals),
            "session_id": scenario.scenario,
        }
    )
