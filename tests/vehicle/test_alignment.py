"""Joining steps and vehicle state: what was before, what after, what changed, and what is not known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from cockpithat.contract.events import IntendedChange
from cockpithat.contract.trace import StepState
from cockpithat.contract.vehicle import SignalQuality
from cockpithat.vehicle.alignment import AlignmentBounds, align
from cockpithat.vehicle.log import SnapshotLog
from tests.vehicle.support import BEAM, SPEED, T0, WINDOW, Feed, snapshot

NOISE = "Vehicle.Acceleration.Longitudinal"
WATCHED = {SPEED, BEAM, WINDOW}


class At(NamedTuple):
    """A step at a time, perhaps intending something."""

    ts: int
    intended: tuple[IntendedChange, ...] = ()


def states(feed: Feed, *times: int, end: int = 10_000, **bounds: Any) -> list[StepState]:
    steps = [At(T0 + ts) for ts in times]
    window = feed.log.window("v1", steps[0].ts, T0 + end)
    return align(steps, window, WATCHED, AlignmentBounds(**bounds))


def test_a_snapshot_at_the_steps_own_time_is_before_it_and_a_later_one_after_it() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0 + 1_237, speed=1.0, beam=False)
    feed.delta(T0 + 1_260, beam=True)
    (state,) = states(feed, 1_237)
    assert state.before == {SPEED: 1.0, BEAM: False}
    assert state.after[BEAM] is True
    assert [(change.path, change.before, change.after) for change in state.changes] == [(BEAM, False, True)]


def test_everything_reported_lies_on_the_grid_and_within_the_step() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=0.0)
    for tick in range(1, 300):
        feed.delta(T0 + 33 * tick, speed=float(tick))
    found = states(feed, 10, 1_055, 1_070, 4_999)
    for state, following in zip(found, [*found[1:], None], strict=True):
        assert state.before_ts % 100 == state.after_ts % 100 == 0
        assert all(change.ts % 100 == 0 for change in state.changes)
        assert all(state.before_ts <= change.ts <= state.after_ts for change in state.changes)
        if following:
            assert following.before == state.after
            assert following.before_ts == state.after_ts


def test_of_several_changes_in_one_cell_the_net_one_is_kept() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, window=0, beam=False)
    feed.delta(T0 + 1_010, window=10, beam=True)
    feed.delta(T0 + 1_050, window=20, beam=False)
    (state,) = states(feed, 500)
    assert [(change.path, change.before, change.after) for change in state.changes] == [(WINDOW, 0, 20)]


def test_a_restless_signal_is_thinned_without_losing_extremes_or_continuity() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=50.0)
    for tick in range(1, 1_000):
        feed.delta(T0 + 100 * tick, speed=180.0 if tick == 437 else float(50 + tick % 7))
    (state,) = states(feed, 0, end=100_000, changes_per_signal=16)
    changes = state.changes
    assert len(changes) <= 16
    assert max(float(change.after) for change in changes) == 180.0  # type: ignore[arg-type]
    assert changes[0].before == 50.0
    assert changes[-1].after == state.after[SPEED]
    assert all(earlier.after == later.before for earlier, later in pairwise(changes))


def test_a_silent_vehicles_readings_go_stale_and_are_no_longer_used() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=30.0, beam=True)
    first, second = states(feed, 1_000, 20_000, end=20_000)
    assert first.before == {SPEED: 30.0, BEAM: True}
    assert first.quality == {}
    assert first.after == second.before == {SPEED: None, BEAM: True}
    assert first.after_quality == second.quality == {SPEED: SignalQuality.STALE}


def test_a_delta_of_another_signal_confirms_what_did_not_change() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=30.0, beam=True)
    feed.delta(T0 + 19_000, beam=False)
    (state,) = states(feed, 20_000, end=20_000)
    assert state.before == {SPEED: 30.0, BEAM: False}


def test_what_only_deltas_told_is_known_and_the_rest_unknown() -> None:
    feed = Feed(SnapshotLog())
    feed.delta(T0, speed=30.0)
    feed.delta(T0 + 2_000, beam=True)
    first, second = states(feed, 1_000, 3_000)
    assert first.before == {SPEED: 30.0, BEAM: None}
    assert first.quality == {BEAM: SignalQuality.UNKNOWN}
    assert second.before == {SPEED: 30.0, BEAM: True}
    assert first.changes[0].before is None
    assert first.changes[0].before_quality == SignalQuality.UNKNOWN


def test_an_invalid_reading_is_no_reading() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=30.0)
    feed.delta(T0 + 1_500, speed=4095)
    (state,) = states(feed, 1_000)
    assert (state.before[SPEED], state.after[SPEED]) == (30.0, None)
    assert state.quality == {}
    assert state.after_quality == {SPEED: SignalQuality.INVALID}


def test_signals_carried_are_watched_intended_or_changed() -> None:
    feed = Feed(SnapshotLog())
    other = "Vehicle.Cabin.Seat.Row1.DriverSide.Position"
    feed.put(snapshot(T0, {SPEED: 1.0, NOISE: 0.1, other: 5, "Vehicle.Unwatched": 1}, kind="full"))
    feed.put(snapshot(T0 + 600, {NOISE: 0.2}))
    steps = [At(T0 + 500, (IntendedChange(path="Vehicle.Wanted", value=3),))]
    (state,) = align(steps, feed.log.window("v1", T0 + 500, T0 + 1_000), WATCHED)
    assert state.before == {SPEED: 1.0, NOISE: 0.1, "Vehicle.Wanted": None}
    assert state.quality == {"Vehicle.Wanted": SignalQuality.UNKNOWN}


def test_unwatched_signals_that_change_are_bounded() -> None:
    feed = Feed(SnapshotLog())
    feed.put(snapshot(T0, {f"Vehicle.X{number}": 0 for number in range(100)}, kind="full"))
    feed.put(snapshot(T0 + 600, {f"Vehicle.X{number}": 1 for number in range(100)}))
    (state,) = states(feed, 500, unwatched_signals=7)
    assert len(state.before) == 7


def test_steps_whose_clock_goes_back_do_not_turn_time_back() -> None:
    feed = Feed(SnapshotLog())
    feed.full(T0, speed=1.0)
    feed.delta(T0 + 2_000, speed=2.0)
    _, second, third = states(feed, 2_500, 1_000, 3_000)
    assert second.before == {SPEED: 2.0}
    assert (second.before_ts, third.before_ts) == (T0 + 2_500, T0 + 3_000)
