"""The snapshot log: what is taken, what is refused and why, what a window says, what is kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.vehicle import SignalQuality, VehicleSnapshot
from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.settings import SnapshotSettings
from cockpithat.vehicle.states import Reading, StateWindow
from tests.vehicle.support import BEAM, SPEED, T0, WINDOW, Feed, snapshot

VALID, INVALID = SignalQuality.VALID, SignalQuality.INVALID


def at(window: StateWindow, path: str, ts: int) -> Any:
    """A signal's value at a time, as the window tells it; "unknown" where it tells nothing."""
    state = dict(window.base)
    for update in window.updates:
        if update.ts > ts:
            break
        if update.reset:
            state.clear()
        state.update(update.readings)
    return state[path].value if path in state else "unknown"


# ---------------------------------------------------------------- arrival


def test_a_snapshot_or_a_list_of_them_in_any_order_is_taken() -> None:
    feed = Feed(SnapshotLog())
    assert feed.full(T0, speed=1.0) is None
    items = [snapshot(T0 + 200, {SPEED: 3.0}), snapshot(T0 + 100, {SPEED: 2.0, BEAM: True})]
    assert feed.put(items) is None
    window = feed.log.window("v1", T0, T0 + 1000)
    assert [at(window, SPEED, T0 + ts) for ts in (0, 100, 150, 200)] == [1.0, 2.0, 2.0, 3.0]
    assert window.complete


def test_times_may_be_rfc3339_and_fields_unknown() -> None:
    feed = Feed(SnapshotLog())
    assert feed.put(snapshot("2026-01-01T00:00:01Z", {SPEED: 5.0}, kind="full", gps={"fix": 3})) is None
    assert feed.log.covered_until("v1") == T0 + 1000
    assert at(feed.log.window("v1", T0 + 1000, T0 + 1000), SPEED, T0 + 1000) == 5.0


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"v1", None, DeadLetterReason.EMPTY),
        (b"v1", b"", DeadLetterReason.EMPTY),
        (b"v1", b"{nope", DeadLetterReason.NOT_JSON),
        (b"v1", b'{"ts": NaN}', DeadLetterReason.NOT_JSON),
        (b"v1", b'{"x": "\xff"}', DeadLetterReason.BAD_ENCODING),
        (b"v1", b"[" * 5000 + b"]" * 5000, DeadLetterReason.TOO_DEEP),
        (b"v1", b'"text"', DeadLetterReason.SCHEMA),
        (b"v1", b"[]", DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot(T0, {}, blob="x" * 2**21)).encode(), DeadLetterReason.TOO_LARGE),
        (
            b"v1",
            json.dumps(snapshot(T0, {}, schema_version="2.0")).encode(),
            DeadLetterReason.UNKNOWN_VERSION,
        ),
        (b"v2", json.dumps(snapshot(T0, {})).encode(), DeadLetterReason.WRONG_KEY),
        (None, json.dumps(snapshot(T0, {})).encode(), DeadLetterReason.WRONG_KEY),
        (b"v1", json.dumps([snapshot(T0, {}), snapshot(T0, {}, "v2")]).encode(), DeadLetterReason.WRONG_KEY),
        (b"v1", json.dumps(snapshot(1.5, {})).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot(True, {})).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot(-1, {})).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot("soon", {})).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot(T0, [])).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps(snapshot(T0, {}, kind="partial")).encode(), DeadLetterReason.SCHEMA),
        (b"v1", json.dumps({"vehicle_id": 1, "ts": T0, "signals": {}}).encode(), DeadLetterReason.SCHEMA),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["new vehicle", "known vehicle"])
def test_what_cannot_be_used_is_refused_with_its_reason(
    key: bytes | None, value: bytes | None, reason: DeadLetterReason, known: bool
) -> None:
    feed = Feed(SnapshotLog())
    if known:
        feed.full(T0 - 1000, speed=1.0)
        feed.full(T0 - 1000, "v2", speed=1.0)
    rejected = feed.raw(key, value)
    assert rejected is not None
    assert rejected.reason == reason
    assert (rejected.key, rejected.value) == (key, value)
    assert (rejected.source.topic, rejected.source.offset) == ("snapshots", feed.offset)
    assert feed.log.sends("v1") == known


