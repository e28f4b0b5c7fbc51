"""Typed dependencies between candidates, value flow to the final output, and pruning (section 2.2). Pure.

How the six types act on the flow is reconstructed; the source gives the types and what pruning is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class TransitionType(StrEnum):
    """The six types of appendix A.2, from an earlier to a later step."""

    FOLLOW_UP = "follow_up"  # the later step uses what the earlier one gave: it carries its error on
    REDUNDANT = "redundant"  # it says the same again
    UNRELATED = "unrelated"  # nothing passes between them
    ERROR_SHIFT = "error_shift"  # it uses the earlier result and adds another error
    CORRECTION = "correction"  # it sets the earlier result right
    DEAD_END = "dead_end"  # the earlier result is not used by anything after


CARRIES = frozenset({TransitionType.FOLLOW_UP, TransitionType.REDUNDANT, TransitionType.ERROR_SHIFT})
NAMES = tuple(kind.value for kind in TransitionType)


@dataclass(frozen=True, slots=True)
class Transition:
    """One typed dependency. ``target`` equal to the number of steps is the final output."""

    source: int
    target: int
    kind: TransitionType
    value: str = ""  # what passes


@dataclass(frozen=True, slots=True)
class Flow:
    """What the transitions mean for the candidates. ``pruned`` says of each pruned one why."""

    kept: tuple[int, ...]
    pruned: dict[int, str]
    reaches: frozenset[int]  # candidates whose effect gets to the final output
    carriers: dict[int, int]  # a candidate that only carries on an error, to where it took it from


def _cut(transitions: Iterable[Transition]) -> dict[int, int]:
    """Where each corrected step was first set right: from there on nothing of it passes."""
    cut: dict[int, int] = {}
    for t in transitions:
        if t.kind == TransitionType.CORRECTION:
            cut[t.source] = min(cut.get(t.source, t.target), t.target)
    return cut


def flow(candidates: Iterable[int], transitions: Iterable[Transition], final: int) -> Flow:
    """Follow values from each candidate to the final output and prune those that cannot be decisive.

    Pruned are candidates of which something is known and nothing reaches the output (corrected, a dead end,
    unrelated), and those that only say again what an earlier one said. A candidate no transition speaks of
    stays. When all would go, all stay.
    """
    given = [t for t in transitions if 0 <= t.source < t.target <= final]
    cut = _cut(given)
    out: dict[int, list[int]] = {}
    for t in given:
        # Set right at a step, a value can still have been used before it.
        if t.kind in CARRIES and t.target < cut.get(t.source, final + 1):
            out.setdefault(t.source, []).append(t.target)
    reaches = frozenset(step for step in {t.source for t in given} if _arrives(step, out, final))
    spoken = {t.source for t in given}
    order = sorted(set(candidates))
    pruned: dict[int, str] = {}
    carriers: dict[int, int] = {}
    for t in sorted(given, key=lambda t: (t.source, t.target)):
        if t.target in order and t.source in order:
            if t.kind == TransitionType.REDUNDANT:
                pruned.setdefault(t.target, f"says again what step {t.source} said")
            elif t.kind == TransitionType.FOLLOW_UP:
                carriers.setdefault(t.target, t.source)
    for step in order:
        if step in spoken and step not in reaches:
            pruned[step] = f"corrected at step {cut[step]}" if step in cut else "does not reach the output"
    if len(pruned) == len(order):
        pruned = {}
    kept = tuple(step for step in order if step not in pruned)
    return Flow(kept, pruned, reaches, {c: s for c, s in carriers.items() if c in kept and s in kept})


def _arrives(step: int, out: dict[int, list[int]], final: int) -> bool:
    seen, pending = {step}, [step]
    while pending:
        for target in out.get(pending.pop(), ()):
            if target == final:
                return True
            if target not in seen:
                seen.add(target)
                pending.append(target)
    return False


def described(transitions: Iterable[Transition], result: Flow, final: int) -> list[str]:
    """The dependencies and what follows from them, for a prompt."""
    lines = [
        f"{t.source} -> {'final output' if t.target == final else t.target}: {t.kind.value}"
        + (f" ({t.value})" if t.value else "")
        for t in transitions
    ]
    lines += [f"step {step} carries on step {source}" for step, source in sorted(result.carriers.items())]
    return lines
