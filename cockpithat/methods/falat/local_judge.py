"""The search's questions, answered by graph, evidence and hazard rules. No model, no network.

What stands in for a judgement: the local analysts' ranking for relevance, clues for both inconsistencies, the
dependency graph for transitions and value flow. Weights are set by judgement, nothing is trained.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from cockpithat.analysis.analysts.base import Opinion
from cockpithat.analysis.clues import noisy_or, quote
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.support import supports_in
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.trace import TraceGraph
from cockpithat.graph import positional_fallback
from cockpithat.methods.base import LocalMethod
from cockpithat.methods.falat.search import NAME, FalatOptions, further_causes, hypothesis_of, search
from cockpithat.methods.falat.space import Hierarchy, Moment, Space, Stage, Suspect, align
from cockpithat.methods.falat.transitions import Transition, TransitionType
from cockpithat.methods.falat.verdict import Assessment, Challenge, Part, ThreeTests
from cockpithat.methods.finding import Finding, alone
from cockpithat.methods.signs import mends, repeats
from cockpithat.slicing.milestones import Milestone, milestones

_AGAINST_PRIOR = frozenset(
    {
        Category.PLANNING_FAILURE,
        Category.PLAN_ADHERENCE_FAILURE,
        Category.DRIVER_AGENT_INTERACTION,
        Category.SAFETY_SAFEGUARD_FAILURE,
        Category.CROSS_DOMAIN_CONTAMINATION,
    }
)
"""Clues of these categories hold a step against task, plan, person and safety; the others against what
stands around it."""

_TEXT_ONLY = 0.14
"""Without e, sigma and m, clues from words alone are hints, as for the local panel's evidence analyst."""

_STAGE_BEGINS = frozenset({Milestone.DECISION, Milestone.START})
_PER_WINDOW = 4
_SHIFT = 0.5  # clue weight from which a step has an error of its own
_COMPARABLE = 0.8  # share of a score from which another is as good: as a source, or to suffice
_TOP = 0.5  # share of the best relevance from which a step is looked at though it is no key moment

T = TypeVar("T")


def _relevance(opinions: Sequence[Opinion], n: int) -> list[float]:
    """The local analysts' confidence-weighted ranking of steps, 0 to 1."""
    total = sum(o.hypothesis.confidence for o in opinions if o.scores) or 1.0
    values = [0.0] * n
    for opinion in opinions:
        for step, score in opinion.scores.items():
            values[step] += opinion.hypothesis.confidence * score / total
    return values


def _reach(graph: TraceGraph, n: int) -> list[set[int]]:
    """For each step the later ones that depend on it, directly or not."""
    reach: list[set[int]] = [set() for _ in range(n)]
    for edge in sorted(graph.edges, key=lambda e: (-e.source, e.target)):
        reach[edge.source] |= {edge.target, *reach[edge.target]}
    return reach


