"""What a method found, and the report it becomes; the same way for every method of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.reporting import build_report
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.consensus import Decision, Support, decide
from cockpithat.contract.reports import (
    Candidate,
    Evidence,
    Hypothesis,
    Marginals,
    Provenance,
    Report,
    RootCause,
)
from cockpithat.llm import Ledger
from cockpithat.panel.review import panel_reasons, with_reasons


@dataclass(frozen=True, slots=True)
class Finding:
    """A decision with what goes into the report beside it.

    ``scores`` ranks steps (0 to 1, absent ones below all that are there). ``notes`` say which part of the
    method did not work; a report with notes is marked ``degraded``. ``reasons`` ask for a person.
    """

    decision: Decision
    scores: Mapping[int, float] = field(default_factory=dict)
    causes: tuple[RootCause, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def alone(
    hypothesis: Hypothesis, examination: Examination, settings: AttributionSettings, supports: Support
) -> Decision:
    """The decision of a method with one voice.

    A single vote is unanimous by equation 5, which says nothing; so the marginals are its own confidence, and
    the thresholds of the consensus apply to that. The floor holds as ever.
    """
    decision = decide([hypothesis], settings=settings.consensus, floor=examination.floor, supports=supports)
    share = min(decision.marginals.step, hypothesis.confidence)
    if share >= decision.threshold:
        return replace(decision, marginals=_all(decision.marginals, share))
    reason = (
        f"confidence {share:.2f} is below the threshold {decision.threshold:.2f} for {decision.asil.value}"
    )
    return replace(
        decision,
        marginals=_all(decision.marginals, share),
        needs_resolution=True,
        contested=True,
        reasons=tuple(dict.fromkeys((*decision.reasons, reason))),
    )


def _all(marginals: Marginals, share: float) -> Marginals:
    """Every marginal that says something, at most ``share``."""
    return Marginals(
        step=min(marginals.step, share),
        agent=min(marginals.agent, share),
        category=min(marginals.category, share),
    )


def rank(
    examination: Examination, decision: Decision, scores: Mapping[int, float], limit: int
) -> list[Candidate]:
    """All steps: the decided one, then by score, then those without one by the clues against them."""
    steps = examination.trace.steps
    clues = examination.step_scores
    floor = min((s for s in scores.values() if s > 0), default=1.0)
    value = [scores.get(i) or 0.5 * floor * clues.get(i, 0.0) for i in range(len(steps))]
    order = sorted(range(len(steps)), key=lambda i: (i != decision.step, -value[i], i))
    return [
        Candidate(
            step=i,
            agent=decision.agent if i == decision.step and decision.agent else steps[i].agent,
            score=round(min(value[i], 1.0), 6),
        )
        for i in order[:limit]
    ]


def _distinct(evidence: Sequence[Evidence]) -> list[Evidence]:
    return list({(e.kind, e.step, e.text): e for e in evidence}.values())


def report_of(
    examination: Examination,
    finding: Finding,
    *,
    method: str,
    analysts: str,
    provenance: Provenance,
    settings: AttributionSettings,
    ledger: Ledger | None = None,
    seconds: float = 0.0,
) -> Report:
    """The report of a finding. Quotes for the decided step come first, the examination's evidence follows."""
    decision = finding.decision
    quotes = [e for h in decision.hypotheses_with_weight if h.answered for e in h.evidence]
    quotes.sort(key=lambda e: e.step != decision.step)
    report = build_report(
        examination.trace,
        decision,
        method=method,
        analysts=analysts,
        findings=examination.hazards,
        provenance=provenance,
        settings=settings,
        candidates=rank(examination, decision, finding.scores, settings.max_candidates),
        evidence=_distinct([*quotes, *examination.all_evidence(settings.max_evidence)]),
        extra_causes=finding.causes,
        tokens=ledger.tokens if ledger else None,
        cost=ledger.cost if ledger else None,
        seconds=round(seconds, 6),
        degraded="; ".join(finding.notes) or None,
    )
    return with_reasons(report, [*finding.reasons, *panel_reasons(decision)])
