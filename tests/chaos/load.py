"""A deterministic load: interleaved sessions with snapshots, and garbage between them.

Everything comes from the number of sessions, a seed and a start time: the same arguments give the same
bytes in the same partitions in the same order, so that two runs can be compared record by record.

The sessions are the ten of the demo, given to a fleet of vehicles one after the other, some beside each
other. Half of them fail, four in ten pass, one in ten ends without a word. A quarter of the vehicles sends
no snapshots, a third of the others sends them in lists. Some events come twice, some after their
successor, some never, and some failures are flagged long after the end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from cockpithat.formats.recording import Recording, moved
from cockpithat.formats.registry import load_recordings
from stream.partitioning import murmur2_partition

Input = Literal["session_events", "vehicle_snapshots", "traces"]
Outcome = Literal["failed", "passed", "unknown"]

INPUTS: tuple[Input, ...] = ("session_events", "vehicle_snapshots", "traces")
PASS_LATER_FLAGGED_MS = 20_000
_DEMO = Path(__file__).resolve().parents[2] / "cockpithat" / "data" / "demo"
_GAP_MS = 4_000
_LIST = 5
_HUGE = 1_500_000
_DEEP = 20_000


@dataclass(frozen=True, slots=True)
class Sent:
    """One record to send at ``at_ms`` of the load's own time; ``reason`` is set for garbage only."""

    at_ms: int
    input: Input
    partition: int
    key: bytes | None
    value: bytes | None
    reason: str | None = None


@dataclass(slots=True)
class Load:
    """The records in the order they are sent, and what must come of them."""

    records: list[Sent] = field(default_factory=list)
    sessions: dict[str, Outcome] = field(default_factory=dict)
    flagged_late: set[str] = field(default_factory=set)
    irregular: dict[str, int] = field(default_factory=dict)

    @property
    def garbage(self) -> list[Sent]:
        """The records that are garbage."""
        return [sent for sent in self.records if sent.reason is not None]

    @property
    def summaries(self) -> int:
        """Summaries that come of it: one a session, and one more for each failure that is flagged late."""
        return len(self.sessions) + len(self.flagged_late)

    def count(self, role: Input) -> int:
        """How many records go to an input."""
        return sum(sent.input == role for sent in self.records)


@cache
def _demo() -> tuple[Recording, ...]:
    paths = sorted(_DEMO.glob("*.yaml"))
    return tuple(recording for path in paths for recording in load_recordings(path))


