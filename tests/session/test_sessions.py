"""The session engine by example: what each kind of session comes out as."""

from __future__ import annotations

import pytest

from cockpithat.contract.base import CloseReason, Outcome, VehicleStateCoverage
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.contract.events import SessionStart
from cockpithat.contract.ids import trace_id
from cockpithat.contract.reports import SessionStatus
from cockpithat.contract.vehicle import SignalQuality
from cockpithat.graph.builder import build_graph
from cockpithat.session.budget import OpenSessionBudget
from cockpithat.session.effects import DeadLettered, SessionQuarantined
from cockpithat.session.settings import EngineSettings
from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.states import StateWindow
from tests.session.support import (
    BEAM,
    SPEED,
    T0,
    WINDOW,
    YEAR,
    Bench,
    delta,
    end,
    full,
    only,
    reasons,
    session,
    start,
    step,
    traces,
)


def test_a_whole_session_closes_with_its_end() -> None:
    bench = Bench()
    events = session(4)
    (trace,) = traces(bench.feed(*events))
    assert [item.index for item in trace.steps] == [0, 1, 2, 3]
    assert [item.seq for item in trace.steps] == [1, 2, 3, 4]
    assert trace.task == "make it warmer"
    assert (trace.outcome, trace.failed, trace.truncated) == (Outcome.SUCCESS, False, False)
    assert trace.close_reason == CloseReason.END_EVENT
    assert trace.trace_id == trace_id("v1", "s1", "s1-0")
    assert (trace.started_ts, trace.ended_ts) == (T0, T0 + 5000)
    assert trace.first_source is not None and trace.first_source.offset == 0
    assert trace.last_source is not None and trace.last_source.offset == 5
    assert [item.source.offset for item in trace.steps if item.source] == [1, 2, 3, 4]
    assert trace.graph == build_graph(trace.steps, task="make it warmer")
    assert bench.engine.open_sessions == 0
    assert bench.engine.hold_offset is None


def test_unknown_fields_of_a_step_are_kept() -> None:
    bench = Bench()
    events = [start(), step(1, seat_massage={"on": True}, index=99), end(2)]
    (trace,) = traces(bench.feed(*events))
    assert trace.steps[0].model_dump()["seat_massage"] == {"on": True}
    assert trace.steps[0].index == 0


# ---------------------------------------------------------------- the list of the hard cases


def test_a_vehicle_that_sends_no_snapshots_is_not_waited_for() -> None:
    bench = Bench(vehicles=SnapshotLog())
    (trace,) = traces(bench.feed(*session(3)))
    assert trace.vehicle_state == VehicleStateCoverage.NONE
    assert all(item.state is None for item in trace.steps)


def test_a_clock_a_year_ahead_closes_nothing_of_others_and_is_marked() -> None:
    bench = Bench()
    ahead = T0 + YEAR
    bench.feed(start("other"), step(1, "other"), end(3, "other"))  # seq 2 is still missing
    bench.feed(start("s9", "v9", ts=ahead), step(1, "s9", "v9", ts=ahead + 500))
    assert bench.engine.open_sessions == 2
    (trace,) = traces(bench.feed(end(2, "s9", "v9", ts=ahead + 900)))
    assert trace.clock_suspect
    assert [item.ts for item in trace.steps] == [ahead + 500]
    (other,) = traces(bench.feed(step(2, "other")))
    assert not other.clock_suspect
    assert len(other.steps) == 2


def test_one_wild_timestamp_does_not_close_its_own_vehicles_sessions() -> None:
    bench = Bench()
    bench.feed(start("a"), end(2, "a", ts=T0 + 400_000), start("b"))
    assert traces(bench.feed(step(1, "b", ts=T0 + 70 * YEAR))) == []
    (trace,) = traces(bench.feed(step(1, "a")))
    assert trace.session_id == "a"
    assert not trace.missing_seqs


def test_a_vehicle_that_dies_in_the_middle_is_judged_with_outcome_unknown() -> None:
    bench = Bench()
    bench.feed(start(), step(1), step(2))
    assert bench.wait(119_999) == []
    (trace,) = traces(bench.wait(1))
    assert trace.outcome == Outcome.UNKNOWN
    assert trace.failed and trace.is_judged
    assert trace.close_reason == CloseReason.SILENCE
    assert len(trace.steps) == 2


