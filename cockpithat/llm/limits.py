"""Bounds that span calls: a circuit breaker for an endpoint and a token budget for a role.

Time is passed in (seconds of a monotonic clock), so both are tested without waiting.
"""

from __future__ import annotations

from collections import deque

from cockpithat.llm.errors import BudgetExhaustedError, CircuitOpenError
from cockpithat.llm.settings import BreakerSettings

HOUR_SECONDS = 3_600.0


class CircuitBreaker:
    """Opens after failures in a row, lets one call try again after a while, closes when that succeeds."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are turned away (a probe may be under way)."""
        return self._opened_at is not None

    def enter(self, now: float) -> None:
        """Ask to make a call. Raises :class:`CircuitOpenError` while the endpoint is left alone."""
        if self._opened_at is None:
            return
        left = self._opened_at + self._settings.reset_seconds - now
        if left > 0 or self._probing:
            raise CircuitOpenError(
                f"the endpoint failed {self._failures} times in a row; next try in {max(left, 0.0):.0f} s"
            )
        self._probing = True

    def succeeded(self) -> None:
        """The endpoint answered, whatever it said."""
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self, now: float) -> None:
        """The endpoint did not answer, or answered that it is broken."""
        self._failures += 1
        if self._probing or self._failures >= self._settings.failures:
            self._opened_at = now
        self._probing = False

    def abandoned(self) -> None:
        """A call was given up before it told anything about the endpoint."""
        self._probing = False


class HourlyBudget:
    """Tokens used in the last hour, against a bound; what a call may use is reserved before it is made."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._spent: deque[tuple[float, int]] = deque()
        self._total = 0
        self._reserved = 0

    def _forget_old(self, now: float) -> None:
        while self._spent and self._spent[0][0] <= now - HOUR_SECONDS:
            self._total -= self._spent.popleft()[1]

    def used(self, now: float) -> int:
        """Tokens settled in the last hour."""
        self._forget_old(now)
        return self._total

    def reserve(self, tokens: int, now: float) -> None:
        """Set ``tokens`` aside. Raises :class:`BudgetExhaustedError` when the hour has not that many left."""
        if self._limit is not None and self.used(now) + self._reserved + tokens > self._limit:
            raise BudgetExhaustedError(
                f"the hourly budget of {self._limit} tokens is spent ({self._total} used, {tokens} needed); "
                "raise hourly_tokens or wait"
            )
        self._reserved += tokens

    def settle(self, reserved: int, used: int, now: float) -> None:
        """Give the reservation back and book what was used."""
        self._reserved -= reserved
        if used:
            self._spent.append((now, used))
            self._total += used
