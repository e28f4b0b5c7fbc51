"""What the stream benchmarks send: the product's ten demo sessions, for as many vehicles as asked.

Sessions are interleaved as they would arrive from a fleet: every vehicle's next event, in turn. Each
repetition has vehicles, sessions and event ids of its own. An event has 110 to 780 bytes, 365 in the mean.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from cockpithat.formats import load_recordings
from cockpithat.vehicle.catalogue import SignalCatalogue

T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DEMO = Path(__file__).resolve().parents[3] / "cockpithat" / "data" / "demo"
TICK_MS = 100

Message = tuple[bytes, bytes]


def vehicle_name(number: int) -> str:
    """A name as long as a VIN."""
    return f"WVWZZZ1KZAW{number:06d}"


@cache
def templates() -> tuple[tuple[dict[str, Any], ...], ...]:
    """Events of the ten demo sessions in wire form, times relative to the first."""
    found = []
    for path in sorted(DEMO.glob("*.yaml")):
        for recording in load_recordings(path):
            start = recording.events[0].ts
            events = [
                {**event.model_dump(mode="json", exclude_defaults=True), "type": event.type}
                for event in recording.events
            ]
            found.append(tuple({**event, "ts": event["ts"] - start} for event in events))
    return tuple(found)


def session(
    number: int,
    vehicle: str,
    start_ms: int,
    *,
    snapshots: bool | None = None,
    span_ms: int | None = None,
) -> Iterator[Message]:
    """The events of one session. ``snapshots``: what it announces about vehicle state; ``span_ms``: how
    long it lasts, if not as the original."""
    template = templates()[number % len(templates())]
    name = f"session-{number:07d}"
    key = vehicle.encode()
    for event in template:
        stamped = {
            **event,
            "vehicle_id": vehicle,
            "session_id": name,
            "event_id": f"{name}/{event['seq']}",
            "ts": start_ms
            + (event["ts"] if span_ms is None else event["ts"] * span_ms // max(1, template[-1]["ts"])),
        }
        if "in_reply_to" in stamped:
            stamped["in_reply_to"] = f"{name}/{stamped['in_reply_to'].rsplit('/', 1)[-1]}"
        if event["type"] == "session_start":
            stamped["sends_snapshots"] = snapshots
        yield key, orjson.dumps(stamped)


def interleaved(sessions: int, vehicles: int, *, first: int = 0) -> list[Message]:
    """``sessions`` whole sessions over ``vehicles`` vehicles; a vehicle has one at a time."""
    made: list[Message] = []
    for begin in range(0, sessions, vehicles):
        running = [
            session(first + number, vehicle_name(number % vehicles), T0 + 60_000 * (begin // vehicles))
            for number in range(begin, min(begin + vehicles, sessions))
        ]
        while running:
            still = []
            for one in running:
                message = next(one, None)
                if message is not None:
                    made.append(message)
                    still.append(one)
            running = still
    return made


@cache
def signals() -> tuple[tuple[str, str], ...]:
    """VSS paths that rules watch, with their datatypes: numbers and booleans, as nearly all are."""
    catalogue = SignalCatalogue.shipped()
    return tuple(
        (path, spec.datatype)
        for path in sorted(catalogue.paths("4.0"))
        if (spec := catalogue.spec(path, "4.0")) and spec.datatype in {"float", "uint8", "boolean"}
    )


def _value(datatype: str, rng: random.Random) -> bool | int | float:
    if datatype == "boolean":
        return rng.random() < 0.5
    return rng.randrange(100) if datatype == "uint8" else round(rng.uniform(0, 100), 1)


def snapshot(
    vehicle: str, ts: int, rng: random.Random, *, full: bool = False, count: int = 8
) -> dict[str, Any]:
    """One snapshot in wire form: ``count`` signals in a delta, all in a full one."""
    chosen: Sequence[tuple[str, str]] = signals() if full else rng.sample(signals(), k=count)
    return {
        "type": "vehicle_snapshot",
        "schema_version": "1.0",
        "vehicle_id": vehicle,
        "ts": ts,
        "kind": "full" if full else "delta",
        "vss_version": "4.0",
        "signals": {path: _value(datatype, rng) for path, datatype in chosen},
    }


def snapshots(
    records: int, vehicles: int, *, in_list: int = 1, full_every: int = 100, start: int = T0
) -> list[Message]:
    """``records`` messages of all vehicles in turn, ten snapshots a second of each, ``in_list`` a message."""
    rng = random.Random(7)
    made: list[Message] = []
    for number in range(records):
        vehicle = vehicle_name(number % vehicles)
        first = number // vehicles * in_list
        items = [
            snapshot(vehicle, start + TICK_MS * tick, rng, full=tick % full_every == 0)
            for tick in range(first, first + in_list)
        ]
        made.append((vehicle.encode(), orjson.dumps(items[0] if in_list == 1 else items)))
    return made
