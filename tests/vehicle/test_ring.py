"""What a shortened ring still tells is what happened, whatever order records came in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.ring import STATE_ENTRY
from cockpithat.vehicle.settings import SnapshotSettings
from tests.vehicle.support import BEAM, SPEED, T0, WINDOW, Feed, snapshot
from tests.vehicle.test_log import at

PATHS = (SPEED, BEAM, WINDOW)
Told = tuple[int, str, dict[str, Any]]


def true_value(records: list[Told], path: str, ts: int) -> Any:
    """The value at a time by all records that were ever sent; "unknown" after a full one without it."""
    value: Any = "unknown"
    for moment, kind, signals in sorted(records, key=lambda record: record[0]):
        if moment > ts:
            break
        value = signals.get(path, "unknown" if kind == "full" else value)
    return value


@pytest.mark.parametrize("ring", [2, 5, 17, 80])
@pytest.mark.parametrize("fulls", [0.0, 0.03, 0.2])
def test_nothing_untrue_is_told_and_the_end_is_known(ring: int, fulls: float) -> None:
    """Records up to 3 s late, some in lists; windows that begin anywhere, before the ring's horizon too."""
    for seed in range(6):
        rng = random.Random(seed)
        feed = Feed(SnapshotLog(SnapshotSettings(ring_records=ring)))
        ticks = sorted(range(200), key=lambda tick: tick + rng.choice((0, 0, 0, 3, 30)))
        sent: list[Told] = []
        for tick in ticks:
            names = rng.sample(PATHS, k=rng.randint(0, 3))
            values = {SPEED: float(rng.randrange(100)), BEAM: rng.random() < 0.5, WINDOW: rng.randrange(100)}
            kind = "full" if rng.random() < fulls else "delta"
            sent.append((T0 + 100 * tick, kind, {name: values[name] for name in names}))
        while_sent: list[Told] = []
        for place in range(0, len(sent), 2):
            pair = sent[place : place + 2]
            feed.put([snapshot(ts, signals, kind=kind) for ts, kind, signals in pair])
            while_sent += pair
            newest = max(ts for ts, _, _ in while_sent)
            if place % 20:
                continue
            begin = rng.randrange(T0 - 500, newest + 1)
            window = feed.log.window("v1", begin, newest)
            for ts in range(begin, newest + 1, 70):
                for path in PATHS:
                    told = at(window, path, ts)
                    assert told in ("unknown", true_value(while_sent, path, ts)), (seed, place, path, ts - T0)
        end = T0 + 20_000
        for path in PATHS:
            assert at(feed.log.window("v1", end, end), path, end) == true_value(sent, path, end)


def test_a_ring_is_cut_at_full_snapshots_without_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(ring_records=50)))
    monkeypatch.setattr("cockpithat.vehicle.ring.orjson", None)  # whoever parses breaks
    for tick in range(400):
        signals = {SPEED: float(tick)}
        feed.put(snapshot(T0 + 100 * tick, signals, kind="full" if tick % 20 == 0 else "delta"))
    monkeypatch.undo()
    window = feed.log.window("v1", T0 + 39_000, T0 + 39_900)
    assert window.complete and at(window, SPEED, T0 + 39_900) == 399.0


def test_one_wild_timestamp_that_has_left_the_ring_spoils_no_window() -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(ring_records=10)))
    feed.full(T0, speed=1.0, beam=True)
    feed.delta(T0 + 10**10, speed=2.0)
    for tick in range(1, 60):
        feed.delta(T0 + 100 * tick, speed=float(tick))
    window = feed.log.window("v1", T0 + 5_500, T0 + 5_900)
    assert window.complete
    assert (at(window, SPEED, T0 + 5_500), at(window, BEAM, T0 + 5_500)) == (55.0, True)


def test_after_a_clock_was_set_back_windows_become_whole_again() -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(ring_records=10)))
    for tick in range(30):
        feed.full(T0 + 10**10 + 100 * tick, speed=-1.0, beam=True)
    for tick in range(200):
        feed.delta(T0 + 100 * tick, speed=float(tick))
    feed.full(T0 + 20_000, speed=7.0)
    window = feed.log.window("v1", T0 + 20_000, T0 + 20_000)
    assert window.complete
    assert (at(window, SPEED, T0 + 20_000), at(window, BEAM, T0 + 20_000)) == (7.0, "unknown")


@pytest.mark.parametrize("fulls", [0, 7])
def test_memory_is_booked_and_given_back_to_the_byte(fulls: int) -> None:
    log = SnapshotLog(SnapshotSettings(ring_records=12))
    feed = Feed(log)
    rng = random.Random(3)
    for tick in range(300):
        ts = T0 + 100 * tick - (10**9 if 100 < tick < 220 else 0)
        kind = "full" if fulls and tick % fulls == 0 else "delta"
        feed.put(snapshot(ts, {f"Vehicle.S{rng.randrange(40)}": 1.0}, kind=kind))
        if tick % 11 == 0:
            feed.raw(b"v1", b"{")
        if tick % 40 == 0:
            feed.put(snapshot(ts, {SPEED: {"no": "value"}}))
            log.window("v1", ts - 300, ts + 300)
    (vehicle,) = log._vehicles.values()
    kept = sum(record[7] for record in vehicle.records)
    assert log.memory_bytes == vehicle.bytes == 1_000 + kept + vehicle.base_bytes
    assert vehicle.base_bytes >= len(vehicle.base.values) * STATE_ENTRY
    log.forget_partition(0)
    assert log.memory_bytes == 0
