"""The car and its surroundings, in steps of 100 ms: simple physics, but one that agrees with itself.

What the car measures lies in ``signals`` (VSS paths); what only a camera, a map or a person could tell
lies in ``scene``. Time is milliseconds from the session's start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import sin
from typing import Any

from cockpithat.contract.vehicle import VssValue
from cockpithat.simulator.signals import signal_table

TICK_MS = 100
SCENE_PREFIX = "scene:"

SPEED = "Vehicle.Speed"
MOVING = "Vehicle.IsMoving"
SELECTED_GEAR = "Vehicle.Powertrain.Transmission.SelectedGear"
CURRENT_GEAR = "Vehicle.Powertrain.Transmission.CurrentGear"
PARKING_BRAKE = "Vehicle.Chassis.ParkingBrake.IsEngaged"
BRAKE_PEDAL = "Vehicle.Chassis.Brake.PedalPosition"
BRAKE_LIGHT = "Vehicle.Body.Lights.Brake.IsActive"
CRUISE = "Vehicle.ADAS.CruiseControl.IsActive"
CRUISE_SPEED = "Vehicle.ADAS.CruiseControl.SpeedSet"
CABIN_TEMPERATURE = "Vehicle.Cabin.HVAC.AmbientAirTemperature"
CABIN_TARGET = "Vehicle.Cabin.HVAC.Station.Row1.Driver.Temperature"

NEUTRAL = 0
_ACCELERATION = 0.30  # km/h a tick: 0.83 m/s2
_BRAKING = 0.80  # km/h a tick: 2.2 m/s2
_ROLLING = 0.18  # km/h a tick on a slope in neutral without a brake
_GEAR_STEPS = (1.0, 20.0, 38.0, 58.0, 80.0, 105.0)

# Like a real sender: what moves fast is repeated even if unchanged, and now and then everything is, so that
# a receiver can tell an unchanged value from a lost one.
_HEARTBEAT_MS = 2_000
_FULL_MS = 20_000


@cache
def _heartbeat(extended: bool) -> tuple[str, ...]:
    return tuple(
        path
        for path in signal_table(extended)
        if path.startswith(("Vehicle.Driver.", "Vehicle.Powertrain.Transmission.", "Vehicle.Chassis."))
        or path in (SPEED, MOVING, BRAKE_LIGHT, CRUISE, CRUISE_SPEED, "Vehicle.ADAS.ActiveAutonomyLevel")
    )


Write = tuple[str, Any]
Hazard = Callable[[Mapping[str, VssValue], Mapping[str, Any]], bool]
Follow = Callable[[dict[str, VssValue], dict[str, Any]], None]


class World:
    """Physics and state of one run. A hazard counts once it lasts ``hold_ms`` without a break.

    ``follow`` adds a family's own physics; ``extended`` gives the car the signals of the unseen families.
    """

    def __init__(
        self,
        signals: Mapping[str, VssValue],
        scene: Mapping[str, Any],
        *,
        hazard: Hazard,
        hold_ms: int,
        schedule: Sequence[tuple[int, Sequence[Write]]] = (),
        ripple: float = 0.0,
        follow: Follow | None = None,
        extended: bool = False,
        recorder: Callable[[int, dict[str, VssValue]], None] | None = None,
    ) -> None:
        self.signals: dict[str, VssValue] = {p: spec.start for p, spec in signal_table(extended).items()}
        self.signals.update(signals)
        self.scene: dict[str, Any] = dict(scene)
        self.now = 0
        self.hazard_since: int | None = None
        self.hazard_at: int | None = None
        self.hazard_signals: dict[str, VssValue] = {}
        self.hazard_scene: dict[str, Any] = {}
        self._hazard = hazard
        self._hold = hold_ms
        self._due: list[tuple[int, int, Sequence[Write]]] = [
            (at, number, writes) for number, (at, writes) in enumerate(schedule)
        ]
        self._due.sort()
        self._count = len(self._due)
        self._ripple = ripple
        self._follow = follow
        self._heartbeat = _heartbeat(extended)
        self._true_speed = float(self.signals[SPEED] or 0.0)  # type: ignore[arg-type]
        self._recorder = recorder
        self._sent: dict[str, VssValue] = {}
        self._derive()
        if follow is not None:
            follow(self.signals, self.scene)
        if recorder is not None:
            self._sent = dict(self.signals)
            recorder(0, dict(self.signals))

    def after(self, delay_ms: int, writes: Sequence[Write]) -> None:
        """Lets writes take effect after an actuator's delay."""
        self._due.append((self.now + delay_ms, self._count, writes))
        self._count += 1
        self._due.sort()

    def apply(self, writes: Sequence[Write]) -> None:
        """Writes signals and, with the prefix ``scene:``, facts of the surroundings, at once."""
        for path, value in writes:
            if path.startswith(SCENE_PREFIX):
                self.scene[path[len(SCENE_PREFIX) :]] = value
            else:
                self.signals[path] = value

    def advance(self, until_ms: int) -> None:
        """Runs every tick up to ``until_ms``."""
        tick = self.now - self.now % TICK_MS + TICK_MS
        while tick <= until_ms:
            self._tick(tick)
            tick += TICK_MS
        self.now = max(self.now, until_ms)

    def _tick(self, now: int) -> None:
        self.now = now
        while self._due and self._due[0][0] <= now:
            self.apply(self._due.pop(0)[2])
        self._drive()
        if now % 1000 == 0:
            self._settle()
        self._derive()
        if self._follow is not None:
            self._follow(self.signals, self.scene)
        if self.hazard_at is None:
            self._watch(now)
        if self._recorder is not None:
            sent, signals = self._sent, self.signals
            changed = {path: value for path, value in signals.items() if value != sent[path]}
            if now % _FULL_MS == 0:
                changed = dict(signals)
            elif now % _HEARTBEAT_MS == 0:
                changed.update({path: signals[path] for path in self._heartbeat})
            if changed:
                sent.update(changed)
                self._recorder(now, changed)

    def _drive(self) -> None:
        signals, scene = self.signals, self.scene
        speed = self._true_speed
        if signals[SELECTED_GEAR] == NEUTRAL:
            held = signals[PARKING_BRAKE] or scene.get("pedal_held")
            if scene.get("slope_pct", 0) > 2 and not held:
                speed = min(speed + _ROLLING, 18.0)
            else:
                speed = max(speed - (_BRAKING if held else 0.05), 0.0)
        else:
            target = float(scene.get("pace_kmh", 0.0))
            if signals[CRUISE]:
                target = float(signals[CRUISE_SPEED] or 0.0)  # type: ignore[arg-type]
            if signals[PARKING_BRAKE]:
                target = 0.0  # a parking brake applied on the move slows the car down like any brake
            speed += max(-_BRAKING, min(_ACCELERATION, target - speed))
        self._true_speed = speed

    def _settle(self) -> None:
        signals = self.signals
        target = float(signals[CABIN_TARGET] or 0)  # type: ignore[arg-type]
        cabin = float(signals[CABIN_TEMPERATURE] or 0.0)  # type: ignore[arg-type]
        spec = signal_table()[CABIN_TEMPERATURE]
        signals[CABIN_TEMPERATURE] = spec.quantised(cabin + max(-0.5, min(0.5, target - cabin)))

    def _derive(self) -> None:
        signals = self.signals
        speed = self._true_speed
        before = float(signals[SPEED] or 0.0)  # type: ignore[arg-type]
        if speed > 12.0:
            speed += self._ripple * sin(self.now / 2300.0 + self._ripple * 9.0)
        shown = round(round(speed * 5.0) / 5.0, 1)
        signals[SPEED] = shown
        signals[MOVING] = shown > 0.4
        braking = shown < before - 0.5 or bool(self.scene.get("pedal_held"))
        signals[BRAKE_PEDAL] = 30 if braking else 0
        signals[BRAKE_LIGHT] = "ACTIVE" if braking else "INACTIVE"
        if signals[SELECTED_GEAR] == 127:
            signals[CURRENT_GEAR] = bisect_right(_GEAR_STEPS, shown)
        else:
            signals[CURRENT_GEAR] = 0

    def _watch(self, now: int) -> None:
        if not self._hazard(self.signals, self.scene):
            self.hazard_since = None
            return
        if self.hazard_since is None:
            self.hazard_since = now
        if now - self.hazard_since >= self._hold:
            self.hazard_at = now
            self.hazard_signals = dict(self.signals)
            self.hazard_scene = dict(self.scene)
