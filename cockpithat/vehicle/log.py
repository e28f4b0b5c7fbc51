"""The log of vehicle snapshots: cheap on arrival, exact when a session asks.

Snapshots are nearly all messages there are and hardly any is ever looked at. So :meth:`SnapshotLog.offer`
parses a record once, checks its structure and keeps its *bytes*: compact, and invisible to the garbage
collector. A record is validated in full when a session's window covers it. Per vehicle there is a ring
of recent records in order of arrival, the base state before the ring, and the state after it, which each
record joins as it arrives; now and then that state is copied as a mark. Shortening the ring to a mark
makes the mark the base, so that no record has to be parsed again for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from cockpithat.contract.base import CONTRACT_MAJOR, MAX_TIMESTAMP_MS, to_epoch_ms
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.framing import unframed
from cockpithat.contract.trace import SourceRef
from cockpithat.contract.vehicle import SignalQuality, VehicleSnapshot, VssValue
from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.settings import SnapshotSettings
from cockpithat.vehicle.states import Reading, StateWindow, Update

_loads = orjson.loads

_DELTA, _FULL, _LOST = 0, 1, 2
_SCALARS = frozenset({bool, int, float, str, type(None)})
_KINDS = {"delta": _DELTA, "full": _FULL}
_RECORD_OVERHEAD = 200  # bytes of a ring entry beside its value: tuple, integers, object headers
_STATE_ENTRY = 200  # bytes of one signal in a state: value, time, two dictionary slots
_MARK_RECORDS = 64  # records between marks, at first
_MARKS = 8  # marks kept of one vehicle; above it every second goes
_VEHICLE_OVERHEAD = 1_000
_REMEMBERED = 100_000  # vehicles evicted, and records rejected, that are still recognised
_BEHIND = 50  # consecutive snapshots behind the newest that show the vehicle's clock was set back


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


_Raw = tuple[int, int, bytes, int, str, int, int, int]


class _Record(NamedTuple):
    """One snapshot in a ring. ``item`` is its place in a list message, -1 outside of one.

    A ring holds the same as a plain tuple (``_Raw``), which the garbage collector stops tracking.
    """

    ts: int
    kind: int
    value: bytes
    item: int
    topic: str
    partition: int
    offset: int
    cost: int


class _State:
    """A vehicle's state after some of its records, whatever order they came in.

    ``values`` are as sent and not checked, ``since`` the time of the record each came with. ``known``
    says that a full snapshot lies beneath and nothing was lost after it; ``reset_ts`` is its time.
    """

    __slots__ = ("known", "reset_ts", "since", "ts", "values", "version")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.since: dict[str, int] = {}
        self.ts = -1
        self.known = False
        self.reset_ts = -1
        self.version = "4.0"

    def copy(self) -> _State:
        """A state of its own."""
        other = _State.__new__(_State)
        other.values = self.values.copy()
        other.since = self.since.copy()
        other.ts = self.ts
        other.known = self.known
        other.reset_ts = self.reset_ts
        other.version = self.version
        return other

    def merge(self, ts: int, kind: int, signals: dict[str, Any]) -> None:
        """Take in one record. One older than what is here tells only what no newer one does."""
        if ts < self.reset_ts:
            return  # a newer full snapshot has already said all that this one could
        since = self.since
        if kind != _DELTA:
            self.reset_ts = ts
            self.known = kind == _FULL
            for path in [path for path, moment in since.items() if moment <= ts]:
                del since[path]
                del self.values[path]
        for path, value in signals.items():
            if since.get(path, -1) <= ts:
                since[path] = ts
                self.values[path] = value
        self.ts = max(self.ts, ts)


class _Vehicle:
    """One vehicle: its base, ring, state after the ring, marks, and what is known of its clock."""

    __slots__ = (
        "base",
        "behind",
        "bytes",
        "head",
        "key",
        "last_offset",
        "last_topic",
        "mark_bytes",
        "mark_every",
        "marks",
        "newest",
        "partition",
        "pending_ts",
        "records",
        "seen",
        "unmarked",
        "vehicle_id",
    )

    def __init__(self, key: bytes, vehicle_id: str, partition: int, mark_every: int) -> None:
        self.key = key
        self.vehicle_id = vehicle_id
        self.partition = partition
        self.base = _State()
        self.records: list[_Raw] = []
        self.head = _State()
        self.marks: list[tuple[int, int, _State]] = []  # records before it, their bytes, state after them
        self.mark_every = mark_every
        self.unmarked = 0  # records since the last mark
        self.mark_bytes = 0  # bytes of those records
        self.newest: int | None = None
        self.pending_ts: int | None = None
        self.behind = 0
        self.bytes = _VEHICLE_OVERHEAD
        self.last_offset = -1
        self.last_topic = ""
        self.seen = 0  # broker time of the last record

    def moves_to(self, topic: str, partition: int, offset: int) -> bool:
        """Note how far the vehicle's records were read; false for one that was, as after a rebalance."""
        if offset <= self.last_offset and topic == self.last_topic and partition == self.partition:
            return False
        self.last_offset, self.last_topic, self.partition = offset, topic, partition
        return True


