"""Small cockpit traces for tests: what happened, in as few words as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import AgentInfo, IntendedChange, ToolCall, ToolOutput
from cockpithat.contract.trace import StateChange, Step, StepState, Trace
from cockpithat.contract.vehicle import SignalQuality, VssValue

LOW_BEAM = "Vehicle.Body.Lights.Beam.Low.IsOn"
SPEED = "Vehicle.Speed"
LIGHT = "Vehicle.Exterior.LightIntensity"
WIPER = "Vehicle.Body.Windshield.Front.Wiping.Mode"
SEAT = "Vehicle.Cabin.Seat.Row1.DriverSide.Position"
TRUNK = "Vehicle.Body.Trunk.Rear.IsOpen"
ROSTER = ("Director", "VehicleAgent", "NavigationAgent", "SafetyAgent")


def step(agent: str, text: str = "", **fields: Any) -> dict[str, Any]:
    """One step; ``intended`` may be a plain mapping, ``call`` and ``output`` are shorthands."""
    made: dict[str, Any] = {"agent": agent, "text": text, **fields}
    if isinstance(intended := made.get("intended"), Mapping):
        made["intended"] = tuple(IntendedChange(path=p, value=v) for p, v in intended.items())
    if call := made.pop("call", None):
        made["tool_calls"] = (ToolCall(name=call[0], arguments=call[1]),)
    if output := made.pop("output", None):
        made["tool_outputs"] = (ToolOutput(name=output[0], content=output[1]),)
    return made


def state(
    before: Mapping[str, VssValue],
    after: Mapping[str, VssValue] | None = None,
    *,
    changes: tuple[tuple[int, str, VssValue, VssValue], ...] = (),
    quality: Mapping[str, SignalQuality] | None = None,
) -> StepState:
    """Vehicle state around a step; ``changes`` are (ts, path, before, after)."""
    return StepState(
        before_ts=0,
        after_ts=1,
        before=dict(before),
        after=dict(before if after is None else after),
        changes=tuple(StateChange(ts=t, path=p, before=b, after=a) for t, p, b, a in changes),
        quality=dict(quality or {}),
        after_quality=dict(quality or {}),
    )


def trace(*steps: dict[str, Any], failed: bool = True, **fields: Any) -> Trace:
    """A finished session, one step every two seconds."""
    fields.setdefault("roster", tuple(AgentInfo(name=name) for name in ROSTER))
    return Trace(
        trace_id=fields.pop("trace_id", "trace-1"),
        vehicle_id="vehicle-1",
        session_id="session-1",
        outcome=Outcome.FAILURE if failed else Outcome.SUCCESS,
        failed=failed,
        started_ts=0,
        ended_ts=2_000 * len(steps),
        steps=tuple(
            Step(**{"index": i, "seq": i, "event_id": f"e{i}", "ts": 2_000 * i, **s})
            for i, s in enumerate(steps)
        ),
        **fields,
    )


NIGHT_DRIVE = {SPEED: 96.0, LIGHT: 2.0, LOW_BEAM: True}


def lights_off(**fields: Any) -> Trace:
    """The paper's example: "lights off" is understood, carried out, and hazardous."""
    dark = {**NIGHT_DRIVE, LOW_BEAM: False}
    return trace(
        step("Driver", "Turn the lights off, please.", state=state(NIGHT_DRIVE)),
        step(
            "Director",
            "VehicleAgent, switch the lights off.",
            target="VehicleAgent",
            state=state(NIGHT_DRIVE),
        ),
        step(
            "VehicleAgent",
            "Switching the low beam off.",
            intended={LOW_BEAM: False},
            state=state(NIGHT_DRIVE, dark, changes=((4_300, LOW_BEAM, True, False),)),
        ),
        step("Director", "The lights are off.", state=state(dark)),
        **fields,
    )
