"""From a decision to wire records: report, alert, review request, suspicion, session summary.

Every method builds its records here, so that ids, severity and review follow one rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cockpithat._version import __version__
from cockpithat.analysis.analysts.base import RANKER
from cockpithat.analysis.clues import quote
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.roles import agent_key, is_person
from cockpithat.analysis.rules import RuleSet
from cockpithat.analysis.settings import AttributionSettings, config_digest
from cockpithat.analysis.support import CONCRETE
from cockpithat.consensus import Decision
from cockpithat.contract.base import Asil, VehicleStateCoverage
from cockpithat.contract.ids import derived_id, report_id
from cockpithat.contract.reports import (
    Alert,
    AlertSeverity,
    Candidate,
    Evidence,
    Hazard,
    Provenance,
    Report,
    ReviewDecision,
    ReviewRequest,
    RootCause,
    SessionStatus,
    SessionSummary,
    SeverityRating,
    Suspicion,
    TokenUsage,
)
from cockpithat.contract.trace import Trace
from cockpithat.screening.model import Screening

ALERT_NAME = "CockpitHazard"
_PAGED = frozenset({Asil.C, Asil.D})
_MAX_ANNOTATION = 1_000


def provenance_of(
    settings: AttributionSettings,
    rules: RuleSet,
    *,
    prompts: dict[str, str] | None = None,
    models: dict[str, str] | None = None,
    **more: object,
) -> Provenance:
    """Provenance of reports made with these settings; ``more`` is what else the method's verdict rests on."""
    prompts, models = prompts or {}, models or {}
    return Provenance(
        product_version=__version__,
        rules_id=rules.id,
        rules_version=rules.version,
        prompts=prompts,
        models=models,
        config_digest=config_digest(settings, rules, prompts=prompts, models=models, **more),
    )


def build_report(
    trace: Trace,
    decision: Decision,
    *,
    method: str,
    analysts: str,
    findings: HazardFindings,
    provenance: Provenance,
    settings: AttributionSettings,
    candidates: Sequence[Candidate] = (),
    evidence: Sequence[Evidence] = (),
    extra_causes: Sequence[RootCause] = (),
    tokens: TokenUsage | None = None,
    cost: float | None = None,
    seconds: float = 0.0,
    degraded: str | None = None,
    summary: str | None = None,
) -> Report:
    """The whole report of a decision. ``decision.floor`` must be the floor of ``findings``."""
    agent, step = decision.agent, decision.step
    chosen = tuple(e for e in evidence if e.step == step and (e.agent is None or e.agent == agent))
    cause = RootCause(
        step=step,
        agent=agent,
        category=decision.category,
        omission=is_omission(trace, step, agent),
        confidence=round(decision.weakest, 4),
        evidence=chosen[:8],
    )
    review = review_decision(trace, decision, findings, settings, degraded)
    return Report(
        report_id=report_id(trace.trace_id, method, analysts, provenance.config_digest),
        revision=trace.revision,
        trace_id=trace.trace_id,
        trace_revision=trace.revision,
        vehicle_id=trace.vehicle_id,
        session_id=trace.session_id,
        outcome=trace.outcome,
        method=method,
        analysts=analysts,
        step=step,
        agent=agent,
        category=decision.category,
        asil=decision.asil,
        confidence=round(decision.weakest, 4),
        contested=decision.contested,
        review=review,
        root_causes=(cause, *extra_causes) if step is not None or agent is not None else (),
        severity=severity_rating(decision, findings),
        marginals=decision.marginals,
        candidates=tuple(candidates)[: settings.max_candidates],
        evidence=tuple(evidence)[: settings.max_evidence],
        hypotheses=decision.hypotheses_with_weight,
        summary=summary if summary is not None else sentence(trace, decision, findings, review),
        degraded=degraded,
        vehicle_state=trace.vehicle_state,
        truncated=trace.truncated,
        clock_suspect=trace.clock_suspect,
        tokens=tokens or TokenUsage(),
        cost=cost,
        seconds=seconds,
        started_ts=trace.started_ts,
        ended_ts=trace.ended_ts,
        provenance=provenance,
    )


