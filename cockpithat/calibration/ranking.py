"""Every step of a trace in the order in which a report suspects it, whatever method made the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpithat.contract.reports import Report


def ranking_of(report: Report, steps: int) -> tuple[int, ...]:
    """All step indices of a trace of ``steps`` steps, the most suspect first.

    The verdict's step, then the report's candidates, then its other root causes and hypotheses. What no part
    of the report names follows by its distance to what is named, the earlier of equals first, for a cause
    comes before its effect.
    """
    named: dict[int, None] = {}
    guesses: list[int | None] = [report.step]
    guesses += [candidate.step for candidate in report.candidates]
    guesses += [cause.step for cause in report.root_causes]
    guesses += [h.step for h in sorted(report.hypotheses, key=lambda h: -(h.weight or h.confidence))]
    for step in guesses:
        if step is not None and 0 <= step < steps:
            named.setdefault(step)
    return (*named, *_by_distance(tuple(named), steps))


def contiguous(ranking: Sequence[int]) -> tuple[int, ...]:
    """The same steps in an order whose every beginning is one range.

    It starts at the top of the ranking and grows by the better ranked of the two neighbours.
    """
    if not ranking:
        return ()
    place = {step: i for i, step in enumerate(ranking)}
    low = high = ranking[0]
    order = [low]
    for _ in range(len(ranking) - 1):
        below, above = place.get(low - 1), place.get(high + 1)
        if above is None or (below is not None and below < above):
            low -= 1
            order.append(low)
        else:
            high += 1
            order.append(high)
    return tuple(order)


def _by_distance(named: Sequence[int], steps: int) -> Iterable[int]:
    """Unnamed steps, nearest to a named one first: one pass from the left, one from the right."""
    marks = set(named)
    distance = [steps] * steps
    for order in (range(steps), range(steps - 1, -1, -1)):
        last: int | None = None
        for i in order:
            last = i if i in marks else last
            if last is not None:
                distance[i] = min(distance[i], abs(last - i))
    return sorted((i for i in range(steps) if i not in marks), key=lambda i: (distance[i], i))
