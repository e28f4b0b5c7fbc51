"""The quick reading of an envelope takes nothing that a full parse would refuse, or read differently."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.framing import frame
from cockpithat.vehicle.envelope import DELTA, FULL, EnvelopeError, carefully, quickly
from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.settings import SnapshotSettings
from tests.vehicle.support import BEAM, SPEED, T0, Feed, snapshot

_ALPHABET = b'{}[]",:0123456789.eE+-ntfau\\\x00\x80\xff \xc3\xa4\xed\xa0\x80'


def quick(value: bytes | None) -> Any:
    return quickly(value, "v1", 10)


def full_reading(value: bytes) -> Any:
    try:
        return carefully(b"v1", value, max_bytes=2**20, max_list=10)
    except EnvelopeError:
        return None


def damaged(rng: random.Random) -> bytes:
    """A snapshot or a list of two with one to three bytes changed, left out or put in."""
    item = {
        "type": "vehicle_snapshot",
        "schema_version": "1.0",
        "vehicle_id": "v1",
        "ts": T0,
        "kind": rng.choice(["delta", "full"]),
        "vss_version": "4.0",
        "signals": {"a.b": 1.5, "c": True, "d": None, "e": "tä\n", "f": -12, "g": [1, 2, {"x": 1e5}]},
        "extra": {"q": [1, 2, "z\\u00e4"]},
    }
    value = bytearray(orjson.dumps([item, item] if rng.random() < 0.5 else item))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        place, what = rng.randrange(len(value)), rng.random()
        if what < 0.4:
            value[place] = rng.choice(_ALPHABET)
        elif what < 0.7:
            del value[place]
        else:
            value.insert(place, rng.choice(_ALPHABET))
    return bytes(value)


@pytest.mark.parametrize("seed", range(10))
def test_on_damaged_messages_both_readings_say_the_same(seed: int) -> None:
    rng = random.Random(seed)
    taken = 0
    for _ in range(4_000):
        value = damaged(rng)
        if (envelope := quick(value)) is not None:
            taken += 1
            assert envelope == full_reading(value), value
    assert taken > 500


def test_lists_frames_and_text_beyond_ascii_are_read_quickly() -> None:
    item = snapshot(T0, {"Vehicle.Tür": "größer"}, kind="full")
    later = snapshot(T0 + 5, {}, vss_version="6.0")
    value = orjson.dumps([item, later])
    expected = ([(T0, FULL), (T0 + 5, DELTA)], True, "6.0")
    assert quick(value) == quick(frame(7) + value) == full_reading(value) == expected
    assert quick(orjson.dumps(item)) == ([(T0, FULL)], False, "4.0")


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"7",
        b"null",
        orjson.dumps(snapshot("2026-01-01T00:00:01Z", {})),
        orjson.dumps(snapshot(float(T0), {})),
        orjson.dumps(snapshot(-1, {})),
        orjson.dumps(snapshot(True, {})),
        orjson.dumps(snapshot(T0, [])),
        orjson.dumps(snapshot(T0, {}, "v2")),
        orjson.dumps([snapshot(T0, {}), snapshot(T0, {}, "v2")]),
        orjson.dumps(snapshot(T0, {}, kind="half")),
        orjson.dumps(snapshot(T0, {}, schema_version="2.0")),
        orjson.dumps([snapshot(T0 + number, {}) for number in range(11)]),
        orjson.dumps(snapshot(T0, {"a": "x"})).replace(b"x", b"\xff"),
        b'{"vehicle_id":"v1","ts":1,"signals":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    ],
)
def test_what_is_unusual_is_left_to_the_full_parse(value: bytes | None) -> None:
    assert quick(value) is None


def test_bad_text_inside_the_signals_is_refused_on_arrival() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0)
    rejected = feed.raw(b"v1", orjson.dumps(snapshot(T0 + 1, {"a": "x"})).replace(b'"x"', b'"\xc3\x28"'))
    assert rejected is not None and rejected.reason is DeadLetterReason.BAD_ENCODING


@pytest.mark.parametrize("number", ["1e999", "-" + "9" * 400])
def test_a_number_beyond_any_float_is_refused_when_a_session_asks(number: str) -> None:
    """Numbers are not built on arrival. The record's bytes go out unchanged, once, and nothing is guessed."""
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0, beam=True)
    bad = orjson.dumps(snapshot(T0 + 1_000, {SPEED: 5})).replace(b":5}", f":{number}}}".encode())
    assert feed.raw(b"v1", bad) is None
    feed.delta(T0 + 2_000, speed=3.0)
    for _ in range(2):
        window = feed.log.window("v1", T0, T0 + 3_000)
        assert not window.complete
        assert [set(update.readings) for update in window.updates] == [set(), {SPEED}]
    (rejected,) = feed.log.take_rejected()
    assert (rejected.reason, rejected.value) == (DeadLetterReason.NOT_JSON, bad)


def test_in_a_ring_too_small_to_be_asked_it_is_lost_and_nothing_is_guessed() -> None:
    feed = Feed(SnapshotLog(SnapshotSettings(ring_records=4)))
    feed.full(T0, speed=1.0, beam=True)
    assert feed.raw(b"v1", b'{"vehicle_id":"v1","ts":%d,"signals":{"a":1e999}}' % (T0 + 1)) is None
    for tick in range(2, 12):
        feed.delta(T0 + tick, speed=float(tick))
    window = feed.log.window("v1", T0 + 11, T0 + 11)
    assert not window.complete
    assert SPEED in window.base and BEAM not in window.base
