"""Comparisons that a number cannot have changed are passed over; findings are as if none were."""

from __future__ import annotations

import random

import pytest

from cockpithat.analysis import hazards
from cockpithat.analysis.conditions import Condition
from cockpithat.analysis.hazards import HazardEngine
from cockpithat.analysis.rules import load_rules
from cockpithat.contract.trace import Trace
from tests.analysis.traces import NIGHT_DRIVE, SPEED, state, step, trace

ENGINE = HazardEngine(load_rules())
BRAKE = "Vehicle.Chassis.ParkingBrake.IsEngaged"
DOOR = "Vehicle.Cabin.Door.Row2.PassengerSide.IsOpen"
LIGHT = "Vehicle.Exterior.LightIntensity"
LOW_BEAM = "Vehicle.Body.Lights.Beam.Low.IsOn"
FATIGUE = "Vehicle.Driver.FatigueLevel"


def drive(seed: int) -> Trace:
    """Speed, light and fatigue wander over all values that rules go by; switches are thrown in between."""
    chance = random.Random(seed)
    cuts = ENGINE._cuts["speed"]
    values = {**NIGHT_DRIVE, BRAKE: False, DOOR: False, FATIGUE: 10.0}
    steps = []
    for index in range(12):
        before, changes = dict(values), []
        for tick in range(15):
            path = chance.choice([SPEED, SPEED, SPEED, LIGHT, FATIGUE, BRAKE, DOOR, LOW_BEAM])
            if path == SPEED:
                new: object = chance.choice(
                    [chance.choice(cuts) + chance.choice([-0.1, 0.0, 0.1]), int(chance.choice(cuts)), None]
                )
            elif path in (LIGHT, FATIGUE):
                new = round(chance.uniform(0, 100), 1)
            else:
                new = chance.random() < 0.5
            if new == values[path]:
                continue
            changes.append((2_000 * index + 100 * tick, path, values[path], new))
            values[path] = new  # type: ignore[assignment]
        ordered = {DOOR: True} if chance.random() < 0.2 else {}
        steps.append(
            step("VehicleAgent", intended=ordered, state=state(before, dict(values), changes=tuple(changes)))
        )
    return trace(*steps)


@pytest.mark.parametrize("seed", range(40))
def test_findings_are_those_of_comparing_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = drive(seed)
    found = ENGINE.scan(driven)
    monkeypatch.setattr(hazards._Scan, "_region", lambda *_: None)
    assert found == ENGINE.scan(driven)


def test_every_comparison_is_right_on_both_sides_of_and_on_every_cut() -> None:
    class Plain(hazards._Scan):
        def _region(self, reading: str, values: list[object]) -> None:
            return None

    quick, plain = hazards._Scan(ENGINE, trace()), Plain(ENGINE, trace())
    for cut in ENGINE._cuts["speed"]:
        for value in (cut - 0.1, cut, cut + 0.1, cut, cut - 0.1, int(cut), True, cut, None, cut):
            for scan in (quick, plain):
                scan._bus(SPEED, value)
            assert quick.truth == plain.truth, (cut, value)


def test_such_drives_are_hazardous() -> None:
    """Else the test above would compare nothing with nothing."""
    rules = {finding.rule.id for seed in range(40) for finding in ENGINE.scan(drive(seed)).found}
    assert {"door_open_moving", "lights_off_dark_fast", "parking_brake_moving"} <= rules


@pytest.mark.parametrize(
    ("fields", "cuts"),
    [
        ({"ge": 5, "lt": 9}, (5.0, 9.0)),
        ({"is": 3}, (3.0,)),
        ({"in": [1, 2]}, (1.0, 2.0)),
        ({"is": True}, None),
        ({"in": [1, "FAST"]}, None),
        ({"words": ["dark"]}, None),
        ({"gt": 1, "changed": True}, None),
        ({"above": {"reading": "speed_limit", "by": 5}}, None),
    ],
)
def test_only_bare_numbers_have_cuts(fields: dict[str, object], cuts: tuple[float, ...] | None) -> None:
    assert Condition.model_validate({"reading": "speed", **fields}).cuts() == cuts
