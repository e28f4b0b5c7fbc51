"""What can go wrong with a call. Messages name the cause in one line and never hold a key."""

from __future__ import annotations


class LlmError(Exception):
    """A call that gave no usable answer. ``kind`` is a stable slug for metrics and reports.

    ``retryable``: the same call may be tried again at once. ``may_pass``: another time it may succeed.
    """

    kind = "error"
    retryable = False
    may_pass = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConnectionFailedError(LlmError):
    """The endpoint was not reached, or closed the connection without an answer."""

    kind = "connection"
    retryable = True


class TimedOutError(LlmError):
    """The endpoint did not answer within the call's time."""

    kind = "timeout"
    retryable = True


class RateLimitedError(LlmError):
    """HTTP 429; ``retry_after`` holds what the endpoint asked for, seconds."""

    kind = "rate_limited"
    retryable = True


class ServerFailedError(LlmError):
    """HTTP 5xx, or a status that asks to try again."""

    kind = "server"
    retryable = True


class RejectedError(LlmError):
    """Another HTTP 4xx: trying again the same way cannot help. ``status`` is the HTTP status."""

    kind = "rejected"
    may_pass = False

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class KeyMissingError(LlmError):
    """The environment variable that should hold the key is not set, or the key was refused."""

    kind = "key"


class BadAnswerError(LlmError):
    """The endpoint answered with something that is not a chat completion."""

    kind = "protocol"
    retryable = True


class DeadlineExceededError(LlmError):
    """No time is left for this call."""

    kind = "deadline"


class BudgetExhaustedError(LlmError):
    """The hourly token budget of the role is spent."""

    kind = "budget"


class CircuitOpenError(LlmError):
    """The endpoint failed repeatedly and is left alone for a while."""

    kind = "circuit_open"