def test_silence_counts_from_the_last_event_even_if_the_whole_partition_is_silent() -> None:
    bench = Bench()
    bench.feed(start(), step(1))
    bench.wait(100_000)
    bench.feed(step(2))
    assert bench.wait(100_000) == []
    assert bench.wait(19_999) == []
    assert len(traces(bench.wait(1))) == 1


def test_two_sessions_at_once_in_one_vehicle_stay_apart() -> None:
    bench = Bench()
    one, two = session(6, "one"), session(6, "two", failed=True)
    for pair in zip(one, two, strict=True):
        bench.feed(*pair)
    first, second = traces(bench.effects)
    assert {first.session_id, second.session_id} == {"one", "two"}
    for trace in (first, second):
        assert [item.event_id for item in trace.steps] == [f"{trace.session_id}-{seq}" for seq in range(1, 7)]
        assert trace.failed == (trace.session_id == "two")
    assert first.trace_id != second.trace_id


def test_a_session_that_never_ends_is_cut_at_its_age_and_judged() -> None:
    bench = Bench(EngineSettings(max_age_ms=60_000))
    bench.feed(start())
    seq = 0
    while not traces(bench.effects):
        seq += 1
        bench.wait(1_000)
        bench.feed(step(seq))
    (trace,) = traces(bench.effects)
    assert seq == 60
    assert trace.close_reason == CloseReason.MAX_AGE
    assert trace.truncated and trace.is_judged
    assert trace.outcome == Outcome.UNKNOWN
    bench.wait(1_000)
    assert reasons(bench.feed(step(61))) == ["late"]
    assert bench.engine.open_sessions == 0


def test_an_end_before_its_steps_waits_for_them() -> None:
    bench = Bench()
    assert traces(bench.feed(end(3), start(), step(2))) == []
    (trace,) = traces(bench.feed(step(1)))
    assert [item.seq for item in trace.steps] == [1, 2]
    assert trace.missing_seqs == ()
    assert trace.close_reason == CloseReason.END_EVENT


def test_an_end_whose_steps_never_come_closes_after_the_grace_in_event_time() -> None:
    bench = Bench()
    bench.feed(start(), step(1), end(4))
    assert traces(bench.feed(start("next", ts=T0 + 4_000 + 1_999))) == []
    (trace,) = traces(bench.feed(step(1, "next", ts=T0 + 4_000 + 2_000)))
    assert trace.session_id == "s1"
    assert trace.missing_seqs == ((2, 3),)
    assert trace.close_reason == CloseReason.END_EVENT
    assert trace.outcome == Outcome.SUCCESS


def test_an_end_whose_steps_never_come_closes_by_the_wall_clock_when_the_vehicle_is_silent() -> None:
    bench = Bench()
    bench.feed(start(), step(1), end(4))
    assert bench.wait(9_999) == []
    (trace,) = traces(bench.wait(1))
    assert trace.missing_seqs == ((2, 3),)


# ---------------------------------------------------------------- order, duplicates, conflicts, late events


def test_duplicates_are_ignored_before_and_after_the_close() -> None:
    bench = Bench()
    events = session(2)
    assert reasons(bench.feed(events[0], events[1], events[1])) == ["duplicate"]
    bench.feed(events[2], events[3])
    assert reasons(bench.feed(*events)) == ["duplicate"] * 4
    assert len(traces(bench.effects)) == 1


def test_the_same_step_under_a_new_event_id_is_a_duplicate_too() -> None:
    bench = Bench()
    bench.feed(start(), step(1))
    assert reasons(bench.feed(step(1, event_id="again"))) == ["duplicate"]


def test_other_content_under_the_same_seq_or_id_is_a_conflict() -> None:
    bench = Bench()
    bench.feed(start(), step(1))
    assert reasons(bench.feed(step(1, event_id="other", text="something else"))) == ["conflict"]
    assert reasons(bench.feed(step(1, text="something else"))) == ["conflict"]
    assert reasons(bench.feed(step(2, event_id="s1-1"))) == ["conflict"]
    (trace,) = traces(bench.feed(step(2), end(3)))
    assert trace.steps[0].text == step(1).text


def test_a_second_start_is_a_conflict_whichever_came_first() -> None:
    for order in ((0, 1), (1, 0)):
        bench = Bench()
        starts = [start(task="right"), start(seq=1, task="wrong")]
        bench.feed(*(starts[place] for place in order), step(2), end(3))
        (trace,) = traces(bench.effects)
        assert trace.task == "right"
        assert reasons(bench.effects) == ["conflict"]


