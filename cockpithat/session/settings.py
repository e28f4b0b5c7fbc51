"""Bounds and waits of the session engine."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class EngineSettings(BaseModel):
    """When a session closes, and how much of it is kept until then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_ms: int = Field(
        default=2_000,
        ge=0,
        description="Event time after a session_end within which events still missing are waited for",
    )
    end_wait_ms: int = Field(
        default=10_000,
        ge=0,
        description="Wall clock without an event of a session that has ended but misses events",
    )
    silence_ms: int = Field(
        default=120_000,
        ge=1,
        description="Wall clock without an event after which a session without a session_end closes",
    )
    max_skew_ms: int = Field(
        default=300_000,
        ge=0,
        description="How far a vehicle's clock may be ahead of the broker's before it is suspect",
    )
    reorder_events: int = Field(
        default=64, ge=1, description="Events of a session held back for a missing one before it is given up"
    )
    max_age_ms: int = Field(
        default=4 * 3_600_000, ge=1, description="Broker time after which a session is closed as truncated"
    )
    max_events: int = Field(
        default=20_000, ge=1, description="Events after which a session is closed as truncated"
    )
    max_bytes: int = Field(
        default=64 * 2**20, ge=1, description="Bytes of events after which a session is closed as truncated"
    )
    max_open_sessions: int = Field(
        default=50_000, ge=1, description="Open sessions of a worker; above it the oldest closes as truncated"
    )
    snapshot_wait_ms: int = Field(
        default=10_000,
        ge=0,
        description="Wall clock that a closing session waits for the vehicle's snapshots, if it sends any; "
        "longer, by silence_ms at most, while the worker has not read the snapshots that are there",
    )
    grid_ms: int = Field(default=100, ge=1, description="Time grid that vehicle state is reported on")
    changes_per_signal: int = Field(
        default=32, ge=4, description="Most transitions of one signal kept for one step"
    )
    unwatched_signals: int = Field(
        default=256, ge=0, description="Most signals carried that changed but that no rule watches"
    )
    remember_closed: int = Field(
        default=50_000,
        ge=0,
        description="Closed sessions still recognised, so that late events open none anew",
    )
    remember_closed_ms: int = Field(
        default=6 * 3_600_000, ge=0, description="Wall clock for which a closed session is still recognised"
    )
    remember_closed_bytes: int = Field(
        default=16 * 2**20,
        ge=0,
        description="Bytes of closed sessions kept whole in a partition, for a failure flag that comes late; "
        "the trace of an older one is looked for in its topic",
    )