def is_omission(trace: Trace, step: int | None, agent: str | None) -> bool:
    """Whether the agent did not act at the step: legal, and what "was never asked" looks like."""
    if step is None or agent is None or not 0 <= step < len(trace.steps):
        return False
    return agent_key(trace.steps[step].agent) != agent_key(agent)


def severity_rating(decision: Decision, findings: HazardFindings) -> SeverityRating:
    """The rating with the hazard behind it; classes only where a rule gave them."""
    hazards = findings.hazards()
    # A rating that the panel raised is not the rule's: its classes would not add up to it.
    top = next((h for h in hazards if h.asil == decision.asil), None)
    named = top or (hazards[0] if hazards else None)
    return SeverityRating(
        asil=decision.asil,
        floor=decision.floor,
        paging=findings.paging,
        raised_by=decision.raised_by,
        hazardous_event=named.hazardous_event if named else None,
        situation=named.situation if named else None,
        severity=top.severity if top else None,
        exposure=top.exposure if top else None,
        controllability=top.controllability if top else None,
        rule=named.rule if named else None,
        rationale=named.rationale if named else _without_rule(decision, findings),
        hazards=hazards,
    )


def _without_rule(decision: Decision, findings: HazardFindings) -> str:
    if decision.raised_by is None:
        return _no_hazard(findings)
    return f"rated by {_rater(decision)}; by the rules {_no_hazard(findings)}"


def _no_hazard(findings: HazardFindings) -> str:
    if not findings.not_excluded:
        return "no hazard evidence"
    doubt = findings.not_excluded[0]
    return (
        f"not rated: '{doubt.rule.hazardous_event}' can't be excluded, because these are missing, stale or "
        f"invalid: {', '.join(doubt.unknown) or 'values of the situation'}"
    )


def review_decision(
    trace: Trace,
    decision: Decision,
    findings: HazardFindings,
    settings: AttributionSettings,
    degraded: str | None = None,
) -> ReviewDecision:
    """Whether a person must look, with every reason."""
    reasons: list[str] = []
    if not trace.steps:
        reasons.append("the session has no step")
    elif decision.weakest < settings.review.min_confidence:
        reasons.append(f"confidence {decision.weakest:.2f} is below {settings.review.min_confidence:.2f}")
    if decision.contested:
        reasons.append("contested")
    if trace.steps and not _rests_on_something(decision):
        reasons.append("no concrete evidence for the step")
    reasons += [r for r in decision.reasons if not r.startswith("no answer from")]
    reasons += [r for r in decision.reasons if r.startswith("no answer from")]
    if decision.raised_by is not None:
        reasons.append(f"{decision.raised_by} raised {decision.floor.value} to {decision.asil.value}")
    if settings.review.doubtful_asil:
        reasons += [
            f"a hazard of ASIL {d.asil.value} can't be excluded: {d.rule.hazardous_event}"
            for d in findings.not_excluded
            if d.asil in _PAGED and d.asil.rank > decision.asil.rank
        ]
        reasons += [
            f"a hazard of ASIL {f.asil.value} is there that no step caused: {f.rule.hazardous_event}"
            for f in findings.present
            if f.asil in _PAGED and not f.rule.commanded_only
        ]
    pages = not _PAGED.isdisjoint({decision.asil, findings.paging})
    if pages and trace.vehicle_state == VehicleStateCoverage.INCOMPLETE:
        reasons.append("vehicle state is incomplete")
    if trace.truncated:
        reasons.append("the trace is truncated")
    if trace.clock_suspect:
        reasons.append("a clock of the vehicle is suspect")
    if trace.missing_seqs:
        reasons.append("events of the session are missing")
    if degraded:
        reasons.append(f"degraded: {degraded}")
    return ReviewDecision(required=bool(reasons), reasons=tuple(dict.fromkeys(reasons)))


