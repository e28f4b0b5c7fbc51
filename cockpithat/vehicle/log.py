"""The log of vehicle snapshots: cheap on arrival, exact when a session asks.

Snapshots are nearly all messages there are and hardly any is ever looked at. So :meth:`SnapshotLog.offer`
parses a record once, checks its structure and keeps its *bytes*: compact, and invisible to the garbage
collector. A record is validated in full when a session's window covers it. Per vehicle there is a ring
of recent records, and one base state into which the ring's oldest records are folded in chunks, so
that a record costs two parses at most over its life, whatever the ring's length.
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
from cockpithat.contract.trace import SourceRef
from cockpithat.contract.vehicle import VehicleSnapshot, VssValue
from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.settings import SnapshotSettings
from cockpithat.vehicle.states import Reading, StateWindow, Update

_loads = orjson.loads

_DELTA, _FULL, _LOST = 0, 1, 2
_KINDS = {"delta": _DELTA, "full": _FULL}
_RECORD_OVERHEAD = 200  # bytes of a ring entry beside its value: tuple, integers, object headers
_BASE_ENTRY = 160  # bytes of one signal in the base state
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


class _Record(NamedTuple):
    """One snapshot in a ring. ``item`` is its place in a list message, -1 outside of one."""

    ts: int
    kind: int
    value: bytes
    item: int
    topic: str
    partition: int
    offset: int
    cost: int


class _Vehicle:
    """One vehicle: folded base state, ring of recent records, and what is known of its clock."""

    __slots__ = (
        "base",
        "base_known",
        "base_ts",
        "behind",
        "bytes",
        "key",
        "last_offset",
        "last_topic",
        "newest",
        "partition",
        "pending_ts",
        "records",
        "reset_ts",
        "seen",
        "unsorted",
        "vehicle_id",
        "version",
    )

    def __init__(self, key: bytes, vehicle_id: str, partition: int) -> None:
        self.key = key
        self.vehicle_id = vehicle_id
        self.partition = partition
        self.records: list[_Record] = []
        self.unsorted = False
        self.base: dict[str, tuple[int, Any]] = {}  # path: time of the reading, reading as sent
        self.base_ts: int | None = None  # time of the newest snapshot folded
        self.base_known = False  # a full snapshot lies beneath, and nothing was lost since
        self.reset_ts = -1  # time of the newest full or lost record folded
        self.newest: int | None = None
        self.pending_ts: int | None = None
        self.behind = 0
        self.bytes = _VEHICLE_OVERHEAD
        self.last_offset = -1
        self.last_topic = ""
        self.seen = 0  # broker time of the last record
        self.version = "4.0"

    def sort(self) -> None:
        """Bring the ring into time order; records of one time stay in order of arrival."""
        if self.unsorted:
            self.records.sort(key=_record_ts)
            self.unsorted = False


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

        Amortised constant work a message beside its one JSON parse: an append, and now and then the
        folding of a quarter of a ring. A record already seen (read again after a rebalance) is
        passed over.
        """
        data: Any = None
        try:
            data = _loads(value)  # type: ignore[arg-type]  # None raises, and is told apart below
            vehicle = self._vehicles[key]  # type: ignore[index]  # None is no key
            ts = data["ts"]
            if (
                type(ts) is int
                and 0 <= ts <= MAX_TIMESTAMP_MS
                and data["vehicle_id"] == vehicle.vehicle_id
                and type(data["signals"]) is dict
                and data.get("schema_version", "1.0") == "1.0"
                and len(value) <= self._max_record  # type: ignore[arg-type]
            ):
                kind = _KINDS[data.get("kind", "delta")]
                if (
                    offset > vehicle.last_offset
                    or topic != vehicle.last_topic
                    or partition != vehicle.partition
                ):
                    cost = len(value) + _RECORD_OVERHEAD  # type: ignore[arg-type]
                    records = vehicle.records
                    if records and ts < records[-1][0]:
                        vehicle.unsorted = True
                    records.append(_Record(ts, kind, value, -1, topic, partition, offset, cost))  # type: ignore[arg-type]
                    vehicle.bytes += cost
                    self._bytes += cost
                    self._arrived(vehicle, ts, topic, partition, offset, broker_ts)
                return None
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        return self._offer_slowly(data, key, value, topic, partition, offset, broker_ts)

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
        vehicle.sort()
        base, late, known, base_ts = self._base_at(vehicle, start_ms)
        updates = [update for update in late if update.ts <= end_ms]
        complete = known and not late
        last = base_ts
        version = vehicle.version
        paths = set(base)
        for update in updates:
            paths.update(update.readings)
        for place, record, raw in self._span(vehicle, start_ms, end_ms):
            snapshot = self._validated(vehicle, place, record, raw)
            if snapshot is None:
                updates.append(Update(record.ts, {}, reset=True))
                complete = False
                continue
            if last is not None and record.ts - last > self._settings.gap_ms:
                complete = False
            last = record.ts
            version = snapshot.vss_version
            readings = self._readings(snapshot.signals, version)
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
        self, vehicle: _Vehicle, ts: int, topic: str, partition: int, offset: int, broker_ts: int
    ) -> None:
        vehicle.last_offset = offset
        vehicle.last_topic = topic
        vehicle.partition = partition
        vehicle.seen = broker_ts
        self._vehicles.move_to_end(vehicle.key)
        newest = vehicle.newest
        if newest is None or 0 <= ts - newest <= self._jump:
            vehicle.newest = ts
            vehicle.behind = 0
        elif not -self._jump <= ts - newest <= 0:
            self._clock_jumped(vehicle, ts)
        if len(vehicle.records) > self._ring or vehicle.bytes > self._max_vehicle:
            self._fold(vehicle, max(1, len(vehicle.records) // 4))
        if self._bytes > self._max_bytes:
            self._evict(broker_ts)

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
            vehicle = self._vehicles[key] = _Vehicle(key, key.decode(), partition)
            self._evicted.pop(key, None)
            self._bytes += vehicle.bytes
        elif offset <= vehicle.last_offset and topic == vehicle.last_topic and partition == vehicle.partition:
            return None
        cost = len(value) // len(items) + _RECORD_OVERHEAD
        is_list = type(data) is list
        for index, (ts, kind) in enumerate(items):
            if vehicle.records and ts < vehicle.records[-1].ts:
                vehicle.unsorted = True
            vehicle.records.append(
                _Record(ts, kind, value, index if is_list else -1, topic, partition, offset, cost)
            )
            vehicle.bytes += cost
            self._bytes += cost
            self._arrived(vehicle, ts, topic, partition, offset, broker_ts)
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
                data = _loads(value)
            except ValueError as error:
                raise _not_json(value, error) from None
        items = data if isinstance(data, list) else [data]
        if not items or len(items) > self._settings.max_list:
            raise _CheckError(
                DeadLetterReason.SCHEMA,
                f"a list of {len(items)} snapshots; 1 to {self._settings.max_list} are taken in a message",
            )
        return [_check_snapshot(item, key) for item in items]

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
            if last is None or last.kind != _LOST or last.ts != vehicle.newest:
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
        vehicle.unsorted = True
        vehicle.records.append(_Record(ts, _LOST, b"", -1, topic, partition, offset, _RECORD_OVERHEAD))
        vehicle.bytes += _RECORD_OVERHEAD
        self._bytes += _RECORD_OVERHEAD

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
        """Records with ``start < ts <= end`` and what they hold (``None``: lost)."""
        parsed: tuple[bytes, Any] = (b"", None)
        for place, record in enumerate(vehicle.records):
            if record.ts > end_ms:
                return
            if record.ts <= start_ms:
                continue
            parsed, raw = _parse(record, parsed)
            yield place, record, raw

    def _base_at(
        self, vehicle: _Vehicle, start_ms: int
    ) -> tuple[dict[str, Reading], list[Update], bool, int | None]:
        """State at ``start_ms``: readings, those folded that came later, whether it is whole, its time."""
        raw: dict[str, Any] = {}
        later: dict[int, dict[str, Any]] = {}
        for path, (ts, value) in vehicle.base.items():
            if ts <= start_ms:
                raw[path] = value
            else:
                later.setdefault(ts, {})[path] = value
        known = vehicle.base_known
        base_ts = vehicle.base_ts
        if base_ts is not None and base_ts > start_ms:
            # The span begins before what the ring still holds: only readings unchanged since count.
            known = False
            base_ts = max((ts for ts, _ in vehicle.base.values() if ts <= start_ms), default=None)
        parsed: tuple[bytes, Any] = (b"", None)
        for record in _from_last_reset(vehicle.records, start_ms):
            parsed, content = _parse(record, parsed)
            if content is None:
                raw, known = {}, False
                continue
            if record.kind == _FULL:
                raw, known = {}, True
            raw.update(content["signals"])
            base_ts = record.ts if base_ts is None else max(base_ts, record.ts)
        readings = self._readings(raw, vehicle.version)
        updates = [
            Update(ts, self._readings(values, vehicle.version)) for ts, values in sorted(later.items())
        ]
        return readings, updates, known, base_ts

    def _validated(
        self, vehicle: _Vehicle, place: int, record: _Record, raw: dict[str, Any] | None
    ) -> VehicleSnapshot | None:
        if raw is None:
            return None
        try:
            return VehicleSnapshot.model_validate(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        vehicle.records[place] = record._replace(kind=_LOST, value=b"", cost=_RECORD_OVERHEAD)
        freed = record.cost - _RECORD_OVERHEAD
        vehicle.bytes -= freed
        self._bytes -= freed
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
        return {path: Reading(*check(path, value, version)) for path, value in signals.items()}

    def _fold(self, vehicle: _Vehicle, count: int) -> None:
        """Move the ``count`` oldest records of the ring into the base state."""
        vehicle.sort()
        chunk = vehicle.records[:count]
        del vehicle.records[:count]
        before = vehicle.bytes
        vehicle.bytes -= sum(record.cost for record in chunk) + len(vehicle.base) * _BASE_ENTRY
        parsed: tuple[bytes, Any] = (b"", None)
        for record in _from_last_reset(chunk, chunk[-1].ts):
            parsed, content = _parse(record, parsed)
            self._fold_one(vehicle, record, content)
        vehicle.bytes += len(vehicle.base) * _BASE_ENTRY
        self._bytes += vehicle.bytes - before

    @staticmethod
    def _fold_one(vehicle: _Vehicle, record: _Record, content: dict[str, Any] | None) -> None:
        ts = record.ts
        base = vehicle.base
        if ts < vehicle.reset_ts:
            return  # a newer full snapshot has already said all that this one could
        if record.kind != _DELTA:
            vehicle.reset_ts = ts
            vehicle.base_known = record.kind == _FULL
            for path in [path for path, (since, _) in base.items() if since <= ts]:
                del base[path]
        if content is None:
            return
        for path, value in content["signals"].items():
            held = base.get(path)
            if held is None or held[0] <= ts:
                base[path] = (ts, value)
        if vehicle.base_ts is None or ts > vehicle.base_ts:
            vehicle.base_ts = ts
        version = content.get("vss_version")
        if isinstance(version, str):
            vehicle.version = version

    def _evict(self, broker_ts: int) -> None:
        """Get under the budget: idle vehicles whole, then the older half of rings, oldest heard first."""
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
                self._fold(vehicle, (len(vehicle.records) + 1) // 2)
                self._vehicles.move_to_end(key)


class _CheckError(Exception):
    """Why a message is not taken."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _record_ts(record: _Record) -> int:
    return record.ts


def _from_last_reset(records: list[_Record], until_ms: int) -> list[_Record]:
    """Records up to ``until_ms`` from the last one that states everything: what came before is moot."""
    chosen: list[_Record] = []
    for record in records:
        if record.ts > until_ms:
            break
        if record.kind != _DELTA:
            chosen = []
        chosen.append(record)
    return chosen


def _parse(record: _Record, parsed: tuple[bytes, Any]) -> tuple[tuple[bytes, Any], dict[str, Any] | None]:
    """The snapshot in a record; ``parsed`` keeps the last message, as records of one list share it."""
    if record.kind == _LOST:
        return parsed, None
    if parsed[0] is not record.value:
        parsed = (record.value, _loads(record.value))
    content: dict[str, Any] = parsed[1] if record.item < 0 else parsed[1][record.item]
    return parsed, content


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