def test_a_gap_is_given_up_when_too_much_is_held_back_and_what_fills_it_is_late() -> None:
    bench = Bench(EngineSettings(reorder_events=4))
    bench.feed(start(), *(step(seq) for seq in range(2, 7)))
    assert reasons(bench.feed(step(1))) == ["late"]
    (trace,) = traces(bench.feed(end(7)))
    assert trace.missing_seqs == ((1, 1),)
    assert [item.seq for item in trace.steps] == [2, 3, 4, 5, 6]


def test_events_of_a_closed_session_open_no_session_anew() -> None:
    bench = Bench()
    bench.feed(start(), step(1), end(3))
    bench.wait(10_000)
    late = bench.feed(step(2), step(9))
    assert reasons(late) == ["late", "late"]
    assert only(late, DeadLettered)[0].session_id == "s1"
    assert bench.engine.open_sessions == 0


def test_a_partition_read_again_changes_nothing() -> None:
    bench = Bench()
    events = session(3)
    bench.feed(*events, start("s2"))
    for offset, event in enumerate([*events, start("s2")]):
        again = bench.feed(event, offset=offset)
        assert reasons(again) == ["duplicate"]
    assert bench.engine.open_sessions == 1
    assert bench.engine.hold_offset == 5


def test_a_start_that_never_comes_leaves_its_gap_on_record() -> None:
    bench = Bench()
    bench.feed(step(1), step(2), end(3))
    (trace,) = traces(bench.wait(10_000))
    assert trace.missing_seqs == ((0, 0),)
    assert trace.task == ""
    assert trace.trace_id == trace_id("v1", "s1", "s1-1")
    assert len(trace.steps) == 2


def test_a_session_of_only_an_end_is_an_empty_trace() -> None:
    bench = Bench()
    bench.feed(end(0, failed=True))
    (trace,) = traces(bench.effects)
    assert trace.steps == ()
    assert trace.failed
    assert trace.graph is not None and trace.graph.edges == ()


# ---------------------------------------------------------------- outcome and the failure flag


@pytest.mark.parametrize(
    ("fields", "outcome", "failed"),
    [
        ({"outcome": Outcome.FAILURE}, Outcome.FAILURE, True),
        ({"outcome": Outcome.UNKNOWN, "failed": True}, Outcome.FAILURE, True),
        ({"outcome": Outcome.UNKNOWN, "failed": False}, Outcome.SUCCESS, False),
        ({"outcome": Outcome.UNKNOWN}, Outcome.UNKNOWN, True),
        ({"outcome": Outcome.SUCCESS, "failed": True}, Outcome.SUCCESS, True),
    ],
)
def test_what_an_end_says_of_the_outcome(fields: dict[str, object], outcome: Outcome, failed: bool) -> None:
    (trace,) = traces(Bench().feed(start(), step(1), end(2, **fields)))
    assert (trace.outcome, trace.failed) == (outcome, failed)


def test_a_failure_flag_after_a_success_reopens_as_revision_2() -> None:
    bench = Bench()
    (first,) = traces(bench.feed(*session(2)))
    bench.wait(60_000)
    flag = end(4, failed=True, failure_reason="complaint", event_id="flag")
    (second,) = traces(bench.feed(flag))
    assert (first.revision, second.revision) == (1, 2)
    assert second.trace_id == first.trace_id
    assert second.failed and second.outcome == Outcome.FAILURE
    assert second.failure_reason == "complaint"
    assert second.steps == first.steps
    assert second.graph == first.graph
    assert reasons(bench.feed(flag)) == ["duplicate"]
    again = end(5, failed=True, event_id="flag2")
    assert reasons(bench.feed(again)) == ["late"]


def test_a_failure_flag_with_the_seq_of_the_first_end_counts_too() -> None:
    bench = Bench()
    bench.feed(*session(2))
    (second,) = traces(bench.feed(end(3, failed=True, event_id="flag")))
    assert second.revision == 2


def test_a_failure_flag_before_the_close_needs_no_revision() -> None:
    bench = Bench()
    bench.feed(start(), end(2), end(2, failed=True, event_id="flag"))
    (trace,) = traces(bench.feed(step(1)))
    assert trace.failed
    assert trace.revision == 1


def test_a_failure_flag_after_silence_reopens_and_a_success_does_not() -> None:
    bench = Bench()
    bench.feed(start(), step(1))
    (first,) = traces(bench.wait(120_000))
    assert reasons(bench.feed(end(2, event_id="fine"))) == ["late"]
    (second,) = traces(bench.feed(end(2, failed=True)))
    assert first.outcome == Outcome.UNKNOWN
    assert (second.revision, second.outcome) == (2, Outcome.FAILURE)
    assert second.close_reason == CloseReason.END_EVENT