class LocalJudge:
    """One trace's judge."""

    def __init__(self, examination: Examination, opinions: Sequence[Opinion]) -> None:
        self.examination, self.opinions = examination, opinions
        self.steps = examination.trace.steps
        n = len(self.steps)
        self.relevance = _relevance(opinions, n)
        graph = examination.trace.graph or TraceGraph()
        self.informative = not positional_fallback(graph, n)
        self.reach = _reach(graph, n)
        by_step = examination.clues_by_step
        weight = 1.0 if examination.view.embodied else _TEXT_ONLY

        def against(prior: bool, step: int) -> float:
            clues = [c for c in by_step.get(step, ()) if (c.category in _AGAINST_PRIOR) == prior]
            return weight * noisy_or(clues)

        self.against_prior = [against(True, step) for step in range(n)]
        self.against_local = [against(False, step) for step in range(n)]
        self.with_prior = True

    async def prior(self) -> None:
        """Rules know no task; what they expect of any is in the clues against plan, person and safety."""

    async def hierarchy(self, space: Space) -> Hierarchy:
        marks = milestones(self.examination.trace)
        moments = {step: kind.value for step, kind in marks.items()}
        moments |= {c.step: c.kind.replace("_", " ") for c in reversed(self.examination.clues)}
        stages = [Stage(step, step, kind.value) for step, kind in marks.items() if kind in _STAGE_BEGINS]
        return align(stages, [Moment(step, what) for step, what in moments.items()], space.n)

    def suspect(self, step: int) -> Suspect:
        """One step's values."""
        prior = self.against_prior[step] if self.with_prior else None
        why = next((c.kind for c in self.examination.clues_by_step.get(step, ())), "ranking")
        return Suspect(step, self.relevance[step], self.against_local[step], prior, why)

    async def suspects(self, space: Space) -> list[Suspect]:
        moments = {m.step for m in space.hierarchy.moments} if space.hierarchy else None
        best = max(self.relevance, default=0.0)
        found: list[Suspect] = []
        for window in space.windows:
            ranked = sorted(map(self.suspect, window), key=lambda s: (-s.score, s.step))
            # Coarse to fine: with a hierarchy a step is looked at if it is a key moment or ranks at the top.
            looked = [
                s
                for s in ranked
                if s.score > 0
                and (moments is None or s.step in moments or self.relevance[s.step] >= _TOP * best)
            ]
            found.extend(looked[:_PER_WINDOW])
        return found or [self.suspect(max(range(space.n), key=lambda i: self.relevance[i]))]

    async def transitions(self, space: Space, suspects: Sequence[Suspect]) -> list[Transition]:
        if not self.informative:
            return []  # a near-linear or loose graph says nothing about what flows where
        order = sorted(s.step for s in suspects)
        last = max((i for i in self.examination.view.actors), default=space.n - 1)
        found: list[Transition] = []
        for place, source in enumerate(order):
            found.extend(
                Transition(source, target, kind)
                for target in order[place + 1 :]
                if (kind := self._kind(source, target)) is not None
            )
            mended = next((i for i in self.reach[source] if mends(self.steps[source], self.steps[i])), None)
            if mended is not None:
                found.append(Transition(source, mended, TransitionType.CORRECTION))
            if source == last or last in self.reach[source]:
                found.append(Transition(source, space.n, TransitionType.FOLLOW_UP))
            elif not self.reach[source] and source < last - 1 and not self._hazardous(source):
                found.append(Transition(source, space.n, TransitionType.DEAD_END))
        return found

    def _hazardous(self, step: int) -> bool:
        """A step that ordered a hazard had its effect in the car, whatever the dialogue made of it."""
        return any(f.step == step for f in self.examination.hazards.rated)

    def _kind(self, source: int, target: int) -> TransitionType | None:
        if repeats(self.steps[source], self.steps[target]):
            return TransitionType.REDUNDANT
        if target not in self.reach[source]:
            return None
        own = max(self.against_local[target], self.against_prior[target])
        return TransitionType.ERROR_SHIFT if own >= _SHIFT else TransitionType.FOLLOW_UP

    async def verify(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        return {s.step: s.score for s in suspects}

    async def narrow(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        """A source explains what depends on it: up to a fifth more for reaching much of the trace."""
        return {
            s.step: min(1.0, s.score * (1 + 0.2 * len(self.reach[s.step]) / max(space.n - s.step, 1)))
            for s in suspects
        }

    async def test(self, space: Space, suspects: Sequence[Suspect]) -> Assessment:
        best = max(s.score for s in suspects)
        strong = {s.step: s.score for s in suspects}
        tested = []
        for s in suspects:
            before = [o for o in suspects if o.step < s.step]
            taken_over = any(
                s.step in self.reach[o.step] and o.score >= _COMPARABLE * s.score for o in before
            )
            sufficient = s.score >= _COMPARABLE * best
            precedes = all(strong[o.step] < _COMPARABLE * s.score for o in before)
            tested.append(ThreeTests(s.step, not taken_over, sufficient, precedes))
        return Assessment(tuple(tested))

    async def challenge(
        self, space: Space, predicted: int, near: Sequence[int], together: Sequence[int]
    ) -> list[Challenge]:
        best = self.suspect(predicted).score
        found = []
        for step in near:
            score = self.suspect(step).score
            before = [o for o in near if o < step and step in self.reach[o]]
            taken_over = any(self.suspect(o).score >= _COMPARABLE * score for o in before)
            part = Part.PROPAGATION if taken_over else Part.CONTRIBUTING
            if step == predicted:
                part = Part.ROOT_CAUSE
            recovers = step == predicted or (score > best and not taken_over)
            found.append(self.verdict(step, part, recovers, min(1.0, score)))
        return found

    def verdict(self, step: int, part: Part, recovers: bool, suspicion: float) -> Challenge:
        """Agent, category and evidence by the analyst that speaks for the step most, else by its clues."""
        voices = [o.hypothesis for o in self.opinions if o.hypothesis.step == step]
        voice = max(voices, key=lambda h: h.confidence, default=None)
        agent = voice.agent if voice and voice.agent else self.steps[step].agent
        rated = [f.asil for f in self.examination.hazards.rated if f.step == step]
        return Challenge(
            step,
            max(suspicion, voice.confidence if voice else 0.0),
            part,
            recovers,
            agent,
            (voice.category if voice else None) or self.examination.category_at(step, agent),
            max(rated, key=lambda a: a.rank, default=Asil.UNRATED),
            quote(self.examination.clues_by_step[step][0].text)
            if step in self.examination.clues_by_step
            else "",
            self.examination.evidence_at(step),
        )


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing; the local judge's never do."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a local judgement waited for something")


class LocalFalat(LocalMethod[FalatOptions]):
    """FALAT's search with rules as judge."""

    name = NAME
    options_type = FalatOptions

    def find(self, examination: Examination) -> Finding:
        judge = LocalJudge(examination, self.local.opinions(examination))
        judge.with_prior = self.options.prior
        outcome = run(
            search(
                judge,
                len(examination.trace.steps),
                self.options,
                lambda step: judge.verdict(step, Part.ROOT_CAUSE, False, judge.suspect(step).score),
            )
        )
        decision = alone(hypothesis_of(outcome), examination, self.settings, supports_in(examination.trace))
        return Finding(decision, outcome.scores, further_causes(outcome), outcome.notes, outcome.reasons)
