"""CockpitHAT with an LLM panel, as a method (algorithm 1 of the paper, appendix A.2)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.local import omissions
from cockpithat.analysis.reporting import build_report, provenance_of
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.channels.local import local_scan
from cockpithat.channels.scan import SCHEMA as SCAN_SCHEMA
from cockpithat.channels.scan import read_scan, scan_lines
from cockpithat.channels.tags import Salience, is_embodied
from cockpithat.consensus import Decision, decide
from cockpithat.contract.reports import Candidate, Evidence, Hypothesis, Provenance, Report
from cockpithat.contract.trace import Trace
from cockpithat.graph.builder import build_graph
from cockpithat.llm import ChatClient, Ledger, LlmError, Message, Role, Schema
from cockpithat.panel.analysts import Consultation, Question, consult, decoupled, joint
from cockpithat.panel.answers import UnusableAnswerError
from cockpithat.panel.asking import Line, ask
from cockpithat.panel.envelope import enclose
from cockpithat.panel.ladder import RUNGS
from cockpithat.panel.linking import graph_by_prompt, refine_links
from cockpithat.panel.local_first import ROLE_IDENTITY, LocalFirst, since
from cockpithat.panel.personas import PERSONAS, SOLE_ANALYST, draw
from cockpithat.panel.prompts import prompt, versions
from cockpithat.panel.refining import NoVerdictError, Shortfall
from cockpithat.panel.resolution import defend, resolver
from cockpithat.panel.review import panel_reasons, with_reasons
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing import build_context, build_index
from cockpithat.slicing.render import StepText
from cockpithat.slicing.settings import SliceMode

log = logging.getLogger(__name__)

METHOD = "cockpithat"
_SCAN = Schema("salience", SCAN_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything about one trace that needs no model; worked out off the event loop."""

    trace: Trace
    examination: Examination
    facts: TraceFacts
    texts: tuple[StepText, ...]
    reference: str | None = None


