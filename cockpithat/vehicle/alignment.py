"""Joins vehicle state with a session's steps on a time grid (paper, section 3.1, sigma; design, decision 4).

Order is by the exact timestamps: a snapshot at the step's own millisecond or earlier belongs to the state
before the step, a later one to what changed after it. What is reported is floored onto the grid (100 ms),
and of several transitions of one signal in one cell only the net one is kept. Times of steps that go
back are held at the latest so far, since ``seq`` and not the clock says what came first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from cockpithat.contract.events import IntendedChange
from cockpithat.contract.trace import StepState
from cockpithat.contract.vehicle import SignalQuality, VssValue
from cockpithat.vehicle.states import Reading, StateWindow

_UNKNOWN = Reading(None, SignalQuality.UNKNOWN)
_STALE = Reading(None, SignalQuality.STALE)


class Timed(Protocol):
    """What alignment needs of a step."""

    @property
    def ts(self) -> int:
        """Epoch ms."""
        ...

    @property
    def intended(self) -> tuple[IntendedChange, ...]:
        """Changes the step sets out to make."""
        ...


@dataclass(frozen=True, slots=True)
class AlignmentBounds:
    """Grid in ms; most transitions of one signal kept for one step; most unwatched signals carried."""

    grid_ms: int = 100
    changes_per_signal: int = 32
    unwatched_signals: int = 256


def align(
    steps: Sequence[Timed],
    window: StateWindow,
    watched: Collection[str],
    bounds: AlignmentBounds | None = None,
) -> list[StepState]:
    """One :class:`StepState` a step.

    Carried are signals that are watched, intended by a step, or changed in the window. A value is
    ``None`` whenever it cannot be used, and the qualities say why. A
    watched signal that the vehicle never sent is absent, which means unknown as well.
    """
    bounds = bounds or AlignmentBounds()
    carried = _carried(steps, window, watched, bounds)
    times = _held(step.ts for step in steps)
    ends = [*times[1:], max(window.end_ms, times[-1])] if times else []
    cursor = _Cursor(window, carried)
    states: list[StepState] = []
    before = cursor.advance(times[0])[0] if times else {}
    for start, end in zip(times, ends, strict=True):
        after, moves = cursor.advance(end)
        states.append(_state(before, after, moves, start, end, bounds))
        before = after
    return states


class _Move:
    """One observed transition."""

    __slots__ = ("after", "before", "path", "ts")

    def __init__(self, path: str, before: Reading, after: Reading, ts: int) -> None:
        self.path = path
        self.before = before
        self.after = after
        self.ts = ts


class _Cursor:
    """Walks a window's updates once, in time order, over the carried signals."""

    def __init__(self, window: StateWindow, carried: Sequence[str]) -> None:
        self._window = window
        self._carried = carried
        self._wanted = frozenset(carried)
        self._state = {path: window.base[path] for path in carried if path in window.base}
        self._heard = window.base_ts
        self._youngest = min([window.default_age_ms, *window.max_age_ms.values()])
        self._next = 0

    def advance(self, until_ms: int) -> tuple[dict[str, Reading], list[_Move]]:
        """State at ``until_ms`` and the transitions on the way there."""
        moves: list[_Move] = []
        updates, state, wanted = self._window.updates, self._state, self._wanted
        while self._next < len(updates) and updates[self._next].ts <= until_ms:
            update = updates[self._next]
            self._next += 1
            if update.reset:
                for path in [path for path in state if path not in update.readings]:
                    # No transition was seen, only the knowledge is gone.
                    del state[path]
            if update.readings or not update.reset:
                self._heard = update.ts
            for path, reading in update.readings.items():
                if path not in wanted:
                    continue
                held = state.get(path, _UNKNOWN)
                if held is reading:
                    continue
                if held != reading or type(held.value) is not type(reading.value):
                    moves.append(_Move(path, held, reading, update.ts))
                state[path] = reading
        return self._read(until_ms), moves

    def _read(self, at_ms: int) -> dict[str, Reading]:
        age = at_ms - self._heard if self._heard is not None else 0
        state = self._state
        read = {path: state.get(path, _UNKNOWN) for path in self._carried}
        if age > self._youngest:
            ages, default = self._window.max_age_ms, self._window.default_age_ms
            for path, reading in read.items():
                if age > ages.get(path, default) and reading.quality == SignalQuality.VALID:
                    read[path] = _STALE
        return read


