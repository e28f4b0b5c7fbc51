"""ECHO (2510.04886): positional layers, a panel of objective analysts, decoupled votes."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.support import supports_in
from cockpithat.contract.reports import Hypothesis, RootCause
from cockpithat.llm import LlmError, Schema
from cockpithat.methods.base import LlmMethod, LocalMethod
from cockpithat.methods.case import Case, gathered
from cockpithat.methods.echo_vote import Conclusion, Vote, vote
from cockpithat.methods.finding import Finding
from cockpithat.methods.forms import INTEGER, choice, listing, one_of, record, refuse, steps_in
from cockpithat.methods.options import MethodOptions, ModelOptions
from cockpithat.methods.who_when import hypothesis_of
from cockpithat.panel.answers import AGENT, JOINT, STEP, Answer, Form, UnusableAnswerError
from cockpithat.panel.personas import PERSONAS, SOLE_ANALYST
from cockpithat.panel.prompts import categories_text
from cockpithat.slicing import build_context, build_index
from cockpithat.slicing.settings import SliceMode

_KINDS = ("single_agent", "multi_agent")


class EchoRung(StrEnum):
    """ECHO's own ladder; each rung adds one component."""

    FIXED = "fixed"
    HIERARCHICAL = "hierarchical"
    OBJECTIVE = "objective"
    DECOUPLED = "decoupled"


