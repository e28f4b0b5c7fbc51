"""What goes in: CAN frames of one vehicle, keyed by vehicle, on ``cockpit.can.frames.v1``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from cockpithat.contract.base import CONTRACT_VERSION, Identifier, SchemaVersion, TimestampMs, WireModel


class CanFrame(WireModel):
    """One frame: its arbitration id, and up to 64 data bytes as hex digits (classic CAN and CAN FD)."""

    ts: TimestampMs
    id: Annotated[int, Field(ge=0, le=0x1FFF_FFFF)]
    extended: bool = False
    data: Annotated[str, StringConstraints(pattern=r"^(?:[0-9A-Fa-f]{2}){0,64}$")] = ""

    @property
    def payload(self) -> bytes:
        """The data bytes."""
        return bytes.fromhex(self.data)


class CanFrames(WireModel):
    """A batch of frames of one vehicle, in any order."""

    type: Literal["can_frames"] = "can_frames"
    schema_version: SchemaVersion = CONTRACT_VERSION
    vehicle_id: Identifier
    bus: str | None = None
    frames: Annotated[tuple[CanFrame, ...], Field(min_length=1)]