def test_a_failure_flag_for_a_session_no_longer_kept_whole_is_late_and_not_a_new_session() -> None:
    bench = Bench(EngineSettings(remember_closed_bytes=0))
    bench.feed(*session(2))
    late = bench.feed(end(4, failed=True, event_id="flag"))
    assert reasons(late) == ["late"]
    assert reasons(bench.feed(step(1))) == ["duplicate"]
    assert bench.engine.open_sessions == 0


def test_closed_sessions_are_forgotten_in_the_end() -> None:
    bench = Bench(EngineSettings(remember_closed=2, remember_closed_ms=1_000))
    for name in ("a", "b", "c"):
        bench.feed(*session(1, name))
    assert reasons(bench.feed(step(1, "c"))) == ["duplicate"]
    bench.feed(step(1, "a"))  # the oldest of three, two are remembered
    assert bench.engine.open_sessions == 1
    bench.wait(1_001)
    bench.feed(step(1, "c"))
    assert bench.engine.open_sessions == 2


# ---------------------------------------------------------------- time


def test_a_partition_catching_up_is_not_silent() -> None:
    bench = Bench()
    bench.feed(start(), step(1))
    assert bench.wait(10_000_000, catching_up=True) == []
    assert bench.engine.open_sessions == 1
    assert len(traces(bench.wait(0))) == 1


def test_the_grace_in_event_time_works_while_catching_up() -> None:
    bench = Bench()
    bench.feed(start(), end(2))
    bench.wait(1, catching_up=True)
    (trace,) = traces(bench.feed(start("s2", ts=T0 + 4_000), broker_ts=T0 + 4_000))
    assert trace.missing_seqs == ((1, 1),)


def test_a_broker_time_far_ahead_is_not_believed() -> None:
    bench = Bench()
    bench.feed(start())
    bench.feed(step(1), broker_ts=T0 + YEAR)
    assert bench.engine.open_sessions == 1
    (trace,) = traces(bench.feed(step(2, ts=T0 + YEAR), end(3, ts=T0 + YEAR), broker_ts=T0 + YEAR))
    assert trace.clock_suspect


# ---------------------------------------------------------------- bounds


def test_a_session_is_cut_at_its_bound_of_events() -> None:
    bench = Bench(EngineSettings(max_events=5))
    (trace,) = traces(bench.feed(start(), *(step(seq) for seq in range(1, 5))))
    assert trace.close_reason == CloseReason.MAX_EVENTS
    assert trace.truncated and trace.is_judged
    assert len(trace.steps) == 4
    assert reasons(bench.feed(step(5))) == ["late"]
    (flagged,) = traces(bench.feed(end(6, failed=True)))
    assert flagged.revision == 2
    assert flagged.truncated
    assert flagged.close_reason == CloseReason.MAX_EVENTS


def test_a_session_is_cut_at_its_bound_of_bytes() -> None:
    bench = Bench(EngineSettings(max_bytes=2_000))
    (trace,) = traces(bench.feed(start(), step(1), step(2), step(3), size=600))
    assert trace.close_reason == CloseReason.MAX_BYTES


def test_the_oldest_session_goes_when_a_worker_has_too_many() -> None:
    budget = OpenSessionBudget(3)
    one = Bench(budget=budget)
    two = Bench(budget=budget)
    one.feed(start("a"), start("b"))
    two.feed(start("c", "v2"))
    (trace,) = traces(one.feed(start("d")))
    assert (trace.session_id, trace.close_reason) == ("a", CloseReason.MAX_OPEN_SESSIONS)
    assert trace.truncated
    assert budget.open == 3
    two.engine.discard()
    assert budget.open == 2
    assert traces(one.feed(start("e"))) == []


# ---------------------------------------------------------------- quarantine


class Broken:
    """Vehicle state whose window fails for one vehicle."""

    def sends(self, vehicle_id: str) -> bool:
        return vehicle_id == "bad"

    def covered_until(self, vehicle_id: str) -> int | None:
        return T0 + YEAR

    def window(self, vehicle_id: str, start_ms: int, end_ms: int) -> StateWindow:
        raise RuntimeError(f"secret words of {vehicle_id}")


