"""Snapshots as bytes, offered to a log with offsets that count up."""

from __future__ import annotations

import json
from typing import Any

from cockpithat.vehicle.log import Rejected, SnapshotLog

T0 = 1_767_225_600_000
SPEED = "Vehicle.Speed"
BEAM = "Vehicle.Body.Lights.Beam.Low.IsOn"
WINDOW = "Vehicle.Cabin.Door.Row1.DriverSide.Window.Position"


def snapshot(ts: Any, signals: Any, vehicle: str = "v1", kind: str = "delta", **more: Any) -> dict[str, Any]:
    return {"vehicle_id": vehicle, "ts": ts, "kind": kind, "signals": signals, **more}


class Feed:
    """A partition of snapshots before a log."""

    def __init__(self, log: SnapshotLog) -> None:
        self.log = log
        self.offset = -1

    def raw(self, key: bytes | None, value: bytes | None, broker_ts: int = T0) -> Rejected | None:
        self.offset += 1
        return self.log.offer(
            key, value, topic="snapshots", partition=0, offset=self.offset, broker_ts=broker_ts
        )

    def put(self, data: Any, broker_ts: int = T0) -> Rejected | None:
        first = data[0] if isinstance(data, list) else data
        return self.raw(first["vehicle_id"].encode(), json.dumps(data).encode(), broker_ts)

    def full(self, ts: int, vehicle: str = "v1", **signals: Any) -> Rejected | None:
        return self.put(snapshot(ts, named(signals), vehicle, "full"))

    def delta(self, ts: int, vehicle: str = "v1", **signals: Any) -> Rejected | None:
        return self.put(snapshot(ts, named(signals), vehicle))


def named(signals: dict[str, Any]) -> dict[str, Any]:
    names = {"speed": SPEED, "beam": BEAM, "window": WINDOW}
    return {names[name]: value for name, value in signals.items()}
