"""CHIEF's backtracking order and progressive causal screening (2602.23701). Pure; rules reconstructed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subtask:
    """Top level of the causal graph: steps ``first`` to ``last``, and the subtasks whose results it uses."""

    number: int
    goal: str
    first: int
    last: int
    needs: tuple[int, ...] = ()


def backtrack(subtasks: Sequence[Subtask], missed: Collection[int], limit: int) -> list[Subtask]:
    """From the last subtask back along what each needs: those that miss their oracle, earliest causes last.

    A subtask that met its oracle is not walked through: its inputs were good enough. When the walk finds
    nothing, all that missed count, latest first; when none missed, the last one does. At most ``limit``, the
    ones furthest back are kept, for a root cause lies behind what it caused.
    """
    by_number = {s.number: s for s in subtasks}
    found: dict[int, Subtask] = {}
    pending = [subtasks[-1].number] if subtasks else []
    seen: set[int] = set()
    while pending:
        number = pending.pop(0)
        if number in seen or number not in by_number:
            continue
        seen.add(number)
        if number in missed:
            found[number] = by_number[number]
            pending.extend(sorted(by_number[number].needs, reverse=True))
    if not found:
        found = {s.number: s for s in reversed(subtasks) if s.number in missed}
    if not found and subtasks:
        found = {subtasks[-1].number: subtasks[-1]}
    return list(found.values())[-limit:]


@dataclass(frozen=True, slots=True)
class Screened:
    """The three screens of one candidate, in their order."""

    step: int
    own: bool  # the deviation starts here and was not in what the step was given
    lasting: bool  # nothing later set it right
    recovers: bool  # with this step corrected the outcome is right


def screen(screened: Iterable[Screened], scores: Mapping[int, float]) -> list[int]:
    """Candidates left after each screen in turn, earliest first.

    A screen that nobody passes is skipped, so that one is always left. ``scores`` must not be empty.
    """
    judged = {s.step: s for s in screened if s.step in scores}
    left = sorted(judged) or sorted(scores, key=lambda step: (-scores[step], step))[:1]
    for passing in (
        {s.step for s in judged.values() if s.own},
        {s.step for s in judged.values() if s.lasting},
        {s.step for s in judged.values() if s.recovers},
    ):
        kept = [step for step in left if step in passing]
        left = kept or left
        if len(left) == 1:
            break
    return left