class SnapshotLog:
    """Vehicle state of all vehicles of a worker; implements ``VehicleStates``. Not thread-safe."""

    def __init__(
        self, settings: SnapshotSettings | None = None, catalogue: SignalCatalogue | None = None
    ) -> None:
        self._settings = settings or SnapshotSettings()
        self.catalogue = catalogue or SignalCatalogue.shipped()
        self._max_record = self._settings.max_record_bytes
        self._ring = self._settings.ring_records
        self._max_vehicle = self._settings.vehicle_bytes
        self._max_bytes = self._settings.max_bytes
        self._mark_every = max(1, min(_MARK_RECORDS, self._ring // 4))
        self._mark_bytes = max(1, self._settings.vehicle_bytes // _MARKS)
        self._jump = self._settings.jump_ms
        self._vehicles: OrderedDict[bytes, _Vehicle] = OrderedDict()  # least recently heard first
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

        Amortised constant work a message beside its one JSON parse: its signals join the vehicle's
        state, its bytes the ring, and a copy of the state is shared by many records. A record
        already seen (read again after a rebalance) is passed over.
        """
        data: Any = None
        kind = -1
        try:
            data = _loads(unframed(value))  # type: ignore[arg-type]  # None raises, and is told apart below
            vehicle = self._vehicles[key]  # type: ignore[index]  # None is no key
            if type(data) is list and self._offer_list(
                vehicle, data, value, topic, partition, offset, broker_ts
            ):
                return None
            ts = data["ts"]
            signals = data["signals"]
            if (
                type(ts) is int
                and 0 <= ts <= MAX_TIMESTAMP_MS
                and data["vehicle_id"] == vehicle.vehicle_id
                and type(signals) is dict
                and data.get("schema_version", "1.0") == "1.0"
            ):
                kind = _KINDS[data.get("kind", "delta")]
        except (ValueError, TypeError, KeyError, AttributeError):
            kind = -1
        if kind < 0 or value is None or len(value) > self._max_record:
            return self._offer_slowly(data, key, value, topic, partition, offset, broker_ts)
        if vehicle.moves_to(topic, partition, offset):
            record = (ts, kind, value, -1, topic, partition, offset, len(value) + _RECORD_OVERHEAD)
            self._arrived(vehicle, record, signals, data.get("vss_version"), broker_ts)
        return None

    def _offer_list(
        self,
        vehicle: _Vehicle,
        data: list[Any],
        value: bytes | None,
        topic: str,
        partition: int,
        offset: int,
        broker_ts: int,
    ) -> bool:
        """Take a list as a vehicle usually sends it: changes, in order of time, newer than all before.

        False leaves everything as it was, for :meth:`_offer_slowly` to look at. What is told of the list as
        a whole (bytes, marks, the ring's bounds) is booked once.
        """
        count = len(data)
        newest = vehicle.newest
        if value is None or newest is None or not 0 < count <= self._settings.max_list:
            return False
        if len(value) > self._max_record:
            return False
        head, known, jump = vehicle.head, vehicle.vehicle_id, self._jump
        last = max(head.ts, newest)
        for item in data:
            checked = _quick_check(item, known)
            if checked is None or checked[1] != _DELTA:
                return False
            ts = checked[0]
            if ts < last or ts - newest > jump:
                return False
            last = newest = ts
        if not vehicle.moves_to(topic, partition, offset):
            return True
        values, since = head.values, head.since
        grown = len(values)
        cost = len(value) // count + _RECORD_OVERHEAD
        for place, item in enumerate(data):
            signals, ts = item["signals"], item["ts"]
            values.update(signals)
            since.update(dict.fromkeys(signals, ts))
            vehicle.records.append((ts, _DELTA, value, place, topic, partition, offset, cost))
        version = item.get("vss_version")
        if version != head.version and isinstance(version, str):
            head.version = version
        head.ts = vehicle.newest = newest
        vehicle.behind = 0
        self._booked(vehicle, count, cost * count, (len(values) - grown) * _STATE_ENTRY, broker_ts)
        return True

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
        base, late, known, base_ts = self._base_at(vehicle, start_ms)
        updates = [update for update in late if update.ts <= end_ms]
        complete = known and not late
        last = base_ts
        version = vehicle.head.version
        paths = set(base)
        for update in updates:
            paths.update(update.readings)
        for place, record, raw in self._span(vehicle, start_ms, end_ms):
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
            updates.append(Update(record.ts, readings, reset=record.kind == _FULL))
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

    def _arrived(
        self, vehicle: _Vehicle, record: _Raw, signals: dict[str, Any], version: Any, broker_ts: int
    ) -> None:
        ts, kind, _, _, _, _, _, cost = record
        head = vehicle.head
        if version != head.version and isinstance(version, str):
            head.version = version
        if ts < head.ts:
            grown = len(head.values)
            head.merge(ts, kind, signals)
            cost += (len(head.values) - grown) * _STATE_ENTRY
        else:
            grown = len(head.values)
            if kind == _FULL:
                head.values = signals
                head.since = dict.fromkeys(signals, ts)
                head.reset_ts = ts
                head.known = True
            else:
                head.values.update(signals)
                head.since.update(dict.fromkeys(signals, ts))
            head.ts = ts
            cost += (len(head.values) - grown) * _STATE_ENTRY
        vehicle.records.append(record)
        newest = vehicle.newest
        if newest is None or 0 <= ts - newest <= self._jump:
            vehicle.newest = ts
            vehicle.behind = 0
        elif not -self._jump <= ts - newest <= 0:
            self._clock_jumped(vehicle, ts)
        self._booked(vehicle, 1, record[7], cost - record[7], broker_ts)

    def _booked(self, vehicle: _Vehicle, records: int, size: int, grown: int, broker_ts: int) -> None:
        """Book records of ``size`` bytes that are in the ring, and keep all bounds.

        ``grown``: bytes by which the state after the ring grew.
        """
        vehicle.seen = broker_ts
        vehicle.bytes += size + grown
        self._bytes += size + grown
        self._vehicles.move_to_end(vehicle.key)
        vehicle.unmarked += records
        vehicle.mark_bytes += size
        if vehicle.unmarked >= vehicle.mark_every or vehicle.mark_bytes >= self._mark_bytes:
            self._mark(vehicle)
        while vehicle.records and (len(vehicle.records) > self._ring or vehicle.bytes > self._max_vehicle):
            self._shorten(vehicle)
        if self._bytes > self._max_bytes:
            self._evict(broker_ts)

    def _mark(self, vehicle: _Vehicle) -> None:
        """Copy the state, so that the ring can be shortened to here."""
        state = vehicle.head.copy()
        vehicle.marks.append((vehicle.unmarked, vehicle.mark_bytes, state))
        vehicle.unmarked = vehicle.mark_bytes = 0
        self._grow(vehicle, len(state.values) * _STATE_ENTRY)
        if len(vehicle.marks) > _MARKS:
            vehicle.mark_every *= 2
            merged: list[tuple[int, int, _State]] = []
            for place, (count, size, after) in enumerate(vehicle.marks):
                if place % 2:
                    before = merged.pop()
                    self._grow(vehicle, -len(before[2].values) * _STATE_ENTRY)
                    merged.append((before[0] + count, before[1] + size, after))
                else:
                    merged.append((count, size, after))
            vehicle.marks = merged

    def _grow(self, vehicle: _Vehicle, size: int) -> None:
        vehicle.bytes += size
        self._bytes += size

    def _shorten(self, vehicle: _Vehicle) -> None:
        """Drop the ring's oldest part: to the first mark, or a quarter of it where there is no mark."""
        freed = len(vehicle.base.values) * _STATE_ENTRY
        if vehicle.marks:
            count, size, vehicle.base = vehicle.marks.pop(0)
            del vehicle.records[:count]
            self._grow(vehicle, -size - freed)  # the mark's own bytes are now the base's
            return
        count = (len(vehicle.records) + 3) // 4
        parsed: tuple[bytes, Any] = (b"", None)
        for record in map(_Record._make, vehicle.records[:count]):
            parsed, content = _parse(record, parsed)
            vehicle.base.merge(record.ts, record.kind, content["signals"] if content else {})
            vehicle.unmarked -= 1
            vehicle.mark_bytes -= record.cost
            freed += record.cost
        vehicle.base.version = vehicle.head.version
        del vehicle.records[:count]
        self._grow(vehicle, len(vehicle.base.values) * _STATE_ENTRY - freed)

    def _clock_jumped(self, vehicle: _Vehicle, ts: int) -> None:
        """Far from the newest time: ahead is believed when two agree, behind when many in a row do."""
        agrees = vehicle.pending_ts is not None and abs(ts - vehicle.pending_ts) <= self._jump
        is_ahead = vehicle.newest is not None and ts > vehicle.newest
        vehicle.behind = 0 if is_ahead else vehicle.behind + 1
        if agrees and (is_ahead or vehicle.behind >= _BEHIND):
            vehicle.newest = ts
            vehicle.pending_ts = None
            vehicle.behind = 0
        else:
            vehicle.pending_ts = ts

    def _offer_slowly(
        self,
        data: Any,
        key: bytes | None,
        value: bytes | None,
        topic: str,
        partition: int,
        offset: int,
        broker_ts: int,
    ) -> Rejected | None:
        """A vehicle's first record, a list, a timestamp as text, or something wrong."""
        try:
            items = self._checked(data, key, value)
        except _CheckError as error:
            return self._reject(error, key, value, topic, partition, offset)
        assert key is not None and value is not None  # _checked refuses both
        vehicle = self._vehicles.get(key)
        if vehicle is None:
            vehicle = self._vehicles[key] = _Vehicle(key, key.decode(), partition, self._mark_every)
            self._evicted.pop(key, None)
            self._bytes += vehicle.bytes
        if not vehicle.moves_to(topic, partition, offset):
            return None
        cost = len(value) // len(items) + _RECORD_OVERHEAD
        is_list = isinstance(data, list)
        for item, (ts, kind) in enumerate(items):
            content = data[item] if is_list else data
            record = (ts, kind, value, item if is_list else -1, topic, partition, offset, cost)
            self._arrived(vehicle, record, content["signals"], content.get("vss_version"), broker_ts)
        return None

    def _checked(self, data: Any, key: bytes | None, value: bytes | None) -> list[tuple[int, int]]:
        """Time and kind of each snapshot in a message. Raises :class:`_CheckError`."""
        if not value:
            raise _CheckError(DeadLetterReason.EMPTY, "the message has no value")
        if len(value) > self._max_record:
            raise _CheckError(
                DeadLetterReason.TOO_LARGE, f"{len(value)} bytes, {self._max_record} are taken at most"
            )
        if data is None:
            try:
                data = _loads(unframed(value))
            except ValueError as error:
                raise _not_json(value, error) from None
        items = data if isinstance(data, list) else [data]
        if not items or len(items) > self._settings.max_list:
            raise _CheckError(
                DeadLetterReason.SCHEMA,
                f"a list of {len(items)} snapshots; 1 to {self._settings.max_list} are taken in a message",
            )
        vehicle = self._vehicles.get(key) if key is not None else None
        vehicle_id = None if vehicle is None else vehicle.vehicle_id
        return [_quick_check(item, vehicle_id) or _check_snapshot(item, key) for item in items]

    def _reject(
        self,
        error: _CheckError,
        key: bytes | None,
        value: bytes | None,
        topic: str,
        partition: int,
        offset: int,
    ) -> Rejected:
        vehicle = self._vehicles.get(key) if key is not None else None
        if vehicle is not None and vehicle.newest is not None:
            # It may have carried a change: until the vehicle says so again, its state is not known.
            # One marker serves a run of bad records, so that they cannot grow the ring.
            last = vehicle.records[-1] if vehicle.records else None
            if last is None or last[1] != _LOST or last[0] != vehicle.newest:
                self._mark_lost(vehicle, vehicle.newest, topic, partition, offset)
        self._remember_rejected((topic, partition, offset))
        source = SourceRef(
            topic=topic,
            partition=partition,
            offset=offset,
            digest=hashlib.sha256(value or b"").hexdigest(),
        )
        vehicle_id = None if vehicle is None else vehicle.vehicle_id
        return Rejected(source, error.reason, error.detail, vehicle_id, key, value)

    def _mark_lost(self, vehicle: _Vehicle, ts: int, topic: str, partition: int, offset: int) -> None:
        vehicle.records.append((ts, _LOST, b"", -1, topic, partition, offset, _RECORD_OVERHEAD))
        vehicle.unmarked += 1
        vehicle.mark_bytes += _RECORD_OVERHEAD
        before = len(vehicle.head.values)
        vehicle.head.merge(ts, _LOST, {})
        self._grow(vehicle, _RECORD_OVERHEAD + (len(vehicle.head.values) - before) * _STATE_ENTRY)

    def _remember_rejected(self, place: tuple[str, int, int]) -> bool:
        """Whether this record is reported for the first time."""
        if place in self._reported:
            return False
        self._reported[place] = None
        if len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)
        return True

    def _span(
        self, vehicle: _Vehicle, start_ms: int, end_ms: int
    ) -> Iterator[tuple[int, _Record, dict[str, Any] | None]]:
        """Records with ``start < ts <= end`` by time: place in the ring, record, content (``None``: lost)."""
        parsed: tuple[bytes, Any] = (b"", None)
        for place, record in _in_time(vehicle.records, start_ms + 1, end_ms):
            parsed, raw = _parse(record, parsed)
            yield place, record, raw

    def _base_at(
        self, vehicle: _Vehicle, start_ms: int
    ) -> tuple[dict[str, Reading], list[Update], bool, int | None]:
        """At ``start_ms``: readings, those of the base that came later, whether all is known, its time."""
        base = vehicle.base
        state = _State()
        later: dict[int, dict[str, Any]] = {}
        for path, ts in base.since.items():
            if ts <= start_ms:
                state.since[path] = ts
                state.values[path] = base.values[path]
            else:
                later.setdefault(ts, {})[path] = base.values[path]
        if base.ts > start_ms:
            # The span begins before what the ring still holds: only readings unchanged since count.
            state.ts = max(state.since.values(), default=-1)
            state.reset_ts = base.reset_ts if base.reset_ts <= start_ms else -1
        else:
            state.ts, state.known, state.reset_ts = base.ts, base.known, base.reset_ts
        parsed: tuple[bytes, Any] = (b"", None)
        earlier = [record for _, record in _in_time(vehicle.records, 0, start_ms)]
        resets = [place for place, record in enumerate(earlier) if record.kind != _DELTA]
        for record in earlier[resets[-1] if resets else 0 :]:
            parsed, content = _parse(record, parsed)
            state.merge(record.ts, record.kind, content["signals"] if content else {})
        known = state.known and base.ts <= start_ms
        readings = self._readings(state.values, vehicle.head.version)
        updates = [
            Update(ts, self._readings(values, vehicle.head.version)) for ts, values in sorted(later.items())
        ]
        return readings, updates, known, state.ts if state.ts >= 0 else None

    def _validated(
        self, vehicle: _Vehicle, place: int, record: _Record, raw: dict[str, Any] | None
    ) -> dict[str, VssValue] | None:
        """The signals of a record, if all of it is as the contract says."""
        if raw is None:
            return None
        if _is_plainly_valid(raw):
            signals: dict[str, VssValue] = raw["signals"]
            return signals
        try:
            return VehicleSnapshot.model_validate(raw).signals
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        vehicle.records[place] = (record.ts, _LOST, b"", -1, *record[4:7], _RECORD_OVERHEAD)
        self._distrust(vehicle, record.cost - _RECORD_OVERHEAD)
        if self._remember_rejected((record.topic, record.partition, record.offset)):
            source = SourceRef(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                digest=hashlib.sha256(record.value).hexdigest(),
            )
            detail = f"snapshot field {where}: {first['msg']}"
            self._rejected.append(
                Rejected(
                    source, DeadLetterReason.SCHEMA, detail, vehicle.vehicle_id, vehicle.key, record.value
                )
            )
        return None

    def _readings(self, signals: dict[str, VssValue], version: str) -> dict[str, Reading]:
        check = self.catalogue.check
        plain = self.catalogue.plain_bounds(version)
        readings: dict[str, Reading] = {}
        for path, value in signals.items():
            known = plain.get(type(value))
            bounds = None if known is None else known.get(path)
            if bounds is not None and bounds[0] <= value <= bounds[1]:  # type: ignore[operator]
                readings[path] = Reading(value, SignalQuality.VALID)
            else:
                readings[path] = Reading(*check(path, value, version))
        return readings

    def _distrust(self, vehicle: _Vehicle, freed: int) -> None:
        """A record in the ring proved bad, and its signals are in the state and the marks: start these anew.

        Until the vehicle says a signal again it is then unknown. Windows are not touched by this:
        they are made from the base and the ring.
        """
        for _, _, state in vehicle.marks:
            freed += len(state.values) * _STATE_ENTRY
        freed += len(vehicle.head.values) * _STATE_ENTRY
        vehicle.marks.clear()
        vehicle.unmarked = len(vehicle.records)
        head = _State()
        head.version, head.ts, head.reset_ts = vehicle.head.version, vehicle.head.ts, vehicle.head.ts
        vehicle.head = head
        self._grow(vehicle, -freed)
        vehicle.mark_bytes = sum(record[7] for record in vehicle.records)

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
                self._shorten(vehicle)
                self._vehicles.move_to_end(key)


class _CheckError(Exception):
    """Why a message is not taken."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _in_time(records: list[_Raw], start_ms: int, end_ms: int) -> list[tuple[int, _Record]]:
    """Records with ``start <= ts <= end`` and their place in the ring, in order of time, then arrival."""
    chosen = [(place, raw) for place, raw in enumerate(records) if start_ms <= raw[0] <= end_ms]
    chosen.sort(key=lambda pair: pair[1][0])
    return [(place, _Record._make(raw)) for place, raw in chosen]


def _parse(record: _Record, parsed: tuple[bytes, Any]) -> tuple[tuple[bytes, Any], dict[str, Any] | None]:
    """The snapshot in a record; ``parsed`` keeps the last message, as records of one list share it."""
    if record.kind == _LOST:
        return parsed, None
    if parsed[0] is not record.value:
        parsed = (record.value, _loads(unframed(record.value)))
    content: dict[str, Any] = parsed[1] if record.item < 0 else parsed[1][record.item]
    return parsed, content


def _is_plainly_valid(raw: dict[str, Any]) -> bool:
    """Whether a record, checked at arrival, needs no closer look: what :class:`VehicleSnapshot` would find
    right, and keep as it is. Most are so, and the model takes ten times as long to say it."""
    return (
        raw.get("type", "vehicle_snapshot") == "vehicle_snapshot"
        and raw.get("session_id") is None
        and type(raw.get("vss_version", "4.0")) is str
        and _SCALARS.issuperset(map(type, raw["signals"].values()))
    )


def _quick_check(item: Any, vehicle_id: str | None) -> tuple[int, int] | None:
    """As :func:`_check_snapshot`, for what nearly every snapshot is; ``None``: look closer."""
    if type(item) is not dict or item.get("vehicle_id") != vehicle_id or vehicle_id is None:
        return None
    ts, kind = item.get("ts"), item.get("kind", "delta")
    if (
        type(ts) is int
        and 0 <= ts <= MAX_TIMESTAMP_MS
        and item.get("schema_version", "1.0") == "1.0"
        and type(item.get("signals")) is dict
        and type(kind) is str
        and kind in _KINDS
    ):
        return ts, _KINDS[kind]
    return None


def _check_snapshot(item: Any, key: bytes | None) -> tuple[int, int]:
    if not isinstance(item, dict):
        raise _CheckError(DeadLetterReason.SCHEMA, "expected a snapshot object, or a list of them")
    version = item.get("schema_version", "1.0")
    if not isinstance(version, str) or version.split(".", 1)[0] != str(CONTRACT_MAJOR):
        raise _CheckError(
            DeadLetterReason.UNKNOWN_VERSION, f"schema_version is not of major version {CONTRACT_MAJOR}"
        )
    vehicle_id = item.get("vehicle_id")
    if not isinstance(vehicle_id, str) or not 1 <= len(vehicle_id) <= 256:
        raise _CheckError(DeadLetterReason.SCHEMA, "vehicle_id is not a text of 1 to 256 characters")
    if key is None or key != vehicle_id.encode("utf-8", "surrogatepass"):
        raise _CheckError(DeadLetterReason.WRONG_KEY, "the message key is not the snapshot's vehicle_id")
    kind = item.get("kind", "delta")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _CheckError(DeadLetterReason.SCHEMA, "kind is neither full nor delta")
    if not isinstance(item.get("signals"), dict):
        raise _CheckError(DeadLetterReason.SCHEMA, "signals is not an object of VSS paths")
    try:
        return to_epoch_ms(item.get("ts")), _KINDS[kind]
    except ValueError as error:
        raise _CheckError(DeadLetterReason.SCHEMA, f"ts: {error}") from None


def _not_json(value: bytes, error: ValueError) -> _CheckError:
    try:
        value.decode()
    except UnicodeDecodeError as problem:
        return _CheckError(DeadLetterReason.BAD_ENCODING, f"not UTF-8 at byte {problem.start}")
    if any(word in str(error).lower() for word in ("depth", "recursion")):
        return _CheckError(DeadLetterReason.TOO_DEEP, "JSON nested too deeply")
    return _CheckError(DeadLetterReason.NOT_JSON, f"not JSON: {error}")
