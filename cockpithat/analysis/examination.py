"""All that is known about a trace before anyone votes: hazards, clues, and how both bear on steps."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from cockpithat.analysis.clues import Clue, noisy_or
from cockpithat.analysis.detectors.registry import find_clues
from cockpithat.analysis.hazards import HazardEngine, HazardFindings
from cockpithat.analysis.support import CONCRETE
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence
from cockpithat.contract.trace import Trace

if TYPE_CHECKING:
    from cockpithat.ranking.model import Ranker, Ranking

_CONSEQUENCES = frozenset({"hazard_caused", "hazard_in_doubt", "corrected_by_person"})
_CLEAR = 0.6  # probability of a category from which on the weights name it and not the clues
SURE = 0.5
"""Share of the ranking from which on its step is taken as where the failure began."""

_SAME_AGENT = 0.3
_ELSEWHERE = 0.1
_CONSEQUENCE = 0.35


class Examination:
    """Hazards and clues of one trace; every method shares it, with or without a language model."""

    def __init__(
        self,
        trace: Trace,
        engine: HazardEngine,
        ranker: Ranker | None = None,
        *,
        rated_by_ranker: bool = True,
    ) -> None:
        self.trace = trace
        self.ranker = ranker
        self.rated_by_ranker = rated_by_ranker
        self.view = TraceView(trace)
        self.hazards: HazardFindings = engine.scan(trace)
        self.clues: tuple[Clue, ...] = find_clues(self.view, self.hazards)

    @cached_property
    def ranking(self) -> Ranking | None:
        """The trained ranking of the steps; ``None`` without a ranker, or where no weights apply."""
        return self.ranker.rank(self) if self.ranker is not None else None

    @property
    def sure_step(self) -> int | None:
        """The ranking's step where it has half of the share and a concrete clue at it; else ``None``.

        The cockpit's weights come from simulated sessions. Without a clue they only know habits of those.
        """
        ranking = self.ranking
        if ranking is None or ranking.by_step[ranking.step] < SURE:
            return None
        clues = self.clues_by_step.get(ranking.step, ())
        concrete = any(c.weight >= CONCRETE and c.kind not in _CONSEQUENCES for c in clues)
        return ranking.step if concrete else None

    @cached_property
    def floor(self) -> Asil:
        """The most severe rating among the hazards; ``unrated`` without one."""
        return max((f.asil for f in self.hazards.rated), key=lambda a: a.rank, default=Asil.UNRATED)

    @cached_property
    def clues_by_step(self) -> dict[int, list[Clue]]:
        """Clues at each step."""
        by_step: dict[int, list[Clue]] = defaultdict(list)
        for clue in self.clues:
            by_step[clue.step].append(clue)
        return dict(by_step)

    @cached_property
    def step_scores(self) -> dict[int, float]:
        """How far the clues at each step that has some speak against it."""
        return {step: noisy_or(clues) for step, clues in self.clues_by_step.items()}

    def category_at(self, step: int, agent: str | None) -> Category:
        """The category the clues speak for at a step; without clues, what kind of step it is."""
        ranking = self.ranking
        if ranking is not None and self.ranker is not None and step == self.sure_step:
            known = self.ranker.category(ranking.features, step)
            if known is not None and known[1] >= _CLEAR:
                return known[0]
        totals: dict[Category, float] = defaultdict(float)
        for clue in self.clues:
            share = 1.0 if clue.step == step else _SAME_AGENT if clue.agent == agent else _ELSEWHERE
            # A hazard is what a failure led to; how it came about is told by the other clues.
            weight = min(clue.weight, _CONSEQUENCE) if clue.kind == "hazard_caused" else clue.weight
            totals[clue.category] += share * weight
        if totals:
            return max(sorted(totals), key=lambda c: totals[c])
        return self._category_by_kind(step)

    def _category_by_kind(self, step: int) -> Category:
        view = self.view
        if view.steps[step].plan or view.steps[step].mode == "plan" or view.keys[step] in view.coordinators:
            return Category.PLANNING_FAILURE
        before = step - 1
        if before >= 0 and (view.steps[before].tool_outputs or view.keys[before] in view.machines):
            return Category.MISINTERPRETATION_OF_TOOL_OUTPUT
        return Category.INVENTION_OF_NEW_INFORMATION

    def evidence_at(self, step: int, limit: int = 6) -> tuple[Evidence, ...]:
        """The heaviest clues at one step, in wire form."""
        clues = sorted(self.clues_by_step.get(step, ()), key=lambda c: -c.weight)[:limit]
        return tuple(clue.evidence(self.trace) for clue in clues)

    def all_evidence(self, limit: int) -> tuple[Evidence, ...]:
        """Evidence of hazards, then clues by weight, without doubles, at most ``limit``."""
        items: dict[tuple[str, int | None, str], Evidence] = {}
        for found in (*self.hazards.rated, *self.hazards.present):
            for evidence in found.evidence:
                items.setdefault((evidence.kind, evidence.step, evidence.text), evidence)
        for doubt in self.hazards.not_excluded:
            for evidence in doubt.evidence:
                marked = evidence.model_copy(update={"kind": "hazard_not_excluded"})
                items.setdefault((marked.kind, marked.step, marked.text), marked)
        for clue in sorted(self.clues, key=lambda c: (-c.weight, c.step)):
            if len(items) >= limit:
                break
            evidence = clue.evidence(self.trace)
            items.setdefault((evidence.kind, evidence.step, evidence.text), evidence)
        return tuple(items.values())[:limit]