def test_a_failure_inside_one_session_quarantines_that_session_only() -> None:
    bench = Bench(vehicles=Broken())
    bench.feed(*session(1, "good", "good"))
    bench.feed(start("s", "bad"), start("other", "good2"), step(1, "s", "bad"), end(2, "s", "bad"))
    (quarantined,) = only(bench.effects, SessionQuarantined)
    assert (quarantined.vehicle_id, quarantined.session_id) == ("bad", "s")
    assert [source.offset for source in quarantined.sources] == [3, 5, 6]
    assert quarantined.summary.status == SessionStatus.QUARANTINED
    assert quarantined.summary.steps == 1
    assert "RuntimeError" in quarantined.error and "secret" not in quarantined.error
    assert [trace.session_id for trace in traces(bench.effects)] == ["good"]
    assert bench.engine.hold_offset == 4
    assert reasons(bench.feed(step(9, "s", "bad"))) == [DeadLetterReason.QUARANTINED.value]
    assert len(traces(bench.feed(step(1, "other", "good2"), end(2, "other", "good2")))) == 1


def test_an_event_that_breaks_the_engine_is_among_the_quarantined_sources() -> None:
    bench = Bench()
    bench.feed(start())
    poison = step(1).model_copy(update={"tool_calls": 7})
    (quarantined,) = only(bench.feed(poison), SessionQuarantined)
    assert [source.offset for source in quarantined.sources] == [0, 1]
    assert bench.engine.open_sessions == 0


# ---------------------------------------------------------------- vehicle state


def test_steps_carry_state_before_after_and_what_changed() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0, beam=True, window=0))
    log.add(delta(T0 + 1_130, beam=False))
    log.add(delta(T0 + 2_500, window=40))
    log.add(delta(T0 + 3_500, speed=52.0))
    bench = Bench(vehicles=log)
    (trace,) = traces(bench.feed(*session(2)))
    assert trace.vehicle_state == VehicleStateCoverage.COMPLETE
    first, second = (item.state for item in trace.steps)
    assert first is not None and second is not None
    assert first.before == {SPEED: 50.0, BEAM: True, WINDOW: 0}
    assert [(change.path, change.before, change.after, change.ts) for change in first.changes] == [
        (BEAM, True, False, T0 + 1_100)
    ]
    assert second.before == first.after
    assert second.after[WINDOW] == 40
    assert second.quality == {}
    assert (first.before_ts, first.after_ts, second.after_ts) == (T0 + 1_000, T0 + 2_000, T0 + 3_000)


def test_snapshots_are_waited_for_and_the_wait_ends_when_they_come() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0))
    bench = Bench(vehicles=log)
    assert traces(bench.feed(*session(2))) == []
    assert bench.engine.hold_offset == 0
    assert bench.wait(250) == []
    log.add(delta(T0 + 3_000, speed=10.0))
    (trace,) = traces(bench.wait(250))
    assert trace.vehicle_state == VehicleStateCoverage.COMPLETE
    last = trace.steps[-1].state
    assert last is not None and last.after[SPEED] == 10.0


def test_the_wait_for_snapshots_is_bounded_and_then_the_state_is_incomplete() -> None:
    bench = Bench(vehicles=SnapshotLog())
    events = [start(sends_snapshots=True), step(1), end(2)]
    assert traces(bench.feed(*events)) == []
    assert bench.wait(9_999) == []
    (trace,) = traces(bench.wait(1))
    assert trace.vehicle_state == VehicleStateCoverage.INCOMPLETE


def test_snapshots_that_are_there_and_not_read_yet_are_not_given_up_on() -> None:
    """A worker that is behind says the same as one that is not: what it has not read is not missing."""
    log = SnapshotLog()
    log.add(full(T0, speed=50.0, beam=True))
    bench = Bench(EngineSettings(snapshot_wait_ms=1_000, silence_ms=60_000), vehicles=log)
    assert traces(bench.feed(*session(2))) == []
    behind = bench.wall + 500  # of the snapshots, those up to half a second after the end are read
    assert traces(bench.wait(30_000, snapshots_until=behind)) == []
    log.add(delta(T0 + 3_000, beam=False))
    (trace,) = traces(bench.wait(250, snapshots_until=behind))
    assert trace.vehicle_state == VehicleStateCoverage.COMPLETE


@pytest.mark.parametrize("read", [None, 1_000])
def test_once_all_snapshots_are_read_the_wait_is_the_settings(read: int | None) -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0, beam=True))
    bench = Bench(EngineSettings(snapshot_wait_ms=1_000), vehicles=log)
    bench.feed(*session(2))
    until = None if read is None else bench.wall + read
    assert traces(bench.wait(999, snapshots_until=until)) == []
    (trace,) = traces(bench.wait(1, snapshots_until=until))
    assert trace.vehicle_state != VehicleStateCoverage.COMPLETE