def _rests_on_something(decision: Decision) -> bool:
    """Whether a vote for the decided step cites evidence that is more than a hint."""
    return any(
        e.weight is None or e.weight >= CONCRETE
        for h in decision.hypotheses_with_weight
        if h.step == decision.step and (h.weight or 0.0) > 0
        for e in h.evidence
    )


def _rater(decision: Decision) -> str:
    if decision.raised_by == RANKER:
        return "the ranker from the situation, without a hazard rule that says so"
    return "the panel"


def sentence(trace: Trace, decision: Decision, findings: HazardFindings, review: ReviewDecision) -> str:
    """One or two sentences for people: who, where, what kind, how bad, and why."""
    if decision.step is None and decision.agent is None:
        return "No step could be named: " + ("; ".join(decision.reasons) or "the session has no step") + "."
    who = _named(trace, decision.agent)
    where = f"at step {decision.step}" if decision.step is not None else "at no single step"
    kind = decision.category.value.replace("_", " ") if decision.category else "failure of unknown kind"
    lacking = " did not act" if is_omission(trace, decision.step, decision.agent) else ""
    parts = [f"{who}{lacking} {where}: {kind}."]
    rated = findings.rated
    if rated:
        top = rated[0]
        parts.append(
            f"ASIL {_shown(decision.asil)} (indicative): {top.rule.hazardous_event} "
            f"({_lower(top.rule.situation)}); {top.evidence[0].text if top.evidence else top.rule.id}."
        )
    elif decision.asil not in (Asil.UNRATED, Asil.QM):
        parts.append(f"ASIL {decision.asil.value} (indicative), rated by {_rater(decision)}.")
    else:
        parts.append("No hazard evidence, so not rated." if decision.asil == Asil.UNRATED else "Rated QM.")
    backing = next(
        (
            (h, e)
            for h in sorted(decision.hypotheses_with_weight, key=lambda h: -(h.weight or 0))
            for e in h.evidence
            if h.step == decision.step and e.text and not e.kind.startswith("hazard_")
            if e.weight is None or e.weight >= CONCRETE
        ),
        None,
    )
    if backing is not None:
        parts.append(
            f"Evidence: {backing[1].kind.replace('_', ' ')}, “{quote(backing[1].text, length=120)}”."
        )
    elif not rated:
        parts.append("No concrete evidence; the ranking of steps decided.")
    if review.required:
        parts.append("A person should look.")
    return " ".join(parts)


def _shown(asil: Asil) -> str:
    return asil.value


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _named(trace: Trace, agent: str | None) -> str:
    """A software agent by name; people are never named in what is shown."""
    if agent is None:
        return "No single agent"
    roles = {agent_key(info.name): info.role for info in trace.roster}
    return "A person" if is_person(agent, roles.get(agent_key(agent), "")) else quote(agent, length=80)