def build(
    sessions: int,
    *,
    seed: int,
    start_ms: int,
    partitions: int = 4,
    garbage_share: float = 0.01,
    irregular: bool = True,
) -> Load:
    """``sessions`` sessions on ``sessions / 8`` vehicles, event time from ``start_ms`` on."""
    chance = random.Random(seed)
    load = Load()
    timeline: list[tuple[int, int, Sent]] = []

    def put(
        at_ms: int, role: Input, key: bytes | None, value: bytes | None, reason: str | None = None
    ) -> None:
        serial = len(timeline)
        partition = serial % partitions if key is None else murmur2_partition(key, partitions)
        timeline.append((at_ms, serial, Sent(at_ms, role, partition, key, value, reason)))

    vehicles = max(1, sessions // 8)
    clocks = [start_ms + chance.randrange(30_000) for _ in range(vehicles)]
    for number in range(sessions):
        vehicle = number % vehicles
        beside = number // vehicles % 4 == 3  # this one runs at the same time as the one before it
        source = _demo()[chance.randrange(len(_demo()))]
        begins = source.events[0].ts
        starts = clocks[vehicle] - (15_000 if beside else 0)
        shifted = moved(source, starts - begins, rename=f".{number}")
        ends = _session(load, put, shifted, number, vehicle, chance, irregular, snapshots=not beside)
        clocks[vehicle] = max(clocks[vehicle], ends + _GAP_MS + chance.randrange(3_000))
    for vehicle, clock in enumerate(clocks):
        if _sends_snapshots(vehicle):  # a vehicle goes on after its last session
            key = f"vehicle-{vehicle:04d}"
            last = _well_formed(key, "vehicle_snapshots", clock + 5_000)
            put(clock + 5_000, "vehicle_snapshots", key.encode(), _json(last))
    garbage = round(len(timeline) * garbage_share / (1 - garbage_share))
    last = max(at for at, _, _ in timeline)
    for number in range(garbage):
        # Each round of ten kinds is spread over the inputs in another way.
        place = (number + number // len(KINDS)) % 10
        role = INPUTS[0] if place < 5 else INPUTS[1] if place < 9 else INPUTS[2]
        key, value, reason = _garbage(number % len(KINDS), number, role, start_ms)
        put(chance.randrange(start_ms, last), role, key, value, reason)
    load.records = [sent for _, _, sent in sorted(timeline, key=lambda item: item[:2])]
    return load


def _session(
    load: Load,
    put: Callable[..., None],
    recording: Recording,
    number: int,
    vehicle: int,
    chance: random.Random,
    irregular: bool,
    *,
    snapshots: bool,
) -> int:
    """Put one session into the load. Returns when it ends."""
    name, key = recording.events[0].session_id, f"vehicle-{vehicle:04d}"
    outcome: Outcome = (
        ("failed", "passed", "failed", "passed", "unknown")[number % 5] if number % 10 != 4 else "failed"
    )
    load.sessions[name] = outcome
    bodies = [{**event.model_dump(mode="json"), "vehicle_id": key} for event in recording.events]
    bodies[0]["sends_snapshots"] = None  # it is not announced: a worker learns it from the snapshots
    end = bodies.pop()
    times = [body["ts"] for body in bodies]
    arrivals = list(zip(times, bodies, strict=True))
    if outcome != "unknown":
        failed = outcome == "failed"
        end.update(outcome="failure" if failed else "success", failed=failed)
        if not failed:
            end.pop("failure_reason", None)
        arrivals.append((end["ts"], end))
    # A flag is late only if the session has closed. Without snapshots to wait for, its end closes it.
    if irregular and outcome == "passed" and not _sends_snapshots(vehicle) and chance.random() < 0.2:
        flag = {**end, "seq": end["seq"] + 1, "event_id": end["event_id"] + "-flag", "ts": end["ts"] + 1_000}
        flag.update(outcome="failure", failed=True, failure_reason="the driver called support")
        arrivals.append((end["ts"] + PASS_LATER_FLAGGED_MS, flag))
        load.flagged_late.add(name)
    elif irregular:
        _disturb(load, arrivals, chance)
    for at, body in arrivals:
        put(at, "session_events", key.encode(), _json(body))
    if snapshots and _sends_snapshots(vehicle):
        for at, value in _snapshots(recording, key, as_list=vehicle % 3 == 0):
            put(at, "vehicle_snapshots", key.encode(), value)
    return max(end["ts"], *(snapshot.ts for snapshot in recording.snapshots), times[-1])


def _sends_snapshots(vehicle: int) -> bool:
    return vehicle % 4 != 0


def _snapshots(recording: Recording, key: str, *, as_list: bool) -> Iterator[tuple[int, bytes]]:
    """Snapshots are under way for less time than events, and those in a list wait for its last."""
    bodies = [
        {**snapshot.model_dump(mode="json", exclude={"session_id"}), "vehicle_id": key}
        for snapshot in recording.snapshots
    ]
    if not as_list:
        for body in bodies:
            yield body["ts"] + 50, _json(body)
        return
    for first in range(0, len(bodies), _LIST):
        chunk = bodies[first : first + _LIST]
        yield chunk[-1]["ts"] + 50, _json(chunk)


def _disturb(load: Load, arrivals: list[tuple[int, dict[str, Any]]], chance: random.Random) -> None:
    """Now and then an event comes twice, after its successor, or not at all."""

    def count(kind: str) -> None:
        load.irregular[kind] = load.irregular.get(kind, 0) + 1

    steps = [place for place, (_, body) in enumerate(arrivals) if body["type"] == "step"]
    luck = chance.random()
    if luck < 0.06:
        at, body = arrivals[chance.choice(steps)]
        # Up to a minute late: often after the session has closed, and in another worker.
        arrivals.append((at + chance.randrange(1, 60_000), body))
        count("repeated")
    elif luck < 0.12:
        place = chance.choice([first for first, second in pairwise(steps) if second == first + 1])
        (early, first), (late, second) = arrivals[place], arrivals[place + 1]
        arrivals[place], arrivals[place + 1] = (early, second), (late, first)
        count("swapped")
    elif luck < 0.14 and arrivals[-1][1]["type"] == "session_end":
        del arrivals[chance.choice(steps[:-1])]
        count("missing")


def _json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


KINDS = (
    "not JSON",
    "truncated",
    "wrong schema",
    "wrong types",
    "huge",
    "empty",
    "wrong key",
    "bad encoding",
    "deep nesting",
    "unknown version",
)


def _garbage(kind: int, number: int, role: Input, ts: int) -> tuple[bytes | None, bytes | None, str]:
    """Key, value and the reason that its dead letter must give. ``kind`` is a place in :data:`KINDS`."""
    vehicle = f"garbage-{number:05d}"
    key = vehicle.encode()
    good = _well_formed(vehicle, role, ts)
    wrong = {
        "session_events": {"seq": "one"},
        "vehicle_snapshots": {"signals": ["Vehicle.Speed", 50]},
        "traces": {"steps": 7},
    }[role]
    match KINDS[kind]:
        case "not JSON":
            return key, f"garbage {number} is no JSON".encode(), "not_json"
        case "truncated":
            return key, _json(good)[:-7], "not_json"
        case "wrong schema":
            return key, _json({"type": "unheard of", "vehicle_id": vehicle, "number": number}), "schema"
        case "wrong types":
            return key, _json({**good, **wrong}), "schema"
        case "huge":
            huge = {**good, **wrong, "padding": "x" * _HUGE}
            return key, _json(huge), "too_large" if role == "vehicle_snapshots" else "schema"
        case "empty":
            return key, None if number % 2 else b"", "empty"
        case "wrong key":
            return None if number % 4 == 0 else b"another-" + key, _json(good), "wrong_key"
        case "bad encoding":
            return key, _json(good).replace(b"garbage", b"g\xff\xfebage"), "bad_encoding"
        case "deep nesting":
            return key, b"[" * _DEEP + str(number).encode() + b"]" * _DEEP, "too_deep"
        case _:
            return key, _json({**good, "schema_version": "9.1"}), "unknown_version"


def _well_formed(vehicle: str, role: Input, ts: int) -> dict[str, Any]:
    if role == "vehicle_snapshots":
        return {
            "type": "vehicle_snapshot",
            "vehicle_id": vehicle,
            "ts": ts,
            "kind": "full",
            "signals": {"Vehicle.Speed": 1.0},
        }
    common = {"vehicle_id": vehicle, "session_id": f"of-{vehicle}"}
    if role == "traces":
        return {
            "type": "trace",
            "trace_id": f"trace-of-{vehicle}",
            **common,
            "outcome": "failure",
            "steps": [],
        }
    return {
        "type": "step",
        **common,
        "event_id": f"event-of-{vehicle}",
        "seq": 1,
        "ts": ts,
        "agent": "Planner",
    }
