"""The reorder buffer: order by seq, a bound on what is held back, gaps that are given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpithat.session.reorder import ReorderBuffer


def test_items_leave_in_order_and_at_once() -> None:
    buffer: ReorderBuffer[str] = ReorderBuffer(8)
    assert buffer.push(1, "b") == []
    assert buffer.push(2, "c") == []
    assert buffer.push(0, "a") == ["a", "b", "c"]
    assert len(buffer) == 0
    assert buffer.missing == []


def test_a_gap_is_given_up_when_the_buffer_is_full() -> None:
    buffer: ReorderBuffer[int] = ReorderBuffer(2)
    assert buffer.push(5, 5) == []
    assert buffer.push(7, 7) == []
    assert buffer.push(8, 8) == [5]
    assert buffer.missing == [(0, 4)]
    assert buffer.push(6, 6) == [6, 7, 8]
    with pytest.raises(ValueError, match="has passed"):
        buffer.push(3, 3)


def test_a_gap_as_wide_as_the_numbers_go_costs_nothing() -> None:
    buffer: ReorderBuffer[int] = ReorderBuffer(4)
    buffer.push(0, 0)
    buffer.push(2**53, 1)
    assert buffer.drain() == [1]
    assert buffer.missing == [(1, 2**53 - 1)]


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(1, 20), st.randoms(use_true_random=False))
def test_nothing_is_lost_or_doubled_and_order_holds(seqs: set[int], limit: int, random: object) -> None:
    order = sorted(seqs)
    random.shuffle(order)  # type: ignore[attr-defined]
    buffer: ReorderBuffer[int] = ReorderBuffer(limit)
    out: list[int] = []
    late: list[int] = []
    for seq in order:
        try:
            out += buffer.push(seq, seq)
        except ValueError:
            late.append(seq)
        assert len(buffer) <= limit
    out += buffer.drain()
    assert out == sorted(out)
    assert sorted(out + late) == sorted(seqs)
    gone = {seq for low, high in buffer.missing for seq in range(low, high + 1)}
    assert gone == set(range(max(out) + 1)) - set(out)
