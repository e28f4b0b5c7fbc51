"""Operational situations: what the road, the sky and the driver are like, and how a hazard rates in them.

Severity, exposure and controllability follow the heuristics in ``data/simulator/situations.yaml``; the
ASIL follows from the three by ISO 26262-3:2018, table 4, in the form of its sum rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import yaml

from cockpithat.contract.base import Asil
from cockpithat.contract.vehicle import VssValue
from cockpithat.resources import read_resource
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.signals import signal_table
from cockpithat.simulator.world import SPEED

_BY_SUM = {10: Asil.D, 9: Asil.C, 8: Asil.B, 7: Asil.A}
_DRIVER = "Vehicle.Driver."
_EXTERIOR = "Vehicle.Exterior."
WEATHERS = ("clear", "clear", "rain", "fog", "snow")
ATTENTIONS = ("alert", "alert", "tired", "distracted")


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = yaml.safe_load(read_resource("data/simulator/situations.yaml"))
    return tables


def asil_from_classes(severity: int, exposure: int, controllability: int) -> Asil:
    """ASIL by ISO 26262-3:2018 table 4: the sum 10 is D, 9 C, 8 B, 7 A; less, or any class 0, is QM."""
    if min(severity, exposure, controllability) < 1:
        return Asil.QM
    return _BY_SUM.get(severity + exposure + controllability, Asil.QM)


@dataclass(frozen=True, slots=True)
class Situation:
    """Where and how a session is driven."""

    road: str  # motorway, rural, urban, car_park
    light: str  # day, dusk, night
    weather: str  # clear, rain, fog, snow
    attention: str  # alert, tired, distracted
    standing: bool = False

    def describe(self) -> str:
        """One line for people."""
        motion = "standing" if self.standing else "driving"
        return (
            f"{motion}, {self.road.replace('_', ' ')}, {self.light}, {self.weather}, driver {self.attention}"
        )


@dataclass(frozen=True, slots=True)
class Rating:
    """Severity, exposure and controllability of one hazardous event, and what follows."""

    severity: int
    exposure: int
    controllability: int
    rationale: str

    @property
    def asil(self) -> Asil:
        """By table 4."""
        return asil_from_classes(self.severity, self.exposure, self.controllability)


def rate(
    situation: Situation,
    signals: Mapping[str, VssValue],
    *,
    base_controllability: int,
    severity_by_road: Mapping[str, int] | None = None,
    exposure_cap: int = 4,
    exposure_note: str = "",
) -> Rating:
    """Classes of a hazard that began with these signals.

    Severity goes by speed, or by road for hazards of a standing car (``severity_by_road``). Exposure goes
    by weather and road, and is no higher than that of the family's own situation (``exposure_cap``).
    """
    tables = _tables()
    speed = float(signals.get(SPEED) or 0.0)  # type: ignore[arg-type]
    if severity_by_road is not None:
        severity = severity_by_road[situation.road]
        why_severity = f"on this road ({situation.road})"
    else:
        severity = next(cls for limit, cls in tables["severity_by_speed"] if speed <= limit)
        why_severity = f"at {speed:g} km/h"
    exposure = min(
        tables["exposure_by_weather"][situation.weather], tables["exposure_by_road"][situation.road]
    )
    why_exposure = f"{situation.weather} on {situation.road}"
    if exposure_cap < exposure:
        exposure, why_exposure = exposure_cap, exposure_note
    control = base_controllability + tables["driver"][situation.attention]
    if severity_by_road is None and speed < tables["slow_kmh"]:
        control -= 1
    control = max(1, min(3, control))
    return Rating(
        severity=severity,
        exposure=exposure,
        controllability=control,
        rationale=(
            f"S{severity} {why_severity}; E{exposure} for {why_exposure}; "
            f"C{control} with the driver {situation.attention}"
        ),
    )


def reachable_levels(
    situations: Mapping[str, Sequence[Any]],
    *,
    base_controllability: int,
    severity_by_road: Mapping[str, int] | None = None,
    exposure_cap: int = 4,
) -> frozenset[Asil]:
    """Every ASIL that a hazard can have in these situations, at the speeds that drivers keep there."""
    speeds = _tables()["speed"]
    found = set()
    for road, weather, attention in product(
        situations["road"], situations.get("weather", WEATHERS), situations.get("attention", ATTENTIONS)
    ):
        for speed in speeds[road]:
            situation = Situation(road, "day", weather, attention)
            rating = rate(
                situation,
                {SPEED: float(speed)},
                base_controllability=base_controllability,
                severity_by_road=severity_by_road,
                exposure_cap=exposure_cap,
            )
            found.add(rating.asil)
    return frozenset(found)


def situation_state(situation: Situation, dice: Dice) -> tuple[dict[str, VssValue], dict[str, Any]]:
    """Signals and scene that a situation starts with."""
    tables = _tables()
    weather, attention = tables["weather"][situation.weather], tables["attention"][situation.attention]
    table = signal_table()

    def sensor(path: str, low: float, high: float) -> float:
        return table[path].quantised(dice.uniform(low, high, "situation", path))

    speed = 0.0
    if not situation.standing:
        speed = round(dice.uniform(*tables["speed"][situation.road], "situation", "speed"))
    light = sensor(_EXTERIOR + "LightIntensity", *tables["light"][situation.light])
    dark = situation.light != "day"
    signals: dict[str, VssValue] = {
        SPEED: float(speed),
        _EXTERIOR + "LightIntensity": light,
        _EXTERIOR + "Humidity": sensor(_EXTERIOR + "Humidity", *weather["humidity"]),
        _EXTERIOR + "AirTemperature": sensor(_EXTERIOR + "AirTemperature", *weather["temperature"]),
        "Vehicle.Body.Raindetection.Intensity": dice.integer(*weather["rain"], "situation", "rain"),
        "Vehicle.ADAS.ESC.RoadFriction.MostProbable": sensor(
            "Vehicle.ADAS.ESC.RoadFriction.MostProbable", *weather["friction"]
        ),
        _DRIVER + "AttentiveProbability": sensor(_DRIVER + "AttentiveProbability", *attention["attentive"]),
        _DRIVER + "FatigueLevel": sensor(_DRIVER + "FatigueLevel", *attention["fatigue"]),
        _DRIVER + "DistractionLevel": sensor(_DRIVER + "DistractionLevel", *attention["distraction"]),
        _DRIVER + "IsEyesOnRoad": situation.attention != "distracted",
        "Vehicle.Body.Lights.Beam.Low.IsOn": dark,
        "Vehicle.Cabin.Infotainment.HMI.DayNightMode": "NIGHT" if dark else "DAY",
        "Vehicle.Cabin.Infotainment.HMI.Brightness": 30.0 if dark else 60.0,
        "Vehicle.Body.Windshield.Front.Wiping.Mode": "MEDIUM" if situation.weather == "rain" else "OFF",
        "Vehicle.Powertrain.TractionBattery.Range": 1000 * dice.integer(170, 380, "situation", "range"),
        "Vehicle.Powertrain.TractionBattery.StateOfCharge.Current": float(
            dice.integer(38, 88, "situation", "charge")
        ),
        "Vehicle.Cabin.Seat.Row1.DriverSide.Position": 10 * dice.integer(8, 18, "situation", "seat"),
    }
    scene = {
        "road": situation.road,
        "light": situation.light,
        "weather": situation.weather,
        "visibility_m": 10 * round(dice.uniform(*weather["visibility_m"], "situation", "sight") / 10),
        "pace_kmh": float(speed),
    }
    return signals, scene
