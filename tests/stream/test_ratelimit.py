"""So many an hour and no more, by the time of what passes."""

from __future__ import annotations

from stream.ratelimit import HourlyLimit

HOUR_MS = 3_600_000


def test_an_hours_worth_passes_at_once_and_the_rest_waits() -> None:
    limit = HourlyLimit(60)
    assert [limit.allows(0) for _ in range(61)] == [True] * 60 + [False]
    assert not limit.allows(59_000)
    assert limit.allows(60_000)  # one a minute
    assert not limit.allows(60_000)


def test_what_comes_late_in_its_own_time_refills_nothing() -> None:
    limit = HourlyLimit(1)
    assert limit.allows(10 * HOUR_MS)
    assert not limit.allows(HOUR_MS)
    assert not limit.allows(10 * HOUR_MS)
    assert limit.allows(11 * HOUR_MS)


def test_a_quiet_week_saves_up_no_more_than_an_hour() -> None:
    limit = HourlyLimit(2)
    assert limit.allows(0)
    assert [limit.allows(200 * HOUR_MS) for _ in range(3)] == [True, True, False]


def test_zero_is_no_limit() -> None:
    limit = HourlyLimit(0)
    assert all(limit.allows(0) for _ in range(1_000))