def test_a_reader_that_never_comes_up_holds_no_session_for_ever() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0, beam=True))
    bench = Bench(EngineSettings(snapshot_wait_ms=1_000, silence_ms=60_000), vehicles=log)
    bench.feed(*session(2))
    assert traces(bench.wait(60_999, snapshots_until=0)) == []
    assert len(traces(bench.wait(1, snapshots_until=0))) == 1


def test_a_vehicle_that_says_it_sends_no_snapshots_is_not_waited_for() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0))
    bench = Bench(vehicles=log)
    (trace,) = traces(bench.feed(start(sends_snapshots=False), step(1), end(2)))
    assert trace.vehicle_state == VehicleStateCoverage.INCOMPLETE


def test_a_failure_flag_during_the_wait_for_snapshots_is_heard_and_does_not_prolong_it() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0))
    bench = Bench(vehicles=log)
    bench.feed(*session(2))
    bench.wait(9_000)
    assert traces(bench.feed(end(4, failed=True))) == []
    (trace,) = traces(bench.wait(1_000))
    assert trace.failed and trace.revision == 1


def test_a_step_after_a_silence_during_the_wait_for_snapshots_resumes_the_session() -> None:
    log = SnapshotLog()
    log.add(full(T0, speed=50.0))
    bench = Bench(vehicles=log)
    bench.feed(start(), step(1))
    assert bench.wait(120_000) == []
    bench.feed(step(2))
    assert bench.wait(11_000) == []
    log.add(delta(T0 + 9_000, speed=1.0))
    (trace,) = traces(bench.feed(end(3)))
    assert len(trace.steps) == 2
    assert trace.close_reason == CloseReason.END_EVENT


def test_a_vehicle_a_year_ahead_still_gets_its_state_joined() -> None:
    log = SnapshotLog()
    ahead = T0 + YEAR
    log.add(full(ahead, speed=50.0))
    log.add(delta(ahead + 2_000, speed=60.0))
    bench = Bench(vehicles=log)
    events = [start(ts=ahead), step(1, ts=ahead + 500), end(2, ts=ahead + 1_500)]
    (trace,) = traces(bench.feed(*events))
    assert trace.clock_suspect
    assert trace.vehicle_state == VehicleStateCoverage.COMPLETE
    state = trace.steps[0].state
    assert state is not None and state.before == {SPEED: 50.0}


def test_with_deltas_only_what_was_never_said_is_unknown() -> None:
    log = SnapshotLog()
    log.add(delta(T0 + 500, speed=50.0))
    log.add(delta(T0 + 1_500, beam=True))
    log.add(delta(T0 + 9_000, speed=51.0))
    bench = Bench(vehicles=log)
    (trace,) = traces(bench.feed(*session(2)))
    assert trace.vehicle_state == VehicleStateCoverage.INCOMPLETE
    state = trace.steps[0].state
    assert state is not None
    assert state.before == {SPEED: 50.0, BEAM: None}
    assert state.quality == {BEAM: SignalQuality.UNKNOWN}
    assert state.after == {SPEED: 50.0, BEAM: True}
    assert state.changes[0].before_quality == SignalQuality.UNKNOWN


# ---------------------------------------------------------------- finite inputs


def test_flush_closes_everything_that_is_left() -> None:
    bench = Bench()
    bench.feed(start("a"), step(1, "a"), start("b"), end(2, "b"))
    closed = traces(bench.engine.flush(bench.wall))
    assert [(trace.session_id, trace.close_reason) for trace in closed] == [
        ("a", CloseReason.SHUTDOWN),
        ("b", CloseReason.END_EVENT),
    ]
    assert closed[0].outcome == Outcome.UNKNOWN
    assert bench.engine.hold_offset is None


def test_a_file_has_no_wall_clock_and_no_suspect_times() -> None:
    bench = Bench()
    bench.wall = 0
    (trace,) = traces(bench.feed(*session(2), broker_ts=0))
    assert not trace.clock_suspect


def test_made_up_timestamps_are_said_to_be() -> None:
    opening = SessionStart(
        event_id="e", vehicle_id="v1", session_id="s1", seq=0, ts=T0, timestamps_synthetic=True
    )
    (trace,) = traces(Bench().feed(opening, step(1), end(2)))
    assert trace.timestamps_synthetic