class EchoOptions(ModelOptions):
    """Options of ECHO."""

    rung: EchoRung = Field(EchoRung.DECOUPLED, description="Rung of ECHO's ladder; decoupled is the method")
    analysts: int = Field(3, ge=1, le=len(PERSONAS), description="Analysts of six; paper: 3")
    context_tokens: int = Field(
        8_000, ge=200, description="Context of one call (approx-1); about 59k a trace in the paper"
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One answer: the checked one, and what ECHO asks besides."""

    answer: Answer
    agents: tuple[str, ...]
    alternatives: tuple[int, ...]


def panel(trace_id: str, size: int) -> tuple[str, ...]:
    """``size`` of the six analysts, drawn by a hash of the trace: the same for every run."""
    ordered = sorted(PERSONAS, key=lambda name: hashlib.sha256(f"echo\0{trace_id}\0{name}".encode()).digest())
    return tuple(ordered[:size])


def _schema(form: Form, case: Case) -> Schema:
    base = form.schema(case.facts)
    fields = dict(base.body["properties"])
    if form.agent:
        fields["conclusion"] = one_of(_KINDS)
        fields["other_agents"] = listing(one_of(case.trace.agents))
    if form.step:
        fields["alternatives"] = listing(INTEGER)
    return Schema(f"echo_{form.name}", record(**fields))


def _read(form: Form, case: Case, analyst: str, data: dict[str, Any]) -> _Part:
    answer = form.read(data, analyst, case.facts)
    agents: tuple[str, ...] = (answer.agent,) if answer.agent else ()
    if form.agent:
        kind = choice(data, "conclusion", _KINDS)
        if kind is None:
            raise refuse("conclusion must be single_agent or multi_agent")
        others = data.get("other_agents")
        named = (
            [case.facts.agent(a) for a in others if isinstance(a, str)] if isinstance(others, list) else []
        )
        if kind == "multi_agent":
            agents = tuple(dict.fromkeys([*agents, *(a for a in named if a is not None)]))
    alternatives = [s for s in steps_in(data.get("alternatives"), case.facts) if s != answer.step][:4]
    return _Part(answer, agents, tuple(alternatives))


def _joined(analyst: str, parts: list[_Part]) -> Conclusion:
    """One conclusion of an analyst's parts; its confidence is their mean, as in CockpitHAT's panel."""
    answers = [part.answer for part in parts]
    step = next((a.step for a in answers if a.step is not None), None)
    first = next(a for a in answers if a.agent is not None)
    sure = sum(a.confidence for a in answers) / len(answers)
    return Conclusion(
        hypothesis_of(
            analyst,
            first,
            step=step,
            confidence=sure,
            rationale=" ".join(dict.fromkeys(a.rationale for a in answers)),
            evidence=tuple({(e.step, e.text): e for a in answers for e in a.evidence}.values()),
        ),
        next(part.agents for part in parts if part.agents),
        tuple(s for part in parts for s in part.alternatives),
    )


@dataclass(frozen=True, slots=True)
class _Silent:
    """An analyst that did not answer."""

    analyst: str
    error: LlmError | UnusableAnswerError

    @property
    def hypothesis(self) -> Hypothesis:
        return Hypothesis(analyst=self.analyst, answered=False, error=str(self.error)[:300])


class Echo(LlmMethod[EchoOptions]):
    """The four rungs; the last is the method."""

    name = "echo"
    options_type = EchoOptions
    prompts = ("echo-agent", "echo-step", "echo-joint", *PERSONAS)

    async def find(self, case: Case) -> Finding:
        rung = self.options.rung
        mode = SliceMode.FIXED if rung == EchoRung.FIXED else SliceMode.POSITIONAL
        index = build_index(case.trace, mode)
        context = await asyncio.to_thread(
            build_context, case.trace, index, self.options.context_tokens, None, case.texts
        )
        several = rung in (EchoRung.OBJECTIVE, EchoRung.DECOUPLED)
        names = panel(case.trace.trace_id, self.options.analysts) if several else (SOLE_ANALYST,)
        forms = (AGENT, STEP) if rung == EchoRung.DECOUPLED else (JOINT,)
        results = await asyncio.gather(*(self._conclude(case, name, forms, context.text) for name in names))
        conclusions = [r for r in results if isinstance(r, Conclusion)]
        silent = [r for r in results if isinstance(r, _Silent)]
        if not conclusions:
            why = f"{len(silent)} of {len(names)} analysts did not answer ({str(silent[0].error)[:300]})"
            raise UnusableAnswerError([why], may_pass=any(r.error.may_pass for r in silent))
        counted = vote(
            conclusions,
            [r.hypothesis for r in silent],
            settings=self.settings.consensus,
            floor=case.examination.floor,
            supports=case.facts.supports,
        )
        notes = (f"{len(silent)} of {len(names)} analysts did not answer",) if silent else ()
        return _finding(counted, notes)

    async def _conclude(
        self, case: Case, analyst: str, forms: tuple[Form, ...], context: str
    ) -> Conclusion | _Silent:
        """The analyst's conclusion, or why there is none."""
        names = {AGENT.name: "echo-agent", STEP.name: "echo-step", JOINT.name: "echo-joint"}
        parts, errors = await gathered(
            [
                case.ask(
                    names[form.name],
                    (case.head, context),
                    _schema(form, case),
                    lambda data, form=form: _read(form, case, analyst, data),  # type: ignore[misc]
                    f"{analyst}/{form.name}",
                    persona=analyst,
                    **({} if form is STEP else {"categories": categories_text()}),
                )
                for form in forms
            ]
        )
        if errors:
            return _Silent(analyst, errors[0])
        return _joined(analyst, parts)


def _finding(counted: Vote, notes: tuple[str, ...] = ()) -> Finding:
    decision = counted.decision
    causes = tuple(
        RootCause(
            step=None,
            agent=agent,
            category=decision.category,
            confidence=round(decision.marginals.agent, 4),
        )
        for agent in counted.other_agents
    )
    return Finding(decision, counted.scores, causes, notes, counted.reasons)


class LocalEcho(LocalMethod[MethodOptions]):
    """ECHO's vote over the local analysts: no uplift for safety, the unsure dropped."""

    name = "echo"

    def find(self, examination: Examination) -> Finding:
        votes = [
            opinion.hypothesis
            for opinion in self.local.opinions(examination)
            if opinion.hypothesis.agent is not None
        ]
        conclusions = [Conclusion(h, (h.agent,) if h.agent else ()) for h in votes]
        return _finding(
            vote(
                conclusions,
                settings=self.settings.consensus,
                floor=examination.floor,
                supports=supports_in(examination.trace),
            )
        )
