"""The committed offset never passes a record that somebody still needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream.hold import Holds, PartitionHold


def test_nothing_is_committed_before_the_first_record() -> None:
    assert PartitionHold().committable is None


def test_without_a_hold_the_next_offset_is_committed() -> None:
    hold = PartitionHold()
    hold.passed(41, timestamp_ms=1_000)
    assert hold.committable == 42


def test_the_first_event_of_the_oldest_open_session_holds_the_offset() -> None:
    floor = {"offset": 7}
    hold = PartitionHold(floor=lambda: floor["offset"])
    hold.passed(100, timestamp_ms=1_000)
    assert hold.committable == 7
    floor["offset"] = 60
    assert hold.committable == 60


def test_a_release_takes_effect_without_another_record() -> None:
    hold = PartitionHold()
    hold.passed(10, timestamp_ms=1_000)
    ticket = hold.acquire(3)
    assert hold.committable == 3
    hold.release(ticket)
    assert hold.committable == 11


def test_a_ticket_is_released_once() -> None:
    hold = PartitionHold()
    hold.passed(10, timestamp_ms=1_000)
    first, second = hold.acquire(4), hold.acquire(4)
    hold.release(first)
    hold.release(first)
    assert hold.committable == 4
    hold.release(second)
    assert hold.committable == 11


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60))
def test_whatever_the_order_of_releases_no_held_offset_is_passed(steps: list[tuple[int, bool]]) -> None:
    hold = PartitionHold()
    open_tickets: dict[int, int] = {}
    for number, (choice, release) in enumerate(steps):
        hold.passed(number, timestamp_ms=number)
        if release and open_tickets:
            ticket = sorted(open_tickets)[choice % len(open_tickets)]
            del open_tickets[ticket]
            hold.release(ticket)
        else:
            open_tickets[hold.acquire(number)] = number
        assert hold.committable == min([number + 1, *open_tickets.values()])
        assert hold.pending == len(open_tickets)


def test_age_is_that_of_the_held_record() -> None:
    hold = PartitionHold()
    for offset in range(100):
        hold.passed(offset, timestamp_ms=10_000 + offset * 1_000)
    ticket = hold.acquire(50)
    assert hold.age_ms(now_ms=120_000) == 60_000
    hold.release(ticket)
    assert hold.age_ms(now_ms=120_000) == 0


def test_an_assigned_partition_starts_anew() -> None:
    holds = Holds()
    old = holds.open("events", 0)
    old.passed(9, timestamp_ms=1)
    old.acquire(2)
    holds.open("events", 0)
    assert holds.committable("events", 0) is None
    holds.close("events", 0)
    assert holds.committable("events", 0) is None
    assert list(holds) == []