def _carried(
    steps: Sequence[Timed], window: StateWindow, watched: Collection[str], bounds: AlignmentBounds
) -> list[str]:
    intended = {change.path for step in steps for change in step.intended}
    sent = set(window.base)
    changed: set[str] = set()
    last: dict[str, Reading] = dict(window.base)
    for update in window.updates:
        for path, reading in update.readings.items():
            sent.add(path)
            if path in last and last[path] != reading:
                changed.add(path)
            last[path] = reading
    watched_and_sent = sent.intersection(watched)
    others = sorted(changed - watched_and_sent - intended)[: bounds.unwatched_signals]
    return sorted(watched_and_sent | intended | set(others))


def _held(times: Iterable[int]) -> list[int]:
    held: list[int] = []
    for ts in times:
        held.append(ts if not held or ts > held[-1] else held[-1])
    return held


def _state(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    moves: Sequence[_Move],
    start: int,
    end: int,
    bounds: AlignmentBounds,
) -> StepState:
    # Validated as a whole: pydantic makes a change from a mapping at a third of the cost of one made here.
    return StepState.model_validate(
        {
            "before_ts": _floor(start, bounds.grid_ms),
            "after_ts": _floor(end, bounds.grid_ms),
            "before": {path: reading.value for path, reading in before.items()},
            "after": {path: reading.value for path, reading in after.items()},
            "changes": _changes(moves, bounds),
            "quality": _not_valid(before),
            "after_quality": _not_valid(after),
        }
    )


def _not_valid(readings: Mapping[str, Reading]) -> dict[str, SignalQuality]:
    return {
        path: reading.quality for path, reading in readings.items() if reading.quality != SignalQuality.VALID
    }


def _changes(moves: Sequence[_Move], bounds: AlignmentBounds) -> list[dict[str, Any]]:
    """Fields of the transitions that are kept, in order of time, then path."""
    by_path: dict[str, list[_Move]] = {}
    for move in moves:
        by_path.setdefault(move.path, []).append(move)
    kept: list[tuple[int, str, dict[str, Any]]] = []
    for path, path_moves in by_path.items():
        for move in _thin(_net(path_moves, bounds.grid_ms), bounds.changes_per_signal):
            (before, quality), after, ts = move.before, move.after.value, _floor(move.ts, bounds.grid_ms)
            fields = {"path": path, "before": before, "after": after, "before_quality": quality, "ts": ts}
            kept.append((ts, path, fields))
    kept.sort(key=itemgetter(0, 1))
    return [fields for _, _, fields in kept]


def _net(moves: Sequence[_Move], grid_ms: int) -> list[_Move]:
    """One transition a cell; one that ends where it began is none."""
    cells: list[_Move] = []
    latest: int | None = None
    for move in moves:
        cell = move.ts // grid_ms
        if cell == latest:
            cells[-1] = _Move(move.path, cells[-1].before, move.after, move.ts)
        else:
            cells.append(move)
            latest = cell
    return [move for move in cells if move.before != move.after]


def _thin(moves: list[_Move], limit: int) -> list[_Move]:
    """At most ``limit`` transitions of one signal, still without a gap between one and the next.

    First, last and the extremes stay, the rest is taken evenly: a speed that moves ten times a second
    over minutes would otherwise outgrow the trace.
    """
    if len(moves) <= limit:
        return moves
    numbers = [number for number, move in enumerate(moves) if _is_number(move.after.value)]
    keep = {0, len(moves) - 1}
    if numbers:
        keep.add(max(numbers, key=lambda number: _number(moves[number].after.value)))
        keep.add(min(numbers, key=lambda number: _number(moves[number].after.value)))
    free = max(0, limit - len(keep))
    keep.update(len(moves) * part // (free + 1) for part in range(1, free + 1))
    thinned: list[_Move] = []
    for number in sorted(keep):
        move = moves[number]
        before = thinned[-1].after if thinned else move.before
        thinned.append(_Move(move.path, before, move.after, move.ts))
    return [move for move in thinned if move.before != move.after]


def _is_number(value: VssValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: VssValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _floor(ts: int, grid_ms: int) -> int:
    return ts // grid_ms * grid_ms
