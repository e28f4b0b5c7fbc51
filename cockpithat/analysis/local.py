"""The local panel: rules, clues and rankers vote through the paper's consensus. No network, no key."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cockpithat.analysis.analysts.base import Opinion
from cockpithat.analysis.analysts.registry import LOCAL_ANALYSTS
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.hazards import HazardEngine
from cockpithat.analysis.reporting import build_report, provenance_of, suspicion_for
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.analysis.support import supports_in
from cockpithat.consensus import Decision, decide, mechanical_resolution
from cockpithat.contract.reports import Candidate, Report, RootCause, Suspicion
from cockpithat.contract.trace import Trace
from cockpithat.ranking.model import load_ranker
from cockpithat.screening.model import Screening

METHOD = "cockpithat"
ANALYSTS = "local"


class LocalAttribution:
    """Judges traces deterministically; safe to share between threads, it keeps nothing of a trace."""

    name = METHOD
    analysts = ANALYSTS

    def __init__(self, settings: AttributionSettings | None = None) -> None:
        """Loads and compiles the rules. Raises ``RulesError``, ``ScreeningError``."""
        self.settings = settings or AttributionSettings()
        self.rules = self.settings.rules()
        self.engine = HazardEngine(self.rules)
        self.ranker = load_ranker(self.settings.ranker_file) if self.settings.ranker else None
        self.screening = Screening(self.settings.screening)
        self.screening.check_rules(self.rules.version)
        panel = [analyst.name for analyst in LOCAL_ANALYSTS]
        weights = self.ranker.digest if self.ranker is not None else None
        self.provenance = provenance_of(self.settings, self.rules, method=METHOD, panel=panel, ranker=weights)

    def examine(self, trace: Trace) -> Examination:
        """Hazards and clues of a trace, for methods that add analysts of their own."""
        return Examination(trace, self.engine, self.ranker, rated_by_ranker=self.settings.ranker_rates)

    def opinions(self, examination: Examination) -> tuple[Opinion, ...]:
        """What each local analyst says; none on a trace without steps."""
        if not examination.trace.steps:
            return ()
        return tuple(analyst.analyse(examination) for analyst in LOCAL_ANALYSTS)

    def judge(self, trace: Trace) -> Report:
        """The report of one trace, linear in its steps. Deterministic but for ``seconds``."""
        start = time.perf_counter()
        examination = self.examine(trace)
        opinions = self.opinions(examination)
        decision = decide(
            [opinion.hypothesis for opinion in opinions],
            settings=self.settings.consensus,
            floor=examination.floor,
            resolve=mechanical_resolution,
            supports=supports_in(trace),
        )
        return build_report(
            trace,
            decision,
            method=METHOD,
            analysts=ANALYSTS,
            findings=examination.hazards,
            provenance=self.provenance,
            settings=self.settings,
            candidates=rank_steps(examination, opinions, decision, self.settings.max_candidates),
            evidence=examination.all_evidence(self.settings.max_evidence),
            extra_causes=omissions(examination, decision),
            seconds=round(time.perf_counter() - start, 6),
        )

    async def attribute(self, trace: Trace) -> Report:
        """As :meth:`judge`; for callers that also have methods which wait for a network."""
        return self.judge(trace)

    def screen(self, trace: Trace) -> Suspicion | None:
        """The suspicion of a passed session that left a hazard standing, if its score is high enough.

        The one function behind the stream and files; deterministic. See ``cockpithat.screening``.
        """
        if trace.is_judged:
            return None
        return suspicion_for(trace, self.engine.scan(trace).hazards(), self.rules.version, self.screening)


def rank_steps(
    examination: Examination, opinions: Sequence[Opinion], decision: Decision, limit: int
) -> list[Candidate]:
    """Every step by the analysts' weighted scores, the decided one first; ties by position."""
    steps = examination.trace.steps
    weights = [h.weight or 0.0 for h in decision.hypotheses_with_weight]
    total = sum(weights) or 1.0
    combined = [0.0] * len(steps)
    for opinion, weight in zip(opinions, weights, strict=True):
        for step, score in opinion.scores.items():
            combined[step] += weight * score / total
    order = sorted(range(len(steps)), key=lambda i: (i != decision.step, -combined[i], i))
    return [
        Candidate(
            step=i,
            agent=decision.agent if i == decision.step and decision.agent is not None else steps[i].agent,
            score=round(min(combined[i], 1.0), 6),
        )
        for i in order[:limit]
    ]


def omissions(examination: Examination, decision: Decision) -> tuple[RootCause, ...]:
    """Safety agents that should have been asked at the decided step and were not."""
    return tuple(
        RootCause(
            step=clue.step,
            agent=clue.agent,
            category=clue.category,
            omission=True,
            confidence=round(min(decision.weakest, clue.weight), 4),
            evidence=(clue.evidence(examination.trace),),
        )
        for clue in examination.clues_by_step.get(-1 if decision.step is None else decision.step, ())
        if clue.omission and clue.agent != decision.agent
    )[:1]
