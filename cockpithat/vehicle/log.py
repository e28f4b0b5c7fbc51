"""The log of vehicle snapshots: cheap on arrival, exact when a session asks.

Snapshots are nearly all messages there are and hardly any is ever looked at. So :meth:`SnapshotLog.offer`
reads whose a record is and of when, checks that it is JSON, and keeps its *bytes*: compact, and invisible to
the garbage collector. A record is parsed, and validated in full, when a session's window covers it. Per
vehicle there is a ring of recent records in order of arrival, and the base state before the ring.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.framing import unframed
from cockpithat.contract.trace import SourceRef
from cockpithat.contract.vehicle import SignalQuality, VehicleSnapshot, VssValue
from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.envelope import (
    DELTA,
    FULL,
    LOST,
    Envelope,
    EnvelopeError,
    carefully,
    not_json,
    quickly,
)
from cockpithat.vehicle.ring import RECORD_OVERHEAD, Parser, Record, Vehicle, in_time
from cockpithat.vehicle.settings import SnapshotSettings
from cockpithat.vehicle.states import Reading, StateWindow, Update

_VALID = SignalQuality.VALID
_SCALARS = frozenset({bool, int, float, str, type(None)})
_REMEMBERED = 100_000  # vehicles evicted, and records rejected, that are still recognised


@dataclass(frozen=True, slots=True)
class Rejected:
    """A snapshot message that cannot be used; ``key`` and ``value`` are its bytes, unchanged.

    Unique by the source's topic, partition and offset: a list with several bad snapshots is one.
    """

    source: SourceRef
    reason: DeadLetterReason
    detail: str
    vehicle_id: str | None
    key: bytes | None
    value: bytes | None


class SnapshotLog:
    """Vehicle state of all vehicles of a worker; implements ``VehicleStates``. Not thread-safe."""

    def __init__(
        self, settings: SnapshotSettings | None = None, catalogue: SignalCatalogue | None = None
    ) -> None:
        self._settings = settings or SnapshotSettings()
        self.catalogue = catalogue or SignalCatalogue.shipped()
        self._max_record = self._settings.max_record_bytes
        self._max_list = self._settings.max_list
        self._ring = self._settings.ring_records
        self._max_vehicle = self._settings.vehicle_bytes
        self._max_bytes = self._settings.max_bytes
        self._jump = self._settings.jump_ms
        self._vehicles: OrderedDict[bytes, Vehicle] = OrderedDict()  # least recently heard first
        self._evicted: OrderedDict[bytes, int] = OrderedDict()
        self._rejected: list[Rejected] = []
        self._reported: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        self._bytes = 0
        self._added = 0

    # ------------------------------------------------------------------ arrival

    def offer(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        topic: str,
        partition: int,
        offset: int,
        broker_ts: int,
    ) -> Rejected | None:
        """Take one message; the reason if it cannot be taken. ``broker_ts`` in epoch ms.

        Its envelope is read and its bytes join the ring; signals are not parsed. A record already seen
        (read again after a rebalance) is passed over.
        """
        vehicle = self._vehicles.get(key) if key is not None else None
        envelope = None
        if vehicle is not None and value is not None and len(value) <= self._max_record:
            envelope = quickly(value, vehicle.vehicle_id, self._max_list)
        if envelope is None:
            try:
                envelope = carefully(key, value, max_bytes=self._max_record, max_list=self._max_list)
            except EnvelopeError as error:
                return self._reject(error, key, value, topic, partition, offset)
        assert key is not None and value is not None  # carefully() refuses both
        if vehicle is None:
            vehicle = self._vehicles[key] = Vehicle(key, key.decode(), partition)
            self._evicted.pop(key, None)
            self._bytes += vehicle.bytes
        if vehicle.moves_to(topic, partition, offset):
            self._take(vehicle, envelope, value, topic, partition, offset, broker_ts)
        return None

    def _take(
        self,
        vehicle: Vehicle,
        envelope: Envelope,
        value: bytes,
        topic: str,
        partition: int,
        offset: int,
        broker_ts: int,
    ) -> None:
        """Put the snapshots of a message into the ring, and keep all bounds."""
        moments, is_list, version = envelope
        if version is not None:
            vehicle.version = version
        size = len(value) // len(moments) + RECORD_OVERHEAD
        item = 0 if is_list else -1
        append, clock, jump = vehicle.records.append, vehicle.clock, self._jump
        for ts, kind in moments:
            append((ts, kind, value, item, topic, partition, offset, size))
            clock(ts, jump)
            item += 1
        vehicle.seen = broker_ts
        vehicle.bytes += size * len(moments)
        self._bytes += size * len(moments)
        self._vehicles.move_to_end(vehicle.key)
        while vehicle.records and (len(vehicle.records) > self._ring or vehicle.bytes > self._max_vehicle):
            self._bytes += vehicle.shorten()
        if self._bytes > self._max_bytes:
            self._evict(broker_ts)

    def add(self, snapshot: VehicleSnapshot, *, broker_ts: int | None = None) -> None:
        """Take a snapshot that is already validated, as when reading files."""
        value = orjson.dumps(snapshot.model_dump(mode="json"))
        self._added += 1
        rejected = self.offer(
            snapshot.vehicle_id.encode(),
            value,
            topic="",
            partition=-1,
            offset=self._added,
            broker_ts=snapshot.ts if broker_ts is None else broker_ts,
        )
        if rejected is not None:
            raise ValueError(f"snapshot of {snapshot.vehicle_id} at {snapshot.ts}: {rejected.detail}")

    def take_rejected(self) -> list[Rejected]:
        """Records that failed full validation since the last call."""
        taken, self._rejected = self._rejected, []
        return taken

    def forget_partition(self, partition: int) -> None:
        """Drop the vehicles of a partition that another worker owns now."""
        for key, vehicle in list(self._vehicles.items()):
            if vehicle.partition == partition:
                self._bytes -= vehicle.bytes
                del self._vehicles[key]
        for key, owner in list(self._evicted.items()):
            if owner == partition:
                del self._evicted[key]
        # What was reported of them may not have gone out. Who reads them again reports them again.
        for place in [place for place in self._reported if place[1] == partition]:
            del self._reported[place]

    @property
    def memory_bytes(self) -> int:
        """Bytes kept: record values exactly, what surrounds them by estimate."""
        return self._bytes

    @property
    def vehicles(self) -> int:
        """Vehicles with state in memory."""
        return len(self._vehicles)

    # ------------------------------------------------------------------ VehicleStates

    def sends(self, vehicle_id: str) -> bool:
        """Whether a snapshot of this vehicle was ever taken, even if its state had to be evicted."""
        key = vehicle_id.encode("utf-8", "surrogatepass")
        return key in self._vehicles or key in self._evicted

    def covered_until(self, vehicle_id: str) -> int | None:
        """Time of the newest snapshot on the vehicle's clock; one wild timestamp does not count."""
        vehicle = self._vehicles.get(vehicle_id.encode("utf-8", "surrogatepass"))
        return None if vehicle is None else vehicle.newest

    def window(self, vehicle_id: str, start_ms: int, end_ms: int) -> StateWindow:
        """State from ``start_ms`` to ``end_ms``; what cannot be known is left out, never guessed.

        Only records within the span are validated in full, each new failure goes to
        :meth:`take_rejected`, and behind a failed one all that it may have changed is unknown.
        """
        vehicle = self._vehicles.get(vehicle_id.encode("utf-8", "surrogatepass"))
        if vehicle is None:
            return StateWindow(start_ms, end_ms, default_age_ms=self.catalogue.default_age_ms)
        edge = max(start_ms, vehicle.horizon)
        base, late, known, base_ts = self._base_at(vehicle, start_ms, edge)
        updates = [update for update in late if update.ts <= end_ms]
        complete = known and not late
        last = base_ts
        version = vehicle.version
        paths = set(base)
        for update in updates:
            paths.update(update.readings)
        for place, record, raw in self._span(vehicle, edge, end_ms):
            signals = self._validated(vehicle, place, record, raw)
            if signals is None or raw is None:
                updates.append(Update(record.ts, {}, reset=True))
                complete = False
                continue
            if last is not None and record.ts - last > self._settings.gap_ms:
                complete = False
            last = record.ts
            version = raw.get("vss_version", "4.0")
            readings = self._readings(signals, version)
            paths.update(readings)
            updates.append(Update(record.ts, readings, record.kind == FULL))
        updates.sort(key=lambda update: update.ts)
        default = self.catalogue.default_age_ms
        ages = {path: self.catalogue.max_age_ms(path, version) for path in paths}
        return StateWindow(
            start_ms,
            end_ms,
            base=base,
            base_ts=base_ts,
            updates=tuple(updates),
            max_age_ms={path: age for path, age in ages.items() if age != default},
            default_age_ms=default,
            complete=complete,
        )

    # ------------------------------------------------------------------ inside

    def _reject(
        self,
        error: EnvelopeError,
        key: bytes | None,
        value: bytes | None,
        topic: str,
        partition: int,
        offset: int,
    ) -> Rejected:
        vehicle = self._vehicles.get(key) if key is not None else None
        if vehicle is not None:
            self._bytes += vehicle.lose(topic, partition, offset)
        self._remember_rejected((topic, partition, offset))
        source = SourceRef(
            topic=topic,
            partition=partition,
            offset=offset,
            digest=hashlib.sha256(value or b"").hexdigest(),
        )
        vehicle_id = None if vehicle is None else vehicle.vehicle_id
        return Rejected(source, error.reason, error.detail, vehicle_id, key, value)

    def _remember_rejected(self, place: tuple[str, int, int]) -> bool:
        """Whether this record is reported for the first time."""
        if place in self._reported:
            return False
        self._reported[place] = None
        if len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)
        return True

    def _span(
        self, vehicle: Vehicle, start_ms: int, end_ms: int
    ) -> Iterator[tuple[int, Record, dict[str, Any] | None]]:
        """Records with ``start < ts <= end`` by time: place in the ring, record, content (``None``: lost)."""
        parser = Parser()
        for place, record in in_time(vehicle.records, start_ms + 1, end_ms):
            yield place, record, parser.content(record)

    def _base_at(
        self, vehicle: Vehicle, start_ms: int, edge_ms: int
    ) -> tuple[dict[str, Reading], list[Update], bool, int | None]:
        """At ``start_ms``: readings, those that came later up to ``edge_ms``, whether all is known, its time.

        The edge is the vehicle's horizon or, if later, the start. What was before the horizon is partly gone:
        of each signal only the last value up to the edge is left, and it is told from when it was said.
        """
        state = vehicle.base.until(edge_ms)
        resets = [raw[0] for raw in vehicle.records if raw[1] != DELTA and raw[0] <= edge_ms]
        state.merge_all(record for _, record in in_time(vehicle.records, max(resets, default=0), edge_ms))
        base: dict[str, Any] = {}
        later: dict[int, dict[str, Any]] = {}
        last = -1
        for path, ts in state.since.items():
            if ts <= start_ms:
                base[path] = state.values[path]
                last = max(last, ts)
            else:
                later.setdefault(ts, {})[path] = state.values[path]
        if edge_ms == start_ms:
            last = state.ts
        updates = [
            Update(ts, self._readings(values, vehicle.version)) for ts, values in sorted(later.items())
        ]
        known = state.known and edge_ms == start_ms
        return self._readings(base, vehicle.version), updates, known, last if last >= 0 else None

    def _validated(
        self, vehicle: Vehicle, place: int, record: Record, raw: dict[str, Any] | None
    ) -> dict[str, VssValue] | None:
        """The signals of a record, if all of it is as the contract says."""
        if raw is None:
            if record.kind != LOST:
                self._found_bad(vehicle, place, record, *_unreadable(record.value))
            return None
        if _is_plainly_valid(raw):
            signals: dict[str, VssValue] = raw["signals"]
            return signals
        try:
            return VehicleSnapshot.model_validate(raw).signals
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        self._found_bad(
            vehicle, place, record, DeadLetterReason.SCHEMA, f"snapshot field {where}: {first['msg']}"
        )
        return None

    def _found_bad(
        self, vehicle: Vehicle, place: int, record: Record, reason: DeadLetterReason, detail: str
    ) -> None:
        """A record in the ring proved bad: until the vehicle says a signal again it is unknown."""
        vehicle.records[place] = (record.ts, LOST, b"", -1, *record[4:7], RECORD_OVERHEAD)
        vehicle.bytes -= record.cost - RECORD_OVERHEAD
        self._bytes -= record.cost - RECORD_OVERHEAD
        if self._remember_rejected((record.topic, record.partition, record.offset)):
            source = SourceRef(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                digest=hashlib.sha256(record.value).hexdigest(),
            )
            self._rejected.append(
                Rejected(source, reason, detail, vehicle.vehicle_id, vehicle.key, record.value)
            )

    def _readings(self, signals: dict[str, VssValue], version: str) -> dict[str, Reading]:
        check = self.catalogue.check
        plain = self.catalogue.plain_bounds(version)
        of_kind = plain.get
        readings: dict[str, Reading] = {}
        for path, value in signals.items():
            known = of_kind(value.__class__)
            bounds = None if known is None else known.get(path)
            if bounds is not None and bounds[0] <= value <= bounds[1] and value not in bounds[2]:  # type: ignore[operator]
                readings[path] = Reading(value, _VALID)
            else:
                readings[path] = Reading(*check(path, value, version))
        return readings

    def _evict(self, broker_ts: int) -> None:
        """Get under the budget: idle vehicles whole, then the oldest of rings, least recently heard first."""
        while self._bytes > self._max_bytes and self._vehicles:
            key, vehicle = next(iter(self._vehicles.items()))
            is_idle = broker_ts - vehicle.seen > self._settings.idle_ms
            if is_idle or not vehicle.records:
                del self._vehicles[key]
                self._bytes -= vehicle.bytes
                self._evicted[key] = vehicle.partition
                if len(self._evicted) > _REMEMBERED:
                    self._evicted.popitem(last=False)
            else:
                self._bytes += vehicle.shorten()
                self._vehicles.move_to_end(key)


def _is_plainly_valid(raw: dict[str, Any]) -> bool:
    """Whether a record, checked at arrival, needs no closer look: what :class:`VehicleSnapshot` would find
    right, and keep as it is. Most are so, and the model takes ten times as long to say it."""
    return (
        raw.get("type", "vehicle_snapshot") == "vehicle_snapshot"
        and raw.get("session_id") is None
        and type(raw.get("vss_version", "4.0")) is str
        and _SCALARS.issuperset(map(type, raw["signals"].values()))
    )


def _unreadable(value: bytes) -> tuple[DeadLetterReason, str]:
    """Why a message that looked like JSON on arrival can't be parsed: a number too large for a float."""
    try:
        orjson.loads(unframed(value))
    except ValueError as error:
        found = not_json(value, error)
        return found.reason, found.detail
    raise AssertionError("a message that was unreadable can be read")
