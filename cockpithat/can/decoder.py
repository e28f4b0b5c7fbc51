"""Decodes one vehicle's CAN frames into VSS delta snapshots.

What a bus says when it does not know is not a value: named codes such as ``..._SNA``,
``..._INVALID`` or ``..._FAULT``, and numbers outside the range the DBC declares, become ``None``
(unavailable), even where a mapping would turn them into a plain ``false``. KUKSA's provider passes
those on; here an unknown light must not read as a light that is off.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cantools.database
from cantools.database.can import Database, Message
from cantools.database.errors import Error as DatabaseError
from cantools.database.namedsignalvalue import NamedSignalValue

from cockpithat.can.mapping import CanMappingError, SignalMapping
from cockpithat.contract.can import CanFrame
from cockpithat.contract.vehicle import VehicleSnapshot, VssValue

GRID_MS = 100
_UNAVAILABLE = re.compile(r"(?:^|_)(?:SNA|INVALID|FAULT|FAULTED|NOT_?AVAILABLE|ERROR|UNKNOWN)$", re.I)


@dataclass(slots=True)
class DecodeCounts:
    """What became of the frames so far."""

    decoded: int = 0
    unmapped: int = 0  # a frame that no mapped signal lives in, or that the DBC does not know
    undecodable: int = 0  # too short or malformed for its DBC message
    unavailable: int = 0  # signal values that carried a not-available code or lay out of range


@dataclass(slots=True)
class _Leaf:
    value: VssValue
    ts: int


@dataclass(frozen=True, slots=True)
class _MappedMessage:
    message: Message
    mappings: tuple[SignalMapping, ...]
    limits: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)


class CanDecoder:
    """One DBC with one mapping, for any number of vehicles; remembers each leaf's last value.

    Cost of a frame: one dictionary look-up, the DBC decode of its message, and the signals mapped
    from it; memory grows with vehicles times mapped leaves.
    """

    def __init__(self, database: Database, mappings: Sequence[SignalMapping], vss_version: str) -> None:
        self.vss_version = vss_version
        self.counts = DecodeCounts()
        self._last: dict[str, dict[str, _Leaf]] = defaultdict(dict)
        self._messages = _index(database, mappings)

    @classmethod
    def from_files(cls, dbc: Path, mappings: Sequence[SignalMapping], vss_version: str) -> CanDecoder:
        """Load the DBC. Raises :class:`CanMappingError` if it cannot be read or parsed."""
        try:
            database = cantools.database.load_file(dbc, database_format="dbc", strict=False)
        except OSError as error:
            raise CanMappingError(f"{dbc}: cannot be read ({error.strerror}); check can.dbc") from error
        except DatabaseError as error:
            raise CanMappingError(f"{dbc}: not a DBC file ({error})") from error
        if not isinstance(database, Database):
            raise CanMappingError(f"{dbc}: not a CAN database")
        return cls(database, mappings, vss_version)

    def fresh(self) -> CanDecoder:
        """A decoder of the same DBC and mapping that remembers no vehicle and has counted nothing."""
        other = copy(self)
        other.counts = DecodeCounts()
        other._last = defaultdict(dict)
        return other

    def decode(self, vehicle_id: str, frames: Iterable[CanFrame]) -> list[VehicleSnapshot]:
        """Delta snapshots on the 100 ms grid, oldest first; none where nothing mapped changed.

        A frame that the DBC does not know or cannot decode is counted and skipped: buses carry many
        that no mapping asks for.
        """
        moments: dict[int, dict[str, VssValue]] = {}
        known = self._last[vehicle_id]
        for frame in frames:
            mapped = self._messages.get((frame.id, frame.extended))
            if mapped is None:
                self.counts.unmapped += 1
                continue
            try:
                values: dict[str, Any] = mapped.message.decode(  # type: ignore[assignment]
                    frame.payload, decode_choices=True, allow_truncated=True
                )
            except (cantools.database.DecodeError, ValueError, KeyError):
                self.counts.undecodable += 1
                continue
            self.counts.decoded += 1
            for mapping in mapped.mappings:
                if mapping.signal not in values:  # another multiplexer page, or cut off
                    continue
                value = self._value(mapping, values[mapping.signal], mapped.limits[mapping.signal])
                if _due(mapping, known.get(mapping.path), value, frame.ts):
                    known[mapping.path] = _Leaf(value, frame.ts)
                    moments.setdefault(-(-frame.ts // GRID_MS) * GRID_MS, {})[mapping.path] = value
        return [
            VehicleSnapshot(
                vehicle_id=vehicle_id, ts=ts, kind="delta", vss_version=self.vss_version, signals=signals
            )
            for ts, signals in sorted(moments.items())
        ]

    def _value(self, mapping: SignalMapping, raw: Any, limits: tuple[float | None, float | None]) -> VssValue:
        if isinstance(raw, NamedSignalValue):
            name = str(raw.name)
            if _UNAVAILABLE.search(name):
                self.counts.unavailable += 1
                return None
            return mapping.convert(name)
        low, high = limits
        if (low is not None and raw < low) or (high is not None and raw > high):
            self.counts.unavailable += 1
            return None
        return mapping.convert(raw)


def _index(database: Database, mappings: Sequence[SignalMapping]) -> dict[tuple[int, bool], _MappedMessage]:
    by_signal: dict[str, list[SignalMapping]] = defaultdict(list)
    for mapping in mappings:
        by_signal[mapping.signal].append(mapping)
    index: dict[tuple[int, bool], _MappedMessage] = {}
    found: set[str] = set()
    for message in database.messages:
        wanted = [signal for signal in message.signals if signal.name in by_signal]
        if not wanted:
            continue
        found.update(signal.name for signal in wanted)
        index[(message.frame_id, message.is_extended_frame)] = _MappedMessage(
            message=message,
            mappings=tuple(mapping for signal in wanted for mapping in by_signal[signal.name]),
            limits={signal.name: (signal.minimum, signal.maximum) for signal in wanted},
        )
    if missing := sorted(set(by_signal) - found):
        raise CanMappingError(
            f"the mapping names signals that the DBC does not have: {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        )
    return index


def _due(mapping: SignalMapping, last: _Leaf | None, value: VssValue, ts: int) -> bool:
    """A changed value is always passed on; an unchanged one again after its interval, as a sign of life."""
    if last is None or (mapping.on_change and last.value != value):
        return True
    return ts - last.ts >= max(mapping.interval_ms, GRID_MS)
