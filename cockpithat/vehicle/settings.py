"""Bounds of the snapshot log."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SnapshotSettings(BaseModel):
    """How much vehicle state a worker keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(
        default=256 * 2**20, ge=4096, description="Bytes of snapshots kept by the worker for all vehicles"
    )
    vehicle_bytes: int = Field(
        default=4 * 2**20, ge=1024, description="Bytes of recent snapshots kept of one vehicle"
    )
    ring_records: int = Field(
        default=6_000,
        ge=2,
        description="Recent snapshots kept of one vehicle: 6,000 are ten minutes at 10 Hz",
    )
    idle_ms: int = Field(
        default=30 * 60_000,
        ge=0,
        description="Broker time without a snapshot after which a vehicle goes first",
    )
    gap_ms: int = Field(
        default=60_000, ge=0, description="Silence within a session that makes its vehicle state incomplete"
    )
    max_record_bytes: int = Field(
        default=2**20, ge=64, description="Largest snapshot message taken; a larger one is dead-lettered"
    )
    max_list: int = Field(default=1_000, ge=1, description="Most snapshots taken in one message")
    jump_ms: int = Field(
        default=300_000,
        ge=0,
        description="A jump of a vehicle's clock by more than this is believed only if snapshots agree on it",
    )
