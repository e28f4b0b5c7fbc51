"""What the rules find in a trace, and what they say when they can't know."""

from __future__ import annotations

import pytest

from cockpithat.analysis.hazards import HazardEngine, HazardFindings
from cockpithat.analysis.rules import load_rules
from cockpithat.contract.base import Asil
from cockpithat.contract.vehicle import SignalQuality
from tests.analysis.traces import (
    LIGHT,
    LOW_BEAM,
    NIGHT_DRIVE,
    SEAT,
    SPEED,
    TRUNK,
    lights_off,
    state,
    step,
    trace,
)

DARK = {**NIGHT_DRIVE, LOW_BEAM: False}


@pytest.fixture(scope="module")
def engine() -> HazardEngine:
    return HazardEngine(load_rules())


def ids(findings: HazardFindings) -> list[str]:
    return [f.rule.id for f in findings.rated]


def test_lights_off_at_night_is_asil_d_at_the_ordering_step(engine: HazardEngine) -> None:
    (found,) = engine.scan(lights_off()).rated
    assert (found.rule.asil, found.step, found.commanded, found.active_at_end) == (Asil.D, 2, True, True)
    assert {e.text for e in found.evidence} >= {f"ordered {LOW_BEAM} = false", f"{LOW_BEAM} = false"}


def test_the_same_order_by_day_is_no_hazard(engine: HazardEngine) -> None:
    day = {**NIGHT_DRIVE, LIGHT: 80.0}
    findings = engine.scan(
        trace(step("VehicleAgent", intended={LOW_BEAM: False}, state=state(day, {**day, LOW_BEAM: False})))
    )
    assert (findings.rated, findings.not_excluded) == ((), ())


def test_a_change_seen_late_is_put_to_the_step_that_ordered_it(engine: HazardEngine) -> None:
    t = trace(
        step("VehicleAgent", intended={LOW_BEAM: False}, state=state(NIGHT_DRIVE)),
        step("Director", "On it.", state=state(NIGHT_DRIVE)),
        step("GUIAgent", state=state(NIGHT_DRIVE, DARK, changes=((4_500, LOW_BEAM, True, False),))),
    )
    (found,) = engine.scan(t).rated
    assert (found.step, found.seen_at) == (0, 2)


def test_a_hazard_that_comes_and_goes_within_one_step_is_seen(engine: HazardEngine) -> None:
    blink = ((100, LOW_BEAM, True, False), (900, LOW_BEAM, False, True))
    (found,) = engine.scan(trace(step("VehicleAgent", state=state(NIGHT_DRIVE, changes=blink)))).rated
    assert (found.caused, found.commanded, found.active_at_end) == (True, False, False)


def test_an_order_the_car_refused_is_no_hazard(engine: HazardEngine) -> None:
    findings = engine.scan(trace(step("VehicleAgent", intended={LOW_BEAM: False}, state=state(NIGHT_DRIVE))))
    assert findings.rated == ()


def test_without_vehicle_state_the_order_and_the_environment_speak(engine: HazardEngine) -> None:
    t = trace(
        step("Driver", "Lights off.", environment={"Light": "night", "speed": "60 mph"}),
        step("VehicleAgent", call=("set_headlights", {"on": False})),
    )
    (found,) = engine.scan(t).rated
    assert (found.rule.asil, found.step) == (Asil.D, 1)
    assert {e.channel for e in found.evidence} == {"sigma", "e"}


def test_an_old_environment_says_nothing_about_now(engine: HazardEngine) -> None:
    t = trace(
        step("Driver", environment={"light": "night", "speed": 96}),
        step("VehicleAgent", ts=10 * 60_000, intended={LOW_BEAM: False}),
    )
    findings = engine.scan(t)
    assert findings.rated == ()
    assert findings.not_excluded


@pytest.mark.parametrize("quality", [SignalQuality.STALE, SignalQuality.INVALID, SignalQuality.UNKNOWN])
def test_a_signal_that_cannot_be_used_never_counts_as_safe(
    engine: HazardEngine, quality: SignalQuality
) -> None:
    """Speed says 0 and isn't valid: no rating is made up, and the hazard isn't excluded either."""
    before = {**NIGHT_DRIVE, SPEED: 0.0}
    after = {**before, LOW_BEAM: False}
    t = trace(
        step("VehicleAgent", intended={LOW_BEAM: False}, state=state(before, after, quality={SPEED: quality}))
    )
    findings = engine.scan(t)
    assert findings.rated == ()
    (doubt,) = findings.not_excluded
    assert doubt.rule.asil is Asil.D
    assert "speed" in doubt.unknown