@pytest.mark.data
def test_other_systems_message_shapes_are_refused_not_misread(shared_data: Path) -> None:
    feed = Feed(SnapshotLog())
    for example in json.loads((shared_data / "vss" / "wire_examples.json").read_text()):
        rejected = feed.raw(b"v1", json.dumps(example["msg"]).encode())
        assert rejected is not None, example["name"]
        assert rejected.reason == DeadLetterReason.SCHEMA


def test_a_record_is_validated_in_full_only_when_used_and_reported_once() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0)
    assert (
        feed.put([snapshot(T0 + 100, {SPEED: {"deep": 1}}), snapshot(T0 + 200, {SPEED: {"too": 1}})]) is None
    )
    assert feed.log.take_rejected() == []
    feed.log.window("v1", T0 + 5_000, T0 + 6_000)
    assert feed.log.take_rejected() == []
    window = feed.log.window("v1", T0, T0 + 1_000)
    feed.log.window("v1", T0, T0 + 1_000)
    (rejected,) = feed.log.take_rejected()
    assert rejected.reason == DeadLetterReason.SCHEMA
    assert rejected.source.offset == 1
    assert rejected.value is not None and json.loads(rejected.value)[0]["ts"] == T0 + 100
    assert feed.log.take_rejected() == []
    assert not window.complete


def test_behind_a_lost_record_nothing_is_guessed_until_it_is_said_again() -> None:
    for lose in (
        lambda feed: feed.put(snapshot(T0 + 1_000, {SPEED: {"bad": 1}})),
        lambda feed: feed.raw(b"v1", b"{torn"),
    ):
        feed = Feed(SnapshotLog())
        feed.full(T0, speed=1.0, beam=True)
        lose(feed)
        feed.delta(T0 + 2_000, speed=3.0)
        window = feed.log.window("v1", T0 - 100, T0 + 3_000)
        assert not window.complete
        assert at(window, SPEED, T0 + 2_000) == 3.0
        assert at(window, BEAM, T0 + 2_000) == "unknown"


def test_a_run_of_bad_records_does_not_grow_the_ring() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0)
    feed.raw(b"v1", b"{torn")
    kept = feed.log.memory_bytes
    for _ in range(1_000):
        feed.raw(b"v1", b"{torn")
    assert feed.log.memory_bytes == kept


# ---------------------------------------------------------------- windows


def test_an_unknown_vehicle_has_an_empty_window() -> None:
    log = SnapshotLog()
    assert not log.sends("v1")
    assert log.covered_until("v1") is None
    window = log.window("v1", T0, T0 + 1)
    assert (window.base, window.updates, window.complete) == ({}, (), False)


def test_a_full_snapshot_states_the_whole_known_state() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0, beam=True)
    feed.full(T0 + 1_000, speed=2.0)
    window = feed.log.window("v1", T0, T0 + 2_000)
    assert at(window, BEAM, T0 + 500) is True
    assert at(window, BEAM, T0 + 1_000) == "unknown"
    assert at(feed.log.window("v1", T0 + 1_500, T0 + 2_000), BEAM, T0 + 1_500) == "unknown"


def test_readings_are_checked_and_not_available_is_invalid() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=4095, beam=None, window=200)
    window = feed.log.window("v1", T0, T0)
    assert window.base == {path: Reading(None, INVALID) for path in (SPEED, BEAM, WINDOW)}


def test_each_record_is_read_by_its_own_vss_version() -> None:
    feed = Feed(SnapshotLog())
    temperature = "Vehicle.Cabin.HVAC.Station.Row1.Driver.Temperature"
    feed.put(snapshot(T0, {temperature: 21.5}, kind="full", vss_version="4.0"))
    feed.put(snapshot(T0 + 100, {temperature: 21.5}, vss_version="6.0"))
    window = feed.log.window("v1", T0 - 1, T0 + 100)
    assert [update.readings[temperature].quality for update in window.updates] == [INVALID, VALID]


