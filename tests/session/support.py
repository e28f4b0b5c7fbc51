"""A small language for sessions: make events, feed them to an engine, look at what comes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import SourceRef, Trace
from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.session.effects import DeadLettered, DuplicateIgnored, Effect, SessionQuarantined, TraceClosed
from cockpithat.session.engine import SessionEngine
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.states import VehicleStates

Event = SessionStart | StepEvent | SessionEnd
T0 = 1_767_225_600_000  # 2026-01-01
YEAR = 365 * 86_400_000
E = TypeVar("E")


def start(
    session: str = "s1", vehicle: str = "v1", seq: int = 0, ts: int = T0, **fields: Any
) -> SessionStart:
    fields.setdefault("event_id", f"{session}-{seq}")
    return SessionStart(vehicle_id=vehicle, session_id=session, seq=seq, ts=ts, **fields)


def step(
    seq: int, session: str = "s1", vehicle: str = "v1", ts: int | None = None, **fields: Any
) -> StepEvent:
    fields.setdefault("event_id", f"{session}-{seq}")
    fields.setdefault("agent", f"Agent{seq % 3}")
    fields.setdefault("text", f"step {seq} sets cabin_temperature_{seq % 4} to {20 + seq}")
    moment = T0 + 1000 * seq if ts is None else ts
    return StepEvent(vehicle_id=vehicle, session_id=session, seq=seq, ts=moment, **fields)


def end(
    seq: int, session: str = "s1", vehicle: str = "v1", ts: int | None = None, **fields: Any
) -> SessionEnd:
    fields.setdefault("event_id", f"{session}-{seq}")
    fields.setdefault("outcome", Outcome.SUCCESS)
    moment = T0 + 1000 * seq if ts is None else ts
    return SessionEnd(vehicle_id=vehicle, session_id=session, seq=seq, ts=moment, **fields)


def session(steps: int, name: str = "s1", vehicle: str = "v1", **end_fields: Any) -> list[Event]:
    """A whole session: start, ``steps`` steps a second apart, end."""
    return [
        start(name, vehicle, task="make it warmer"),
        *(step(seq, name, vehicle) for seq in range(1, steps + 1)),
        end(steps + 1, name, vehicle, **end_fields),
    ]


class Bench:
    """An engine with a partition before it: offsets count up, wall and broker time are what we say."""

    def __init__(
        self, settings: EngineSettings | None = None, vehicles: VehicleStates | None = None, **more: Any
    ) -> None:
        self.engine = SessionEngine(settings, vehicles, **more)
        self.wall = T0
        self.offset = -1
        self.effects: list[Effect] = []

    def feed(
        self,
        *events: Event,
        size: int = 500,
        broker_ts: int | None = None,
        offset: int | None = None,
    ) -> list[Effect]:
        out: list[Effect] = []
        for event in events:
            if offset is None:
                self.offset += 1
            source = SourceRef(topic="events", partition=0, offset=self.offset if offset is None else offset)
            out += self.engine.apply(
                event,
                source,
                size=size,
                broker_ts=self.wall if broker_ts is None else broker_ts,
                wall_ms=self.wall,
            )
        self.effects += out
        return out

    def wait(self, ms: int, *, catching_up: bool = False, snapshots_until: int | None = None) -> list[Effect]:
        self.wall += ms
        out = self.engine.advance(self.wall, catching_up=catching_up, snapshots_until=snapshots_until)
        self.effects += out
        return out


def only(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def traces(effects: Iterable[Effect]) -> list[Trace]:
    return [effect.trace for effect in only(effects, TraceClosed)]


def reasons(effects: Iterable[Effect]) -> list[str]:
    """What became of events that were put aside, in order."""
    names: list[str] = []
    for effect in effects:
        if isinstance(effect, DeadLettered):
            names.append(effect.reason.value)
        elif isinstance(effect, DuplicateIgnored):
            names.append("duplicate")
        elif isinstance(effect, SessionQuarantined):
            names.append("quarantined")
    return names


def full(ts: int, vehicle: str = "v1", **signals: Any) -> VehicleSnapshot:
    """A full snapshot; ``speed=3`` stands for ``Vehicle.Speed``."""
    return VehicleSnapshot(vehicle_id=vehicle, ts=ts, kind="full", signals=named(signals))


def delta(ts: int, vehicle: str = "v1", **signals: Any) -> VehicleSnapshot:
    return VehicleSnapshot(vehicle_id=vehicle, ts=ts, kind="delta", signals=named(signals))


SPEED = "Vehicle.Speed"
BEAM = "Vehicle.Body.Lights.Beam.Low.IsOn"
WINDOW = "Vehicle.Cabin.Door.Row1.DriverSide.Window.Position"
NOISE = "Vehicle.Acceleration.Longitudinal"


def named(signals: dict[str, Any]) -> dict[str, Any]:
    names = {"speed": SPEED, "beam": BEAM, "window": WINDOW, "noise": NOISE}
    return {names[name]: value for name, value in signals.items()}
