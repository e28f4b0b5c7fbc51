"""What goes in: vehicle snapshots, keyed by vehicle, on ``cockpit.vehicle.snapshots.v1``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from cockpithat.contract.base import (
    CONTRACT_VERSION,
    Identifier,
    SchemaVersion,
    TimestampMs,
    WireModel,
)

VssValue = bool | int | float | str | list[bool | int | float | str] | None


class VehicleSnapshot(WireModel):
    """VSS signals of one vehicle at one moment.

    ``full`` carries the whole known state, ``delta`` only what changed since the sender's last
    snapshot. ``None`` says that the sender knows the signal to be unavailable. Values are in the
    unit that the named VSS version gives.
    """

    type: Literal["vehicle_snapshot"] = "vehicle_snapshot"
    schema_version: SchemaVersion = CONTRACT_VERSION
    vehicle_id: Identifier
    ts: TimestampMs
    kind: Literal["full", "delta"] = "delta"
    vss_version: str = "4.0"
    signals: dict[str, VssValue]
    session_id: str | None = None


SnapshotPayload = VehicleSnapshot | Annotated[list[VehicleSnapshot], Field(min_length=1)]
"""One snapshot a message, or a list of them in any order."""

SNAPSHOT: TypeAdapter[VehicleSnapshot | list[VehicleSnapshot]] = TypeAdapter(SnapshotPayload)


class SignalQuality(StrEnum):
    """How far a signal's value can be used. Anything but ``valid`` never counts as safe."""

    VALID = "valid"
    UNKNOWN = "unknown"  # only deltas came and the base is not known, or never sent
    STALE = "stale"  # older than the signal's maximum age
    INVALID = "invalid"  # out of range, wrong type, or the sender says not available