def test_a_gap_makes_the_window_incomplete() -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(gap_ms=1_000)))
    feed.full(T0, speed=1.0)
    feed.delta(T0 + 1_000, speed=2.0)
    assert feed.log.window("v1", T0, T0 + 1_000).complete
    feed.delta(T0 + 2_001, speed=2.0)
    assert not feed.log.window("v1", T0, T0 + 3_000).complete


@pytest.mark.parametrize("ring", [2, 17, 80, 200])
def test_folding_never_changes_what_is_known_only_how_far_back(ring: int) -> None:
    """Random snapshots, some out of order; a small ring against one that keeps everything."""
    for seed in range(8):
        rng = random.Random(seed)
        small = Feed(SnapshotLog(SnapshotSettings(ring_records=ring)))
        large = Feed(SnapshotLog())
        times = [T0 + 100 * tick for tick in range(400)]
        for place in range(0, 390, 7):
            times[place], times[place + 3] = times[place + 3], times[place]
        for ts in times:
            names = rng.sample([SPEED, BEAM, WINDOW], k=rng.randint(0, 3))
            values = {SPEED: float(rng.randrange(100)), BEAM: rng.random() < 0.5, WINDOW: rng.randrange(100)}
            kind = "full" if rng.random() < 0.03 else "delta"
            record = snapshot(ts, {name: values[name] for name in names}, kind=kind)
            small.put(record)
            large.put(record)
        end = T0 + 40_000
        for begin in (T0 - 1, T0 + 10_050, T0 + 33_050, T0 + 39_950):
            some, whole = (feed.log.window("v1", begin, end) for feed in (small, large))
            for ts in range(begin, end, 350):
                for path in (SPEED, BEAM, WINDOW):
                    told = at(some, path, ts)
                    if told != "unknown":
                        assert told == at(whole, path, ts), (seed, path, ts - T0)
            for path in (SPEED, BEAM, WINDOW):
                assert at(some, path, end) == at(whole, path, end)


def test_a_window_that_begins_before_the_ring_knows_only_what_has_not_changed_since() -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(ring_records=4)))
    feed.full(T0, speed=1.0, beam=True)
    for tick in range(1, 20):
        feed.delta(T0 + 1_000 * tick, speed=float(tick))
    window = feed.log.window("v1", T0 + 2_000, T0 + 19_000)
    assert not window.complete
    assert at(window, BEAM, T0 + 2_000) is True
    assert at(window, SPEED, T0 + 2_000) == "unknown"
    assert at(window, SPEED, T0 + 19_000) == 19.0


def test_records_read_again_count_once() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0)
    feed.delta(T0 + 100, speed=2.0)
    kept = feed.log.memory_bytes
    feed.offset = -1
    feed.full(T0, speed=1.0)
    feed.delta(T0 + 100, speed=2.0)
    assert feed.log.memory_bytes == kept
    feed.delta(T0 + 200, speed=3.0)
    assert feed.log.memory_bytes > kept


# ---------------------------------------------------------------- clocks


def test_one_wild_timestamp_does_not_count_as_coverage_and_a_clock_that_stays_ahead_does() -> None:
    feed = Feed(SnapshotLog())
    year = 365 * 86_400_000
    feed.full(T0, speed=1.0)
    feed.delta(T0 + year, speed=2.0)
    assert feed.log.covered_until("v1") == T0
    feed.delta(T0 + 100, speed=2.0)
    assert feed.log.covered_until("v1") == T0 + 100
    feed.delta(T0 + year + 200, speed=2.0)
    feed.delta(T0 + year + 300, speed=2.0)
    assert feed.log.covered_until("v1") == T0 + year + 300


def test_a_clock_that_was_set_back_is_believed_after_a_while() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0 + 10**9, speed=1.0)
    for tick in range(100):
        feed.delta(T0 + 100 * tick, speed=2.0)
    assert feed.log.covered_until("v1") == T0 + 9_900


# ---------------------------------------------------------------- memory


