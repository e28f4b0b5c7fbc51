"""Signals that rules watch and no catalogue knows: with a slip in its path, a rule waits for ever."""

from __future__ import annotations

import difflib

from cockpithat.analysis.rules import RuleSet, watched_by
from cockpithat.vehicle.catalogue import SignalCatalogue

_NAMED = 3


def unknown_signals(rules: RuleSet, catalogue: SignalCatalogue | None = None) -> list[str]:
    """One warning for each VSS path that a rule watches and no version in ``catalogue`` has.

    It names the rules and the path, and the known path that is nearest, if any is near. The catalogue is
    the shipped one by default. An unknown path is no error: vehicles have signals of their own.
    """
    known = (catalogue or SignalCatalogue.shipped()).paths()
    watching: dict[str, list[str]] = {}
    for rule in rules.rules:
        for path in sorted(watched_by(rules, rule) - known):
            watching.setdefault(path, []).append(rule.id)
    choices = sorted(known) if watching else []
    return [_warning(path, named, choices) for path, named in sorted(watching.items())]


def _warning(path: str, rules: list[str], choices: list[str]) -> str:
    more = f" and {len(rules) - _NAMED} more" if len(rules) > _NAMED else ""
    names = f"{', '.join(rules[:_NAMED])}{more}"
    subject = f"rule {names} watches" if len(rules) == 1 else f"rules {names} watch"
    near = difflib.get_close_matches(path, choices, n=1, cutoff=0.85)
    hint = f"did you mean {near[0]}?" if near else "check its spelling."
    return (
        f"{subject} {path}, "
        f"which is not in the signal catalogue: {hint} "
        "If no vehicle sends it, it stays unknown; if yours do, their values are used unchecked."
    )
