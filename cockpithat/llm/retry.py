"""How long to wait before trying again."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from cockpithat.llm.settings import RetrySettings


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3): a number or an HTTP date.

    ``None`` where there is no header or it cannot be read; a moment that has passed is 0.
    """
    if value is None:
        return None
    text = value.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - now).total_seconds())
    # Comparison with inf also turns away nan.
    return seconds if 0.0 <= seconds < float("inf") else None


def wait_seconds(attempt: int, asked: float | None, settings: RetrySettings, rng: random.Random) -> float:
    """Wait before try ``attempt + 1`` (``attempt`` counts from 0): full jitter, and never less than asked.

    Jitter goes on top of what the endpoint asked for: all its clients got the same number.
    """
    # The exponent is bounded so that a large attempt number cannot overflow.
    jitter = rng.uniform(0.0, min(settings.cap_seconds, settings.base_seconds * 2.0 ** min(attempt, 30)))
    return jitter if asked is None else asked + min(jitter, settings.base_seconds)