def test_the_budget_holds_and_idle_vehicles_go_first() -> None:
    log = SnapshotLog(SnapshotSettings(max_bytes=60_000, idle_ms=60_000))
    feed = Feed(log)
    idle = [f"idle{number}" for number in range(20)]
    for vehicle in idle:
        feed.put(snapshot(T0, {SPEED: 1.0}, vehicle, "full"), broker_ts=T0)
    for tick in range(400):
        for vehicle in ("busy1", "busy2"):
            feed.put(snapshot(T0 + 100 * tick, {SPEED: 2.0}, vehicle, "full"), broker_ts=T0 + 120_000)
            assert log.memory_bytes <= 60_000
    assert not any(log.covered_until(vehicle) for vehicle in idle)
    assert all(log.sends(vehicle) for vehicle in idle)
    for vehicle in ("busy1", "busy2"):
        assert at(log.window(vehicle, T0 + 39_900, T0 + 39_900), SPEED, T0 + 39_900) == 2.0


def test_many_busy_vehicles_share_a_small_budget() -> None:
    log = SnapshotLog(SnapshotSettings(max_bytes=100_000))
    feed = Feed(log)
    for tick in range(100):
        for number in range(30):
            feed.put(snapshot(T0 + 100 * tick, {SPEED: float(tick)}, f"v{number}", "full"))
            assert log.memory_bytes <= 100_000
    assert log.vehicles == 30
    for number in range(30):
        assert at(log.window(f"v{number}", T0 + 9_900, T0 + 9_900), SPEED, T0 + 9_900) == 99.0


def test_a_partition_given_away_leaves_nothing() -> None:
    log = SnapshotLog()
    for vehicle, partition in (("v1", 0), ("v2", 1)):
        value = json.dumps(snapshot(T0, {SPEED: 1.0}, vehicle)).encode()
        log.offer(vehicle.encode(), value, topic="t", partition=partition, offset=0, broker_ts=T0)
    log.forget_partition(0)
    assert (log.sends("v1"), log.sends("v2"), log.vehicles) == (False, True, 1)
    log.forget_partition(1)
    assert log.memory_bytes == 0


def test_validated_snapshots_can_be_added() -> None:
    log = SnapshotLog()
    log.add(VehicleSnapshot(vehicle_id="ü", ts=T0, kind="full", signals={SPEED: 7.0}))
    assert log.sends("ü")
    assert at(log.window("ü", T0, T0), SPEED, T0) == 7.0


@settings(max_examples=200, deadline=None)
@given(
    gaps=st.lists(st.integers(-300, 900), min_size=4, max_size=60),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    full_at=st.integers(0, 80),
)
def test_lists_and_single_messages_leave_the_same_state(
    gaps: list[int], sizes: list[int], full_at: int
) -> None:
    """What comes in order and what does not, full snapshots between changes, lists of any length."""
    paths = ("Vehicle.Speed", "Vehicle.Exterior.LightIntensity", "Vehicle.Body.Hood.IsOpen")
    items, ts = [], 1_000_000
    for number, gap in enumerate(gaps):
        ts += gap
        signals = {paths[number % 3]: number % 2 == 0 if number % 3 == 2 else float(number)}
        kind = "full" if number in (0, full_at) else "delta"
        items.append({"vehicle_id": "v", "ts": ts, "kind": kind, "signals": signals})
    single, listed = SnapshotLog(), SnapshotLog()
    for number, item in enumerate(items):
        offer = {"topic": "t", "partition": 0, "offset": number, "broker_ts": 0}
        assert single.offer(b"v", orjson.dumps(item), **offer) is None  # type: ignore[arg-type]
    first = number = 0
    while first < len(items):
        part = items[first : first + sizes[number % len(sizes)]]
        offer = {"topic": "t", "partition": 0, "offset": number, "broker_ts": 0}
        for _ in range(2):  # the second time it is known
            assert listed.offer(b"v", orjson.dumps(part), **offer) is None  # type: ignore[arg-type]
        first, number = first + len(part), number + 1
    assert single.covered_until("v") == listed.covered_until("v")
    newest = max(item["ts"] for item in items)
    start = sorted(item["ts"] for item in items)[-min(8, len(items))]
    assert single.window("v", start, newest) == listed.window("v", start, newest)