class PanelAttribution(LocalFirst):
    """Judges traces by an LLM panel; keeps a client and nothing of a trace.

    There is no verdict when fewer analysts than the quorum answered.
    """

    name = METHOD

    def __init__(self, settings: AttributionSettings, *, client: ChatClient | None = None) -> None:
        """Raises ``PanelNotConfiguredError``, and ``RulesError`` from the rules."""
        super().__init__(settings, client)
        self.rung = RUNGS[self.panel.rung]

    def _make_provenance(self, **more: object) -> Provenance:
        return provenance_of(
            self.settings,
            self.local.rules,
            prompts=versions(self._prompt_names()),
            models={
                role.value: configured.model
                for role in Role
                if (configured := self.panel.llm.role(role)) is not None
            },
            method=METHOD,
            panel=self._identity(),
            **more,
        )

    def _prompt_names(self) -> list[str]:
        names = ["common", "repair", "defend"]
        names += ["safety", *PERSONAS] if self.rung.panel else [SOLE_ANALYST]
        names += ["decide_agent", "decide_step"] if self.rung.decoupled else ["decide_joint"]
        if self.rung.adapter and self.panel.llm.scanner is not None:
            names.append("scanner")
        if self.panel.llm.linker is not None:
            names.append("graph" if self.panel.graph_prompt else "linker")
        return names

    def _identity(self) -> dict[str, object]:
        """What of the settings can change a verdict; bounds of time, money and traffic are not part of it."""
        roles = {
            role.value: configured.model_dump(mode="json", include=set(ROLE_IDENTITY))
            for role in Role
            if (configured := self.panel.llm.role(role)) is not None
        }
        chosen = {"rung", "size", "quorum", "resolution", "slicing", "refine_links", "graph_prompt"}
        return {"roles": roles, **self.panel.model_dump(mode="json", include=chosen)}

    async def verdict(
        self, trace: Trace, *, ledger: Ledger | None = None, ground_truth: str | None = None
    ) -> Report:
        """As :meth:`LocalFirst.verdict`."""
        provenance = self.provenance_for(ground_truth)
        started = time.monotonic()
        ledger = Ledger() if ledger is None else ledger
        client = self.clients.here()
        line = Line(client, ledger, client.deadline_in(self.panel.seconds))
        if not trace.steps:
            return await self._without_steps(trace, ledger, started, provenance)
        case = await asyncio.to_thread(self._prepare, trace)
        case = replace(case, reference=ground_truth)
        consultation, salience = await self._hypotheses(line, case)
        hypotheses = consultation.hypotheses
        if consultation.answered < min(self.panel.quorum, len(hypotheses)):
            silent = tuple(h for h in hypotheses if not h.answered)
            shortfall = Shortfall(_why(hypotheses), silent, ledger.tokens, ledger.cost, since(started))
            raise NoVerdictError(shortfall, may_pass=consultation.may_pass)
        decision = await self._decide(line, case, hypotheses, salience)
        return self._report(case, decision, ledger, started, provenance)

    def _prepare(self, trace: Trace) -> _Case:
        if trace.graph is None:
            trace = trace.model_copy(update={"graph": build_graph(trace.steps)})
        return _Case(
            trace,
            self.local.examine(trace),
            TraceFacts(trace),
            tuple(StepText(step) for step in trace.steps),
        )

    async def _hypotheses(self, line: Line, case: _Case) -> tuple[Consultation, dict[int, Salience]]:
        trace, flags = await asyncio.gather(self._linked(line, case), self._salience(line, case))
        salience = {flag.step: flag for flag in flags}
        questions = await asyncio.to_thread(self._questions, trace, case, salience)
        panel = draw(trace.trace_id, self.panel.size) if self.rung.panel else (SOLE_ANALYST,)
        return await consult(line, panel, questions, case.facts), salience

    def _questions(self, trace: Trace, case: _Case, salience: Mapping[int, Salience]) -> list[Question]:
        """What every analyst is asked, with contexts built once for all of them."""
        bounds = self.panel.slicing
        index = build_index(trace, self.rung.slicing, {step: flag.tag for step, flag in salience.items()})
        if not self.rung.decoupled:
            questions = joint(build_context(trace, index, bounds.joint_tokens, salience, case.texts))
        else:
            questions = decoupled(
                build_context(trace, index, bounds.agent_tokens, salience, case.texts),
                build_context(trace, index, bounds.step_tokens, salience, case.texts),
            )
        return [replace(question, reference=case.reference) for question in questions]

    async def _linked(self, line: Line, case: _Case) -> Trace:
        """The trace with the graph that slicing goes by; the deterministic one if the light model fails."""
        graph = case.trace.graph
        if self.panel.llm.linker is None or self.rung.slicing != SliceMode.DEPENDENCY or graph is None:
            return case.trace
        try:
            if self.panel.graph_prompt:
                draft = await graph_by_prompt(line, case.trace, case.facts)
            elif self.panel.refine_links:
                draft = await refine_links(line, case.trace, graph, case.facts)
            else:
                return case.trace
        except (LlmError, UnusableAnswerError) as error:
            log.info("links stay as the rules found them: %s", error)
            return case.trace
        return case.trace.model_copy(update={"graph": draft.graph})

    async def _salience(self, line: Line, case: _Case) -> list[Salience]:
        """The adapter's flags: none for a text-only trace; by the local rules where no scanner answers."""
        trace = case.trace
        if not self.rung.adapter or not is_embodied(trace):
            return []
        if self.panel.llm.scanner is not None:
            envelope = enclose(await asyncio.to_thread(scan_lines, trace, case.texts))
            messages: list[Message] = [
                {"role": "system", "content": prompt("scanner").fill(nonce=envelope.nonce)},
                {"role": "user", "content": envelope.text},
            ]
            try:
                return await ask(
                    line,
                    Role.SCANNER,
                    messages,
                    _SCAN,
                    lambda data: _read_scan(data, len(trace.steps)),
                    "scan",
                )
            except (LlmError, UnusableAnswerError) as error:
                log.info("salience by the local rules: %s", error)
        hazards = case.examination.hazards.hazards()
        evidence = case.examination.all_evidence(self.settings.max_evidence)
        return local_scan(hazards, evidence, len(trace.steps))

    async def _decide(
        self, line: Line, case: _Case, hypotheses: list[Hypothesis], salience: Mapping[int, Salience]
    ) -> Decision:
        floor, supports = case.examination.floor, case.facts.supports
        first = decide(hypotheses, settings=self.settings.consensus, floor=floor, supports=supports)
        several = sum(h.answered for h in hypotheses) > 1
        if not (first.needs_resolution and several and self.panel.resolution):
            return first
        defended = await defend(line, hypotheses, case.facts, salience)
        return decide(
            hypotheses,
            settings=self.settings.consensus,
            floor=floor,
            supports=supports,
            resolve=resolver(defended),
        )

    def _report(
        self, case: _Case, decision: Decision, ledger: Ledger, started: float, provenance: Provenance
    ) -> Report:
        voted = decision.hypotheses_with_weight
        quotes = [e for h in voted if h.answered for e in h.evidence]
        quotes.sort(key=lambda e: e.step != decision.step)
        missing = [h.analyst for h in voted if not h.answered]
        degraded = "the safety analyst did not answer" if "safety" in missing else None
        report = build_report(
            case.trace,
            decision,
            method=METHOD,
            analysts=self.analysts,
            findings=case.examination.hazards,
            provenance=provenance,
            settings=self.settings,
            candidates=_candidates(case.trace, decision),
            evidence=_distinct([*quotes, *case.examination.all_evidence(self.settings.max_evidence)]),
            extra_causes=omissions(case.examination, decision),
            tokens=ledger.tokens,
            cost=ledger.cost,
            seconds=since(started),
            degraded=degraded,
        )
        report = report.model_copy(update={"decided_by": "panel"})
        return with_reasons(report, panel_reasons(decision))


def _why(hypotheses: Sequence[Hypothesis]) -> str:
    """Why the panel has no verdict: the first reason an analyst gave."""
    reasons = [h.error for h in hypotheses if not h.answered and h.error]
    failed = sum(not h.answered for h in hypotheses)
    first = reasons[0] if reasons else "no reason given"
    return f"{failed} of {len(hypotheses)} analysts did not answer ({first})"


def _read_scan(data: dict[str, object], steps: int) -> list[Salience]:
    try:
        return read_scan(data, steps)
    except ValueError as error:
        raise UnusableAnswerError([str(error)]) from None


def _candidates(trace: Trace, decision: Decision) -> list[Candidate]:
    """Steps that got votes, by their share of the weight (equation 5), the decided one first."""
    weights: dict[int, float] = {}
    for hypothesis in decision.hypotheses_with_weight:
        if hypothesis.answered and hypothesis.step is not None:
            weights[hypothesis.step] = weights.get(hypothesis.step, 0.0) + (hypothesis.weight or 0.0)
    total = sum(h.weight or 0.0 for h in decision.hypotheses_with_weight) or 1.0
    order = sorted(weights, key=lambda step: (step != decision.step, -weights[step], step))
    return [
        Candidate(
            step=step,
            agent=decision.agent if step == decision.step and decision.agent else trace.steps[step].agent,
            score=round(min(weights[step] / total, 1.0), 6),
        )
        for step in order
    ]


def _distinct(evidence: Sequence[Evidence]) -> list[Evidence]:
    return list({(e.kind, e.step, e.text): e for e in evidence}.values())
