"""Zero-training baselines of ``docs/local-analyst.md``, as methods with full reports."""

from __future__ import annotations

import random
import time

from cockpithat.analysis.hazards import HazardEngine
from cockpithat.analysis.ranking import heaviest_agent, longest_step
from cockpithat.analysis.reporting import build_report, provenance_of
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.analysis.view import TraceView
from cockpithat.consensus import decide
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Candidate, Hypothesis, Report
from cockpithat.contract.trace import Trace


class _Baseline:
    """One guess, with the rules' severity: a baseline for where and who, not for how bad."""

    name = "baseline"
    analysts = "local"

    def __init__(self, settings: AttributionSettings | None = None) -> None:
        self.settings = settings or AttributionSettings()
        self.rules = self.settings.rules()
        self._engine = HazardEngine(self.rules)
        self.provenance = provenance_of(self.settings, self.rules, method=self.name)

    def guess(self, view: TraceView) -> tuple[int, str]:
        """Step and agent."""
        raise NotImplementedError

    def judge(self, trace: Trace) -> Report:
        """The report of one trace."""
        start = time.perf_counter()
        findings = self._engine.scan(trace)
        floor = max((f.asil for f in findings.rated), key=lambda a: a.rank, default=Asil.UNRATED)
        hypotheses: list[Hypothesis] = []
        candidates: list[Candidate] = []
        if trace.steps:
            step, agent = self.guess(TraceView(trace))
            category = Category.INVENTION_OF_NEW_INFORMATION  # the paper's most frequent general category
            hypotheses = [
                Hypothesis(analyst=self.name, step=step, agent=agent, category=category, confidence=0.5)
            ]
            candidates = [Candidate(step=step, agent=agent, score=1.0)]
        return build_report(
            trace,
            decide(hypotheses, settings=self.settings.consensus, floor=floor),
            method=self.name,
            analysts=self.analysts,
            findings=findings,
            provenance=self.provenance,
            settings=self.settings,
            candidates=candidates,
            seconds=round(time.perf_counter() - start, 6),
        )

    async def attribute(self, trace: Trace) -> Report:
        """As :meth:`judge`."""
        return self.judge(trace)


class RandomGuess(_Baseline):
    """Step and agent drawn apart and uniformly, agents from all that spoke; seeded by the trace."""

    name = "random"

    def guess(self, view: TraceView) -> tuple[int, str]:
        """The same for the same trace, always."""
        dice = random.Random(view.trace.trace_id)
        speakers = list(dict.fromkeys(view.keys))
        return dice.randrange(len(view.steps)), view.spelling[dice.choice(speakers)]


class LongestStep(_Baseline):
    """The longest step that is not a person's or a terminal's, and its agent."""

    name = "longest-step"

    def guess(self, view: TraceView) -> tuple[int, str]:
        """The earliest of equals."""
        step = longest_step(view)
        return step, view.steps[step].agent


class MostCharacters(_Baseline):
    """The agent with the most characters, and its first step."""

    name = "most-characters"

    def guess(self, view: TraceView) -> tuple[int, str]:
        """The first of equals."""
        step = view.own_steps(heaviest_agent(view))[0]
        return step, view.steps[step].agent
