"""What the session engine asks of vehicle state, whatever keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cockpithat.contract.vehicle import SignalQuality, VssValue


class Reading(NamedTuple):
    """One signal's value; ``value`` is ``None`` unless ``quality`` is ``valid``."""

    value: VssValue
    quality: SignalQuality


class Update(NamedTuple):
    """Readings that one snapshot brought at ``ts`` (epoch ms, the vehicle's clock).

    ``reset`` says that whatever is not in ``readings`` is unknown from here on: a full snapshot
    states the whole known state, and behind a lost record nothing older can be relied on.
    """

    ts: int
    readings: Mapping[str, Reading]
    reset: bool = False


@dataclass(frozen=True, slots=True)
class StateWindow:
    """Validated vehicle state over ``start_ms .. end_ms``, both epoch ms and inclusive.

    ``base`` is the state at the start, ``base_ts`` the time of the last snapshot before it (``None``:
    there was none), ``updates`` what came after it in time order. ``max_age_ms`` gives the age of the
    signals that differ from ``default_age_ms``. ``complete`` is false when the base is not known or
    records are missing in between.
    """

    start_ms: int
    end_ms: int
    base: Mapping[str, Reading] = field(default_factory=dict)
    base_ts: int | None = None
    updates: tuple[Update, ...] = ()
    max_age_ms: Mapping[str, int] = field(default_factory=dict)
    default_age_ms: int = 60_000
    complete: bool = False


class VehicleStates(Protocol):
    """Vehicle state by vehicle. Times are epoch ms on the vehicle's own clock."""

    def sends(self, vehicle_id: str) -> bool:
        """Whether this vehicle is known to send snapshots."""
        ...

    def covered_until(self, vehicle_id: str) -> int | None:
        """Time of the newest snapshot; ``None`` when there is none."""
        ...

    def window(self, vehicle_id: str, start_ms: int, end_ms: int) -> StateWindow:
        """State over a span of time; validates in full what it uses."""
        ...


class NoVehicleStates:
    """For inputs that have no vehicle: nothing is ever sent."""

    def sends(self, vehicle_id: str) -> bool:
        """Never."""
        return False

    def covered_until(self, vehicle_id: str) -> int | None:
        """Never."""
        return None

    def window(self, vehicle_id: str, start_ms: int, end_ms: int) -> StateWindow:
        """An empty window."""
        return StateWindow(start_ms, end_ms)
