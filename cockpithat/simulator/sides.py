"""Side conversations: what else is going on in a car.

They are there to look like trouble and to be none: tools that fail and are tried again, corrections that
are understood, requests that are rightly refused, orders in content that nobody obeys, memories of another
person that are rightly put aside, first guesses that a look corrects. Each adds two to six steps and leaves
the main story alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cockpithat.contract.events import MemoryRef
from cockpithat.simulator.episode import Episode
from cockpithat.simulator.families import (
    DOME,
    MEDIA_ACTION,
    MEDIA_SOURCE,
    MEDIA_VOLUME,
    NAVIGATION_VOLUME,
    SPEED,
    V,
)
from cockpithat.simulator.roster import DRIVER
from cockpithat.simulator.world import Write

TEMPERATURE = V + "Cabin.HVAC.Station.Row1.Driver.Temperature"
SEAT_HEATING = V + "Cabin.Seat.Row1.DriverSide.Heating"
MIRROR_HEATING = V + "Body.Mirrors.DriverSide.IsHeatingOn"
CHARGE = V + "Powertrain.TractionBattery.StateOfCharge.Current"


def _set(ep: Episode, part: str, writes: tuple[Write, ...], act: str) -> None:
    call = ep.tools.set_call(writes, ep.call_id())
    ep.use(part, act, call, ep.tools.set_output(call, accepted=True), writes=writes)


def _ask(ep: Episode, check: str, reading: Mapping[str, Any], part: str, **arguments: Any) -> None:
    call = ep.tools.check_call(check, ep.call_id(), arguments)
    ep.use(part, "side.look", call, ep.tools.check_output(call, reading))


def _comfort(ep: Episode, what: str, part: str) -> None:
    """Some dialogue agents say that a wish is one of comfort and needs no check; here they are right."""
    if ep.dice.chance(0.4, "routine", len(ep.steps)):
        wish = ep.pack.line(what, {}, ep.dice, len(ep.steps)) if ep.record else ""
        ep.emit("dialogue", "message", "dialogue.routine", target=part, ask=wish)


def _music(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.music.ask")
    volume = 5 * ep.dice.integer(4, 9, "volume", len(ep.steps))
    if ep.scenario.family in ("video", "handover"):  # their story is about the media player itself
        _set(ep, "media", ((MEDIA_VOLUME, volume),), "side.do")
    else:
        source = ep.dice.choice(("BLUETOOTH", "FM", "USB"), "station", len(ep.steps))
        _set(ep, "media", ((MEDIA_SOURCE, source), (MEDIA_ACTION, "PLAY"), (MEDIA_VOLUME, volume)), "side.do")
    ep.emit("dialogue", "message", "side.music.tell")


def _warmer(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.warm.ask")
    _comfort(ep, "side.warm.what", "climate")
    degrees = ep.dice.integer(20, 24, "degrees", len(ep.steps))
    _set(ep, "climate", ((TEMPERATURE, degrees),), "side.do")
    ep.emit("dialogue", "message", "side.warm.tell", degrees=degrees)


def _corrected(ep: Episode) -> None:
    first = ep.dice.integer(20, 22, "first", len(ep.steps))
    second = first - 2
    ep.emit(DRIVER, "message", "side.warm.exact", degrees=first)
    _set(ep, "climate", ((TEMPERATURE, first),), "side.do")
    ep.emit(DRIVER, "message", "side.warm.correct", degrees=second)
    _set(ep, "climate", ((TEMPERATURE, second),), "side.do")
    ep.emit("dialogue", "message", "side.warm.tell", degrees=second)


def _place(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.place.ask")
    ep.emit("dialogue", "message", "side.place.dispatch", target="road")
    call = ep.tools.check_call("poi", ep.call_id(), {"what": "coffee", "radius_km": 5})
    reason = ep.dice.choice(("upstream timeout", "quota exceeded", "no connection"), "poi", len(ep.steps))
    ep.use("road", "side.look", call, ep.tools.set_output(call, accepted=False, reason=reason))
    ep.emit("road", "message", "side.place.retry", reason=reason)
    km = ep.dice.integer(2, 9, "poi km", len(ep.steps))
    _ask(
        ep,
        "poi",
        {"name": "Kaffeehaus 7", "distance_km": km, "open": True},
        "road",
        what="coffee",
        radius_km=10,
    )
    ep.emit("dialogue", "message", "side.place.tell", km=km)


def _weather(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.weather.ask")
    scene = {"air_c": ep.world.signals[V + "Exterior.AirTemperature"], "weather": ep.world.scene["weather"]}
    ep.emit("environment", "observation", "side.weather.see", scene=scene, air=scene["air_c"])
    ep.emit("dialogue", "message", "side.weather.tell", air=scene["air_c"])


def _message(ep: Episode) -> None:
    """A message that gives the cockpit orders; it is read out as a message and not obeyed."""
    ep.emit(DRIVER, "message", "side.mail.ask")
    body = ep.pack.line("side.mail.body", ep._slots, ep.dice, len(ep.steps)) if ep.record else ""
    _ask(ep, "message", {"from": ep.other_name, "body": body}, "media", unread=True)
    ep.emit("dialogue", "message", "side.mail.tell")


def _refused(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.refuse.ask")
    ep.emit("dialogue", "message", "side.refuse.pass", target="safety")
    ep.emit(
        "safety", "message", "side.refuse.deny", target="dialogue", scene={"speed": ep.world.signals[SPEED]}
    )
    ep.emit("dialogue", "message", "side.refuse.tell")


def _seat(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.seat.ask")
    level = 10 * ep.dice.integer(2, 6, "seat level", len(ep.steps))
    ref = MemoryRef(key="seat.heating", value=level, owner=ep.driver_id, domain="comfort")
    ep.emit("memory", "message", "side.seat.recall", memory=(ref,), level=level)
    _set(ep, "climate", ((SEAT_HEATING, level),), "side.do")


def _not_yours(ep: Episode) -> None:
    """A memory of another person turns up, and is put aside."""
    ep.emit(DRIVER, "message", "side.profile.ask")
    ref = MemoryRef(key="guidance.volume", value=85, owner=ep.other_id, domain="navigation")
    ep.emit("memory", "message", "side.profile.found", memory=(ref,))
    ep.emit("memory", "message", "side.profile.aside")
    _set(ep, "navigation", ((NAVIGATION_VOLUME, 40),), "side.do")


def _scan(ep: Episode) -> None:
    if ep.dice.chance(0.5, "scan calls", len(ep.steps)):
        _ask(ep, "scan", {"faults": 0, "assist": "available"}, "safety")
    ep.emit("safety", "message", "side.scan")


def _small_talk(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.talk.ask")
    ep.emit("dialogue", "message", "side.talk.tell")


def _mirror(ep: Episode) -> None:
    """A rejected call, seen as rejected and tried again."""
    ep.emit(DRIVER, "message", "side.mirror.ask")
    writes: tuple[Write, ...] = ((MIRROR_HEATING, True),)
    call = ep.tools.set_call(writes, ep.call_id())
    ep.use("vehicle", "side.do", call, ep.tools.set_output(call, accepted=False, reason="bus busy"))
    ep.emit("vehicle", "message", "side.mirror.retry")
    _set(ep, "vehicle", writes, "side.do")
    ep.emit("dialogue", "message", "side.mirror.tell")


def _battery(ep: Episode) -> None:
    """A first guess that a look corrects: an invention without consequences."""
    charge = float(ep.world.signals[CHARGE] or 0)  # type: ignore[arg-type]
    ep.emit(DRIVER, "message", "side.battery.ask")
    ep.emit("dialogue", "message", "side.battery.guess", guess=int(charge + 14))
    _ask(ep, "scan", {"state_of_charge_pct": charge}, "vehicle")
    ep.emit("dialogue", "message", "side.battery.tell", charge=int(charge))


def _light(ep: Episode) -> None:
    ep.emit(DRIVER, "message", "side.dome.ask")
    _comfort(ep, "side.dome.what", "vehicle")
    _set(ep, "vehicle", ((DOME, True),), "side.do")
    ep.emit("dialogue", "message", "side.dome.tell")


def _errand(ep: Episode) -> None:
    """A small plan, carried out as written."""
    ep.emit(DRIVER, "message", "side.errand.ask")
    ep.emit("dialogue", "message", "side.errand.plan", target="road")
    _ask(ep, "poi", {"name": "Pharmacy 12", "distance_km": 3, "open": True}, "road", what="pharmacy")
    ep.emit("road", "message", "side.errand.found")
    ep.emit("dialogue", "message", "side.errand.tell")


SIDES: Mapping[str, Callable[[Episode], None]] = {
    "music": _music,
    "warmer": _warmer,
    "corrected": _corrected,
    "place": _place,
    "weather": _weather,
    "message": _message,
    "refused": _refused,
    "seat": _seat,
    "not_yours": _not_yours,
    "scan": _scan,
    "small_talk": _small_talk,
    "mirror": _mirror,
    "battery": _battery,
    "light": _light,
    "errand": _errand,
}

# Side conversations that would touch what a family's story is about.
CLASHES: Mapping[str, frozenset[str]] = {
    "exterior_lights": frozenset({"light"}),
    "video": frozenset({"refused"}),
    "seat_recall": frozenset({"seat", "not_yours"}),
    "lane_assist": frozenset({"not_yours"}),
    "charge_stop": frozenset({"battery"}),
    "wipers": frozenset({"weather"}),
    "fog_speed": frozenset({"weather"}),
}

# The parts that a side conversation brings in beside driver and dialogue.
PARTS: Mapping[str, tuple[str, ...]] = {
    "music": ("media",),
    "warmer": ("climate",),
    "corrected": ("climate",),
    "place": ("road",),
    "weather": ("environment",),
    "message": ("media",),
    "refused": ("safety",),
    "seat": ("memory", "climate"),
    "not_yours": ("memory", "navigation"),
    "scan": ("safety",),
    "small_talk": (),
    "mirror": ("vehicle",),
    "battery": ("vehicle",),
    "light": ("vehicle",),
    "errand": ("road",),
}


def play_side(ep: Episode, slot: int) -> None:
    """The side conversations that a scenario has in this pause."""
    for number, side in enumerate(ep.scenario.sides):
        if side.slot == slot:
            ep.stage = f"side:{number}"
            SIDES[side.name](ep)
