"""A bounded memory of sessions that are over: what still comes of them opens no session anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from cockpithat.contract.base import Outcome
from cockpithat.contract.trace import Trace
from cockpithat.session.state import Event

Key = tuple[str, str]


_OVERHEAD = 1_000  # bytes of what is kept of a session beside its trace and event ids
_ID = 150  # bytes of an event id in a set


class ClosedSession:
    """What is kept of one: its trace and event ids while there is room, else only which seqs it had.

    The trace is kept as its JSON, a tenth of what its objects take and nothing for the garbage collector, and
    only while a failure flag could still tell something new.
    """

    __slots__ = (
        "_json",
        "event_ids",
        "highest_seq",
        "is_flagged",
        "is_quarantined",
        "missing",
        "size",
        "wall_ms",
    )

    def __init__(
        self,
        *,
        trace: Trace | None,
        event_ids: Iterable[str] | None,
        highest_seq: int,
        missing: tuple[tuple[int, int], ...],
        wall_ms: int,
        is_quarantined: bool,
    ) -> None:
        self.event_ids: set[str] | None = None if event_ids is None else set(event_ids)
        self.highest_seq = highest_seq
        self.missing = missing
        self.wall_ms = wall_ms
        self.is_quarantined = is_quarantined
        self.is_flagged = False
        self._json: bytes | None = None
        if trace is not None:
            self.keep(trace)
        self.size = _OVERHEAD + len(self._json or b"") + _ID * len(self.event_ids or ())

    def keep(self, trace: Trace) -> None:
        """Keep the trace, unless it was flagged as a failure: then nothing new can come for it."""
        self.is_flagged = trace.failed and trace.outcome != Outcome.UNKNOWN
        self._json = None if self.is_flagged else trace.model_dump_json().encode("utf-8", "surrogatepass")

    def shrink(self) -> None:
        """Keep only which seqs it had."""
        self._json = None
        self.event_ids = None

    @property
    def can_reopen(self) -> bool:
        """Whether a failure flag still tells something new: the trace is here and was not flagged before."""
        return self._json is not None

    @property
    def lacks_trace(self) -> bool:
        """Whether a failure flag would tell something new if the trace were here."""
        return self._json is None and not self.is_flagged and not self.is_quarantined

    def trace(self) -> Trace | None:
        """The trace, if it is kept: made anew from its JSON."""
        return None if self._json is None else Trace.model_validate_json(self._json)

    def had(self, event: Event) -> bool:
        """Whether this event was part of it: by its id, or by its seq once ids are forgotten."""
        if self.event_ids is not None:
            return event.event_id in self.event_ids
        return self.had_seq(event.seq)

    def had_seq(self, seq: int) -> bool:
        """Whether an event with this seq was part of it."""
        return seq <= self.highest_seq and not any(low <= seq <= high for low, high in self.missing)


class ClosedMemory:
    """Closed sessions in order of closing, bounded in number, age, and bytes of those kept whole."""

    def __init__(self, limit: int, age_ms: int, max_bytes: int) -> None:
        self._limit = limit
        self._age_ms = age_ms
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[Key, ClosedSession] = OrderedDict()
        self._whole: OrderedDict[Key, ClosedSession] = OrderedDict()
        self._bytes = 0
        self.has_shrunk = False  # whether any session was ever kept without its trace for want of room

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: Key) -> ClosedSession | None:
        """The session, if it is still remembered."""
        return self._sessions.get(key)

    def remember(self, key: Key, session: ClosedSession) -> None:
        """Keep a session that has just closed."""
        self._sessions[key] = session
        self._whole[key] = session
        self._bytes += session.size
        while self._bytes > self._max_bytes and self._whole:
            self._shrink(next(iter(self._whole)))
        while len(self._sessions) > self._limit:
            self._forget(next(iter(self._sessions)))

    def expire(self, wall_ms: int) -> None:
        """Forget sessions that closed too long ago; work is proportional to what is forgotten."""
        while self._sessions:
            key, session = next(iter(self._sessions.items()))
            if wall_ms - session.wall_ms <= self._age_ms:
                return
            self._forget(key)

    def _shrink(self, key: Key) -> None:
        session = self._whole.pop(key)
        self._bytes -= session.size
        session.shrink()
        self.has_shrunk = True

    def _forget(self, key: Key) -> None:
        if key in self._whole:
            self._shrink(key)
        del self._sessions[key]
