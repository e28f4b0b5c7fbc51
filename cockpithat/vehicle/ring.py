"""One vehicle's recent snapshots as bytes, and the state before them.

A ring is shortened where it costs least: at a full snapshot, which says all that came before it would
have said, nothing has to be parsed. Only what a vehicle sent without full snapshots is folded into the base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from cockpithat.contract.framing import unframed
from cockpithat.vehicle.envelope import DELTA, FULL, LOST

RECORD_OVERHEAD = 200  # bytes of a ring entry beside its value: tuple, integers, object headers
STATE_ENTRY = 200  # bytes of one signal in a state: value, time, two dictionary slots
_VEHICLE_OVERHEAD = 1_000
_BEHIND = 50  # consecutive snapshots behind the newest that show the vehicle's clock was set back

Raw = tuple[int, int, bytes, int, str, int, int, int]


class Record(NamedTuple):
    """One snapshot in a ring. ``item`` is its place in a list message, -1 outside of one.

    A ring holds the same as a plain tuple (``Raw``), which the garbage collector stops tracking.
    """

    ts: int
    kind: int
    value: bytes
    item: int
    topic: str
    partition: int
    offset: int
    cost: int


class State:
    """A vehicle's state after some of its records, whatever order they came in.

    ``values`` are as sent and not checked, ``since`` the time of the record each came with. ``known``
    says that a full snapshot lies beneath and nothing was lost after it; ``reset_ts`` is its time.
    """

    __slots__ = ("known", "reset_ts", "since", "ts", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.since: dict[str, int] = {}
        self.ts = -1
        self.known = False
        self.reset_ts = -1

    def until(self, ts: int) -> State:
        """A state of its own, of what was said up to ``ts``. Not known if more was said later."""
        other = State()
        other.since = {path: moment for path, moment in self.since.items() if moment <= ts}
        other.values = {path: self.values[path] for path in other.since}
        if self.ts <= ts:
            other.ts, other.known = self.ts, self.known
        else:
            other.ts = max(other.since.values(), default=-1)
        other.reset_ts = self.reset_ts if self.reset_ts <= ts else -1
        return other

    def merge(self, ts: int, kind: int, signals: dict[str, Any]) -> None:
        """Take in one record. One older than what is here tells only what no newer one does."""
        if ts < self.reset_ts:
            return  # a newer full snapshot has already said all that this one could
        since = self.since
        if kind != DELTA:
            self.reset_ts = ts
            self.known = kind == FULL
            for path in [path for path, moment in since.items() if moment <= ts]:
                del since[path]
                del self.values[path]
        for path, value in signals.items():
            if since.get(path, -1) <= ts:
                since[path] = ts
                self.values[path] = value
        self.ts = max(self.ts, ts)

    def merge_all(self, records: Iterable[Record]) -> None:
        """Take in records; one that cannot be read is lost."""
        parser = Parser()
        for record in records:
            content = parser.content(record)
            if content is None:
                self.merge(record.ts, LOST, {})
            else:
                self.merge(record.ts, record.kind, content["signals"])


class Vehicle:
    """One vehicle: base, ring, and what is known of its clock. ``bytes`` is what all of it takes."""

    __slots__ = (
        "base",
        "base_bytes",
        "behind",
        "bytes",
        "horizon",
        "key",
        "last_offset",
        "last_topic",
        "newest",
        "partition",
        "pending_ts",
        "records",
        "seen",
        "vehicle_id",
        "version",
    )

    def __init__(self, key: bytes, vehicle_id: str, partition: int) -> None:
        self.key = key
        self.vehicle_id = vehicle_id
        self.partition = partition
        self.base = State()
        self.base_bytes = 0  # what the base was booked with
        self.records: list[Raw] = []
        self.horizon = -1  # time up to which records may be missing from the ring
        self.version = "4.0"  # of VSS, as the newest record says
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

    def clock(self, ts: int, jump_ms: int) -> None:
        """Note a snapshot's time. Far from the newest, ahead is believed when two agree, behind when many
        in a row do."""
        newest = self.newest
        if newest is None or 0 <= ts - newest <= jump_ms:
            self.newest = ts
            self.behind = 0
            return
        if -jump_ms <= ts - newest <= 0:
            return
        agrees = self.pending_ts is not None and abs(ts - self.pending_ts) <= jump_ms
        is_ahead = ts > newest
        self.behind = 0 if is_ahead else self.behind + 1
        if agrees and (is_ahead or self.behind >= _BEHIND):
            self.newest = ts
            self.pending_ts = None
            self.behind = 0
            if not is_ahead:
                self.base, self.horizon = self.base.until(ts), min(self.horizon, ts)
        else:
            self.pending_ts = ts

    def lose(self, topic: str, partition: int, offset: int) -> int:
        """Note a record that could not be used: until the vehicle says so again, its state is not known.

        One marker serves a run of bad records, so that they cannot grow the ring. Bytes by which it grew.
        """
        if self.newest is None:
            return 0
        last = self.records[-1] if self.records else None
        if last is not None and last[1] == LOST and last[0] == self.newest:
            return 0
        self.records.append((self.newest, LOST, b"", -1, topic, partition, offset, RECORD_OVERHEAD))
        self.bytes += RECORD_OVERHEAD
        return RECORD_OVERHEAD

    def shorten(self) -> int:
        """Drop the ring's oldest part, and say by how many bytes the vehicle grew (negative: shrank).

        To the last full snapshot (or lost record) of the older half; where there is none, a quarter is
        folded into the base, which parses it. Times that the vehicle's clock was not believed to show are
        left out. Either way nothing from the horizon on changes.
        """
        records = self.records
        half = (len(records) + 1) // 2
        cut = next((place for place in range(half, 0, -1) if self._is_reset(place)), 0)
        count = cut or (len(records) + 3) // 4
        dropped = records[:count]
        freed = sum(record[7] for record in dropped) + self.base_bytes
        believed = [record for record in dropped if self.newest is None or record[0] <= self.newest]
        self.horizon = max([self.horizon, *(record[0] for record in believed)])
        if cut and self.horizon <= records[cut][0]:
            self.base = State()
            self.horizon = records[cut][0]
        else:
            self.base.merge_all(map(Record._make, believed))
        del records[:count]
        self.base_bytes = len(self.base.values) * STATE_ENTRY
        grown = self.base_bytes - freed
        self.bytes += grown
        return grown

    def _is_reset(self, place: int) -> bool:
        """Whether what came before a place of the ring says nothing about what follows."""
        if place >= len(self.records):
            return False
        ts, kind = self.records[place][:2]
        return kind != DELTA and (self.newest is None or ts <= self.newest)


class Parser:
    """Contents of records. Records of one message follow each other, and it is parsed once."""

    def __init__(self) -> None:
        self._value = b""
        self._content: Any = None

    def content(self, record: Record) -> dict[str, Any] | None:
        """The snapshot; ``None`` for one that is lost, or that proves to be no JSON."""
        if record.kind == LOST:
            return None
        if self._value is not record.value:
            self._value = record.value
            try:
                self._content = orjson.loads(unframed(record.value))
            except ValueError:
                self._content = None
        if self._content is None:
            return None
        content: dict[str, Any] = self._content if record.item < 0 else self._content[record.item]
        return content


def in_time(records: Sequence[Raw], start_ms: int, end_ms: int) -> list[tuple[int, Record]]:
    """Records with ``start <= ts <= end`` and their place in the ring, in order of time, then arrival."""
    chosen = [(place, raw) for place, raw in enumerate(records) if start_ms <= raw[0] <= end_ms]
    chosen.sort(key=lambda pair: pair[1][0])
    return [(place, Record._make(raw)) for place, raw in chosen]
