"""Features of the situation for a rating: speed, weather, road, driver, rules."""

from __future__ import annotations

from typing import Any

from cockpithat.analysis.conditions import as_number
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.examination import Examination
from cockpithat.contract.trace import Step
from cockpithat.ranking.deeds import critical_change
from cockpithat.ranking.texts import Features

_SPEED = "Vehicle.Speed"
_RAIN = "Vehicle.Body.Raindetection.Intensity"
_FRICTION = "Vehicle.ADAS.ESC.RoadFriction.MostProbable"
_HUMIDITY = "Vehicle.Exterior.Humidity"
_LIGHT = "Vehicle.Exterior.LightIntensity"
_AIR = "Vehicle.Exterior.AirTemperature"
_DRIVER = "Vehicle.Driver."
_WEATHERS = ("fog", "snow", "rain", "clear")
_ROADS = ("motorway", "highway", "rural", "urban", "city", "car_park", "parking")
_BRANCHES = (
    "Lights", "Door", "Trunk", "Windshield", "ADAS", "Transmission", "ParkingBrake", "HVAC", "Seat",
    "Infotainment",
    "CruiseControl", "Navigation", "ActiveAutonomyLevel", "LaneDeparture", "Window",
)  # fmt: skip


def severity_features(examination: Examination) -> Features:
    """Features of the moment at which the change that mattered was made; empty without a known speed.

    No speed on the bus means that nothing is known of harm, and nothing is rated.
    """
    view = examination.view
    if not view.steps:
        return {}
    critical = critical_change(examination)
    rated = examination.hazards.rated
    moment = rated[0].seen_at if rated else critical if critical is not None else len(view.steps) - 1
    values = _state(view.steps[moment])
    speed = as_number(values.get(_SPEED))
    if speed is None:
        return {}
    features: Features = {
        "standing": float(speed < 1),
        "speed_over_15": float(speed > 15),
        "speed_over_30": float(speed >= 30),
        "speed_over_55": float(speed > 55),
        "speed_over_80": float(speed > 80),
    }
    features |= _weather(values) | _driver(values)
    dark = as_number(values.get(_LIGHT))
    features["dark"] = float(dark is not None and dark < 25)
    for step in view.steps[: moment + 1]:
        for key, value in flatten(step.environment).items() if step.environment else ():
            text = str(value).lower()
            if key in ("weather", "road", "road_type", "weather_condition") and text in (*_WEATHERS, *_ROADS):
                features[f"{key.split('_')[0]}_{text}"] = 1.0
    if critical is not None:
        paths = " ".join((*view.doings[critical].targets, *view.doings[critical].moved))
        for branch in _BRANCHES:
            if branch in paths:
                features[f"changed_{branch}"] = 1.0
    else:
        features["nothing_changed"] = 1.0
    if rated:
        classes = rated[0].situation.classes
        features[f"rule_s{classes.severity}"] = 1.0
        features[f"rule_e{classes.exposure}"] = 1.0
        features[f"rule_c{classes.controllability}"] = 1.0
    else:
        features["no_rule"] = 1.0
    return {name: value for name, value in features.items() if value}


def _state(step: Step) -> dict[str, Any]:
    if step.state is None:
        return {}
    known = {p: v for p, v in step.state.before.items() if v is not None and p not in step.state.quality}
    known.update(
        {p: v for p, v in step.state.after.items() if v is not None and p not in step.state.after_quality}
    )
    return known


def _weather(values: dict[str, Any]) -> Features:
    rain, friction = as_number(values.get(_RAIN)), as_number(values.get(_FRICTION))
    humidity, air = as_number(values.get(_HUMIDITY)), as_number(values.get(_AIR))
    wet = rain is not None and rain >= 30
    slippery = friction is not None and friction < 42
    misty = humidity is not None and humidity >= 93.5 and not wet and not slippery
    return {
        "bus_rain": float(wet),
        "bus_slippery": float(slippery),
        "bus_misty": float(misty),
        "bus_fair": float(not wet and not slippery and not misty),
        "bus_freezing": float(air is not None and air <= 0),
    }


def _driver(values: dict[str, Any]) -> Features:
    attentive = as_number(values.get(_DRIVER + "AttentiveProbability"))
    fatigue = as_number(values.get(_DRIVER + "FatigueLevel"))
    distraction = as_number(values.get(_DRIVER + "DistractionLevel"))
    tired = fatigue is not None and fatigue > 60
    away = distraction is not None and distraction > 45
    return {
        "driver_tired": float(tired),
        "driver_distracted": float(away),
        "driver_alert": float(not tired and not away and attentive is not None and attentive > 65),
    }