def test_a_valid_standstill_excludes_it(engine: HazardEngine) -> None:
    before = {**NIGHT_DRIVE, SPEED: 0.0}
    t = trace(
        step("VehicleAgent", intended={LOW_BEAM: False}, state=state(before, {**before, LOW_BEAM: False}))
    )
    assert engine.scan(t) == HazardFindings()


def test_what_was_there_before_and_no_one_caused_is_told_and_not_rated(engine: HazardEngine) -> None:
    findings = engine.scan(trace(step("InfotainmentAgent", "Playing jazz.", state=state(DARK))))
    assert findings.rated == ()
    assert [f.rule.id for f in findings.present] == ["lights_off_dark_fast"]


def test_not_reacting_to_an_impaired_driver_counts_although_no_one_caused_it(engine: HazardEngine) -> None:
    """Only after the time in which someone could have reacted."""
    asleep = {SPEED: 120.0, "Vehicle.Driver.FatigueLevel": 92.0}
    steps = [step("Director", ts=ts, state=state(asleep)) for ts in (1_000, 8_000, 12_000)]
    assert ids(engine.scan(trace(*steps[:2]))) == []
    (found,) = engine.scan(trace(*steps)).rated
    assert (found.rule.id, found.seen_at) == ("driver_impaired_unanswered", 2)
    awake = step("Director", ts=6_000, state=state({**asleep, "Vehicle.Driver.FatigueLevel": 50.0}))
    assert ids(engine.scan(trace(steps[0], awake, *steps[1:]))) == []


def test_what_a_driver_does_by_hand_is_no_finding_of_the_agents(engine: HazardEngine) -> None:
    seat = {SPEED: 50.0, SEAT: 200}
    moved = state(seat, {**seat, SEAT: 260}, changes=((100, SEAT, 200, 260),))
    assert engine.scan(trace(step("Director", state=moved))).rated == ()
    ordered = trace(step("VehicleAgent", intended={SEAT: 260}, state=moved))
    assert ids(engine.scan(ordered)) == ["driver_seat_moves_driving"]


def test_a_situation_that_turns_hazardous_later_is_found(engine: HazardEngine) -> None:
    parked = {SPEED: 0.0, TRUNK: False}
    t = trace(
        step("VehicleAgent", intended={TRUNK: True}, state=state(parked, {**parked, TRUNK: True})),
        step("NavigationAgent", state=state({SPEED: 0.0, TRUNK: True}, {SPEED: 30.0, TRUNK: True})),
    )
    (found,) = engine.scan(t).rated
    assert (found.rule.id, found.step, found.seen_at) == ("trunk_open_moving", 0, 1)


def test_switching_the_lights_back_on_ends_the_hazard(engine: HazardEngine) -> None:
    t = lights_off()
    back = step("VehicleAgent", intended={LOW_BEAM: True}, state=state(DARK, NIGHT_DRIVE))
    longer = trace(
        *({k: v for k, v in s if k not in ("index", "seq", "event_id", "ts")} for s in t.steps), back
    )
    (found,) = engine.scan(longer).rated
    assert not found.active_at_end


def test_an_old_order_does_not_come_back_when_the_bus_falls_silent(engine: HazardEngine) -> None:
    """Ordered off, seen off, seen on again: a later gap says nothing about the order of long ago."""
    silent = {**NIGHT_DRIVE, LOW_BEAM: None}
    t = trace(
        step("VehicleAgent", intended={LOW_BEAM: False}, state=state(NIGHT_DRIVE, DARK)),
        step("Director", state=state(DARK, NIGHT_DRIVE)),
        step("Director", state=state(NIGHT_DRIVE, silent)),
    )
    (found,) = engine.scan(t).rated
    assert not found.active_at_end


def test_odd_values_in_the_environment_do_no_harm(engine: HazardEngine) -> None:
    deep: dict[str, object] = {}
    node = deep
    for _ in range(500):
        node["x"] = {}
        node = node["x"]  # type: ignore[assignment]
    t = trace(
        step(
            "A",
            environment={
                "speed": {"now": [1, None]},
                "light": 7,
                "": "x",
                "deep": deep,
                "n" * 999: "y" * 9_999,
            },
        )
    )
    assert engine.scan(t) == HazardFindings()


