"""A limit on how many records of a kind go out in an hour of their inputs' time."""

from __future__ import annotations

_HOUR_MS = 3_600_000


class HourlyLimit:
    """Lets ``per_hour`` through in a row and refills evenly, by the time of what passes (0: no limit).

    By the records' Kafka timestamps and not by the wall clock: a backlog that is read in a minute is treated
    as it would have been when it came.
    """

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._left = float(per_hour)
        self._newest_ms: int | None = None

    def allows(self, at_ms: int) -> bool:
        """Whether one of epoch ms ``at_ms`` may pass; one that may is counted."""
        if not self._per_hour:
            return True
        if self._newest_ms is None or at_ms > self._newest_ms:
            passed_ms = 0 if self._newest_ms is None else at_ms - self._newest_ms
            self._left = min(float(self._per_hour), self._left + passed_ms * self._per_hour / _HOUR_MS)
            self._newest_ms = at_ms
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
