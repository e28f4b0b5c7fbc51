"""Features of evidence: the clues at a step, and whether the step brings an error in or carries one on."""

from __future__ import annotations

from cockpithat.analysis.examination import Examination
from cockpithat.ranking.texts import Features

_FADES = 0.9
_CONSEQUENCES = frozenset({"hazard_caused", "hazard_in_doubt", "corrected_by_person", "order_undone"})


def evidence_features(examination: Examination, steps: list[int]) -> dict[int, Features]:
    """``clue_<kind>`` and ``clue_strength`` at each step; ``carries`` and ``introduces`` along the graph."""
    strength = introduced(examination)
    carried = carried_along(examination, strength)
    total = sum(strength.values()) or 1.0
    best = max(strength.values(), default=0.0)
    count: dict[str, int] = {}
    for clue in examination.clues:
        count[clue.kind] = count.get(clue.kind, 0) + 1
    result: dict[int, Features] = {}
    first_strong = next((i for i in sorted(strength) if strength[i] >= 0.5), None)
    for i in steps:
        features: Features = {}
        for clue in examination.clues_by_step.get(i, ()):
            name = f"clue_{clue.kind}"
            if name not in features:
                features[name] = 1.0
                features[f"only_{clue.kind}"] = float(count[clue.kind] == 1)
        own = strength.get(i, 0.0)
        features["clue_strength"] = own
        features["clue_share"] = own / total
        features["clue_strongest"] = float(own > 0 and own == best)
        features["clue_first_strong"] = float(i == first_strong)
        features["carries"] = carried.get(i, 0.0)
        features["introduces"] = max(own - carried.get(i, 0.0), 0.0)
        result[i] = {name: value for name, value in features.items() if value}
    return result


def introduced(examination: Examination) -> dict[int, float]:
    """How strongly the clues at a step say that something goes wrong there; consequences count half."""
    scores: dict[int, float] = {}
    for step, clues in examination.clues_by_step.items():
        best: dict[str, float] = {}
        for clue in clues:
            weight = clue.weight * (0.5 if clue.kind in _CONSEQUENCES else 1.0)
            best[clue.kind] = max(best.get(clue.kind, 0.0), weight)
        doubt = 1.0
        for weight in best.values():
            doubt *= 1.0 - min(weight, 0.99)
        scores[step] = 1.0 - doubt
    return scores


def carried_along(examination: Examination, strength: dict[int, float]) -> dict[int, float]:
    """The strongest error that reaches a step over the edges into it, a little weaker with each edge."""
    graph = examination.trace.graph
    carried: dict[int, float] = {}
    if graph is None:
        return carried
    for edge in sorted(graph.edges, key=lambda e: (e.target, e.source)):
        reached = _FADES * max(strength.get(edge.source, 0.0), carried.get(edge.source, 0.0))
        if reached > carried.get(edge.target, 0.0):
            carried[edge.target] = reached
    return carried
