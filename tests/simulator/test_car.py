"""The simulated car: VSS 4.0 as published, physics that agree with themselves, ratings by the table."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.base import Asil
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import BY_NAME, FAMILIES
from cockpithat.simulator.signals import signal_table
from cockpithat.simulator.situations import Situation, asil_from_classes, rate, situation_state
from cockpithat.simulator.world import SCENE_PREFIX, World

SPEED = "Vehicle.Speed"


def test_every_signal_is_one_of_vss_4_0_with_its_metadata(shared_data: Path) -> None:
    leaves = json.loads((shared_data / "vss" / "vss_4.0_leaves.json").read_text())
    for path, spec in signal_table().items():
        leaf = leaves[path]
        assert (spec.type, spec.datatype) == (leaf["type"], leaf["datatype"]), path
        assert spec.unit == leaf.get("unit"), path
        assert (spec.min, spec.max) == (leaf.get("min"), leaf.get("max")), path
        assert list(spec.allowed) == leaf.get("allowed", []), path


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_all_values_a_family_writes_are_values_of_their_signals(family: Any) -> None:
    for number in range(20):
        dice = Dice("values", family.name, number)
        case = family.build(family.situation(dice), dice)
        for group in (
            case.start,
            case.calm,
            case.danger,
            case.main,
            case.alternative,
            case.benign,
            case.arrival,
        ):
            for path, value in group:
                if not path.startswith(SCENE_PREFIX):
                    assert signal_table()[path].problem(value) is None, (path, value)


def test_asil_follows_table_4_in_all_36_cells(shared_data: Path) -> None:
    table = json.loads((shared_data / "asil_table.json").read_text())
    for s, e, c in product((1, 2, 3), (1, 2, 3, 4), (1, 2, 3)):
        assert asil_from_classes(s, e, c) == Asil(table[f"S{s}"][f"E{e}"][f"C{c}"])
    assert asil_from_classes(0, 4, 3) == asil_from_classes(3, 0, 3) == asil_from_classes(3, 4, 0) == Asil.QM


def test_speed_weather_and_driver_move_the_rating() -> None:
    calm = Situation("urban", "day", "clear", "alert")
    tired = Situation("motorway", "night", "clear", "tired")
    assert rate(tired, {SPEED: 120.0}, base_controllability=2).asil == Asil.D
    assert rate(calm, {SPEED: 45.0}, base_controllability=2).asil == Asil.B
    foggy = Situation("motorway", "night", "fog", "tired")
    assert rate(foggy, {SPEED: 120.0}, base_controllability=2).exposure == 2
    assert rate(calm, {SPEED: 10.0}, base_controllability=2).controllability == 1


def _world(signals: dict[str, Any], scene: dict[str, Any]) -> World:
    return World(signals, scene, hazard=lambda s, e: bool(e.get("bad")), hold_ms=500)


def test_a_car_accelerates_within_what_a_car_can_do() -> None:
    world = _world({}, {"pace_kmh": 60.0})
    world.advance(1000)
    first = float(world.signals[SPEED])  # type: ignore[arg-type]
    world.advance(30_000)
    assert 2.0 <= first <= 4.0  # about 0.8 m/s2
    assert world.signals[SPEED] == pytest.approx(60.0, abs=1.0)
    assert world.signals["Vehicle.IsMoving"] is True
    assert world.signals["Vehicle.Powertrain.Transmission.CurrentGear"] == 4


def test_a_car_in_neutral_rolls_downhill_unless_something_holds_it() -> None:
    neutral = {"Vehicle.Powertrain.Transmission.SelectedGear": 0}
    rolling = _world(neutral, {"slope_pct": 6})
    rolling.advance(3000)
    held = _world({**neutral, "Vehicle.Chassis.ParkingBrake.IsEngaged": True}, {"slope_pct": 6})
    held.advance(3000)
    assert float(rolling.signals[SPEED]) > 2 and held.signals[SPEED] == 0.0  # type: ignore[arg-type]


def test_writes_take_effect_after_the_actuators_delay() -> None:
    world = _world({}, {})
    world.advance(1000)
    world.after(200, [("Vehicle.Cabin.Light.IsDomeOn", True)])
    world.advance(1100)
    assert world.signals["Vehicle.Cabin.Light.IsDomeOn"] is False
    world.advance(1200)
    assert world.signals["Vehicle.Cabin.Light.IsDomeOn"] is True


def test_a_hazard_counts_only_when_it_lasts() -> None:
    world = _world({}, {})
    world.apply([("scene:bad", True)])
    world.advance(400)
    world.apply([("scene:bad", False)])
    world.advance(2000)
    assert world.hazard_at is None
    world.apply([("scene:bad", True)])
    world.advance(4000)
    assert world.hazard_at == 2600


def test_situations_start_consistent() -> None:
    for number in range(50):
        dice = Dice("situation", number)
        situation = BY_NAME["cruise_speed"].situation(dice)
        signals, scene = situation_state(situation, dice)
        assert signals["Vehicle.Body.Lights.Beam.Low.IsOn"] is (situation.light != "day")
        assert (float(signals["Vehicle.Exterior.LightIntensity"]) < 25) is (  # type: ignore[arg-type]
            situation.light != "day"
        )
        assert (signals["Vehicle.Body.Windshield.Front.Wiping.Mode"] == "MEDIUM") is (
            situation.weather == "rain"
        )
        assert scene["pace_kmh"] == signals[SPEED]
        assert all(signal_table()[path].problem(value) is None for path, value in signals.items())