def _rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def alert_for(report: Report, settings: AttributionSettings | None = None) -> Alert | None:
    """The Alertmanager v2 alert of a report of ASIL C or D; ``None`` for any other.

    Its severity is ``critical``, which pages; ``warning`` where nothing but the ranker says C or D.
    Exposure says how often a situation is met. What happened was met, so a page goes by the rules' own
    exposure where the weather or place at hand makes the report's rating lower: a word about fog silences
    nobody.
    """
    asil = max(report.asil, report.severity.paging, key=lambda rating: rating.rank)
    if asil not in _PAGED:
        return None
    event = report.severity.hazardous_event or "Safety-critical failure"
    url = settings.alert_url if settings is not None else ""
    for name in ("report_id", "trace_id", "vehicle_id", "session_id"):
        url = url.replace(f"{{{name}}}", str(getattr(report, name)))
    is_guess = report.severity.raised_by == RANKER and report.severity.paging not in _PAGED
    labels = {
        "alertname": ALERT_NAME,
        "severity": (AlertSeverity.WARNING if is_guess else AlertSeverity.CRITICAL).value,
        "asil": asil.value,
        "category": report.category.value if report.category else "unknown",
        "rule": report.severity.rule or "none",
        "vehicle_id": report.vehicle_id,
        "session_id": report.session_id,
    }
    rarer = f" The report says {report.asil.value}: weather or place are rare." if asil != report.asil else ""
    guess = f" No hazard rule says {asil.value}; the ranker judged the situation so." if is_guess else ""
    description = f"{report.summary}{rarer}{guess} {report.severity.notice}"
    return Alert(
        alert_id=derived_id("alert", report.report_id),
        revision=report.revision,
        report_id=report.report_id,
        trace_id=report.trace_id,
        vehicle_id=report.vehicle_id,
        session_id=report.session_id,
        asil=asil,
        labels=labels,
        annotations={
            "summary": f"ASIL {asil.value} (indicative): {event}",
            "description": description[:_MAX_ANNOTATION],
        },
        startsAt=_rfc3339(report.ended_ts or report.started_ts),
        generatorURL=url,
    )


def review_for(report: Report) -> ReviewRequest | None:
    """The review request of a report that needs a person; ``None`` otherwise."""
    return _review(report, report.review.reasons) if report.review.required else None


def withdrawn_review_for(report: Report, reason: str) -> ReviewRequest:
    """Takes back the request that an earlier revision of ``report`` made."""
    return _review(report, (reason,), withdrawn=True)


def _review(report: Report, reasons: tuple[str, ...], *, withdrawn: bool = False) -> ReviewRequest:
    return ReviewRequest(
        review_id=derived_id("review", report.report_id),
        revision=report.revision,
        report_id=report.report_id,
        trace_id=report.trace_id,
        vehicle_id=report.vehicle_id,
        session_id=report.session_id,
        asil=report.asil,
        confidence=report.confidence,
        reasons=reasons,
        withdrawn=withdrawn,
    )


def suspicion_for(
    trace: Trace, hazards: Sequence[Hazard], rules_version: str, screening: Screening
) -> Suspicion | None:
    """A passed session that left a rated hazard standing; never an alert. ``None`` otherwise."""
    if trace.is_judged:
        return None
    standing = tuple(h for h in hazards if h.active_at_end)
    score = screening.score(standing)
    if score is None:
        return None
    return Suspicion(
        suspicion_id=derived_id("suspicion", trace.trace_id),
        revision=trace.revision,
        trace_id=trace.trace_id,
        vehicle_id=trace.vehicle_id,
        session_id=trace.session_id,
        asil=max((h.asil for h in standing), key=lambda a: a.rank),
        hazards=standing,
        score=score,
        screening=screening.digest,
        rules_version=rules_version,
    )


def summary_for(trace: Trace, report: Report | None, suspicion: Suspicion | None = None) -> SessionSummary:
    """The session's summary, written last. A session without steps is ``empty``."""
    if not trace.steps:
        status = SessionStatus.EMPTY
    else:
        status = SessionStatus.ATTRIBUTED if report is not None else SessionStatus.PASSED
    return SessionSummary(
        summary_id=derived_id("summary", trace.trace_id),
        revision=trace.revision,
        trace_id=trace.trace_id,
        vehicle_id=trace.vehicle_id,
        session_id=trace.session_id,
        status=status,
        outcome=trace.outcome,
        failed=trace.failed,
        close_reason=trace.close_reason,
        started_ts=trace.started_ts,
        ended_ts=trace.ended_ts,
        steps=len(trace.steps),
        missing_events=sum(last - first + 1 for first, last in trace.missing_seqs),
        truncated=trace.truncated,
        clock_suspect=trace.clock_suspect,
        vehicle_state=trace.vehicle_state,
        report_id=report.report_id if report is not None else None,
        asil=report.asil if report is not None else None,
        suspicion=suspicion.asil if suspicion is not None else None,
    )