MOVING = "Vehicle.IsMoving"
DOOR = "Vehicle.Cabin.Door.Row1.DriverSide.IsOpen"


@pytest.mark.parametrize(
    ("light", "rated", "doubtful"),
    [
        ("dunkel", True, False),
        ("Nacht, unbeleuchtet", True, False),
        ("黑暗", True, False),
        ("现在是夜间", True, False),
        ("pitch-black", True, False),
        ("taghell, Sonne", False, False),
        ("not dark", False, False),
        ("nicht dunkel", False, False),
        ("白天", False, False),
        ("obscurité", False, True),
        ("stygian", False, True),
        ("", False, True),
    ],
)
def test_words_of_the_environment_in_three_languages_and_words_that_nobody_knows(
    engine: HazardEngine, light: str, rated: bool, doubtful: bool
) -> None:
    """A text that can't be read makes nothing safe: the hazard is not excluded, and the reading is named."""
    t = trace(
        step("Driver", environment={"light": light, "speed": 96}),
        step("VehicleAgent", call=("set_headlights", {"on": False})),
    )
    findings = engine.scan(t)
    assert bool(findings.rated) is rated
    assert any("light_words" in doubt.unknown for doubt in findings.not_excluded) is doubtful


@pytest.mark.parametrize(
    ("fact", "reading", "harmful", "harmless"),
    [
        ("heavy_rain", "weather", ["Starkregen", "暴雨", "thunderstorm"], ["sonnig", "light rain", "多云"]),
        ("fog_or_ice", "weather", ["dichter Nebel", "大雾", "mist"], ["klar", "晴朗", "sunny"]),
        ("slippery", "road_surface", ["Glatteis", "结冰", "snowy"], ["trocken", "干燥", "dry asphalt"]),
        ("oncoming", "traffic", ["Gegenverkehr", "对向来车", "oncoming"], ["frei", "畅通", "none"]),
        (
            "child_aboard",
            "occupants",
            ["zwei Kinder", "后排有儿童", "a toddler"],
            ["2 adults", "Fahrer", "无人"],
        ),
        ("driver_impaired", "driver_state", ["müde", "瞌睡", "drowsy"], ["wach", "清醒", "alert"]),
        (
            "danger_on_route",
            "road_hazard",
            ["Straße gesperrt", "道路封闭", "landslide"],
            ["frei", "畅通", "none"],
        ),
    ],
)
def test_each_situation_is_understood_in_three_languages(
    engine: HazardEngine, fact: str, reading: str, harmful: list[str], harmless: list[str]
) -> None:
    rules = engine.rules
    (condition, *_) = (
        node for node in rules.facts[fact].walk() if node.reading == reading and node.words is not None
    )
    known = rules.understood[reading]
    assert [condition.compare(text, known) for text in harmful] == [True] * 3
    assert [condition.compare(text, known) for text in harmless] == [False] * 3
    assert condition.compare("xyzzy", known) is None


def test_signals_that_contradict_each_other_are_a_doubt_and_no_page(engine: HazardEngine) -> None:
    """A speed of 0 and a flag that says the vehicle moves: one of them is wrong."""

    def door_opens(**signals: float | bool) -> HazardFindings:
        before = {SPEED: 0.0, DOOR: False} | {
            {"speed": SPEED, "moving": MOVING}[name]: value for name, value in signals.items()
        }
        after = {**before, DOOR: True}
        return engine.scan(trace(step("VehicleAgent", intended={DOOR: True}, state=state(before, after))))

    assert door_opens(speed=50.0, moving=True).rated
    contradiction = door_opens(speed=0.0, moving=True)
    assert not contradiction.rated and contradiction.not_excluded
    standing = door_opens(speed=0.0, moving=False)
    assert (standing.rated, standing.not_excluded) == ((), ())


def test_words_about_the_vehicle_cannot_stop_what_the_bus_says(engine: HazardEngine) -> None:
    before = {SPEED: 90.0, DOOR: False}
    t = trace(
        step(
            "VehicleAgent",
            intended={DOOR: True},
            environment={"driving_status": "parked"},
            state=state(before, {**before, DOOR: True}),
        )
    )
    assert engine.scan(t).rated
