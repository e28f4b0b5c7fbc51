"""The method: constraints are synthesised and checked, the log of violations goes to a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.support import supports_in
from cockpithat.contract.reports import Hypothesis
from cockpithat.contract.trace import Trace
from cockpithat.llm import Schema
from cockpithat.methods.agentrx.constraints import (
    PROGRAM_CHECKS,
    Check,
    Constraint,
    Guard,
    Violation,
    check,
)
from cockpithat.methods.agentrx.options import RxOptions
from cockpithat.methods.agentrx.taxonomy import RxCategory, checklist_text, read_category, to_ours
from cockpithat.methods.base import LlmMethod, LocalMethod
from cockpithat.methods.case import FAILED, Case, gathered, section
from cockpithat.methods.falat.space import windows
from cockpithat.methods.finding import Finding, alone
from cockpithat.methods.forms import (
    INTEGER,
    TEXT,
    choice,
    form,
    items,
    listing,
    one_of,
    quote_in,
    record,
    step_in,
    words,
)
from cockpithat.methods.signs import mends
from cockpithat.methods.who_when import hypothesis_of
from cockpithat.panel.answers import JOINT, Answer

NAME = "agentrx"
_MAX_CONSTRAINTS, _MAX_TOOLS, _MAX_LOG = 24, 60, 80
_CHECKS = (*PROGRAM_CHECKS, Check.JUDGE.value)
_SYNTHESIS = form(
    "constraints",
    constraints=listing(
        record(
            name=TEXT,
            check=one_of(_CHECKS),
            tool=TEXT,
            agent=TEXT,
            subject=TEXT,
            values=listing({"type": ["string", "number", "boolean"]}),
            text=TEXT,
        )
    ),
)


def rules_log(examination: Examination) -> list[Violation]:
    """What hazard rules and clue detectors found, as violations of constraints that hold everywhere."""
    found = [
        Violation(
            f.rule.id,
            f.step,
            f.rule.hazardous_event,
            "rules",
            0.95,
            f.evidence[0].text if f.evidence else "",
        )
        for f in examination.hazards.rated
    ]
    found += [
        Violation(c.kind, c.step, c.text[:160], "rules", c.weight, c.text[:200]) for c in examination.clues
    ]
    return sorted(found, key=lambda v: (v.step, -v.weight))


def program_log(constraints: Sequence[Constraint], trace: Trace) -> list[Violation]:
    """Program checks over a trace, failed tools included; a failure that was mended is not logged."""
    every = [*constraints, Constraint("tools_work", Check.NO_ERROR)]
    return [
        v for v in check(every, trace.steps) if v.constraint != "tools_work" or not _mended(v.step, trace)
    ]


def _mended(step: int, trace: Trace) -> bool:
    return any(mends(trace.steps[step], later) for later in trace.steps[step + 1 :])


def tools_seen(trace: Trace) -> list[str]:
    """The tools a trace calls with the names of their arguments: what stands in for a missing schema."""
    seen: dict[str, dict[str, None]] = {}
    for step in trace.steps:
        for call in step.tool_calls:
            arguments = call.arguments if isinstance(call.arguments, dict) else {}
            seen.setdefault(call.name, {}).update(dict.fromkeys(arguments))
    return [f"{name}({', '.join(names)})" for name, names in list(seen.items())[:_MAX_TOOLS]]


class AgentRx(LlmMethod[RxOptions]):
    """With a model: it synthesises constraints, checks what no program can, and judges."""

    name = NAME
    options_type = RxOptions
    prompts = ("agentrx-global", "agentrx-dynamic", "agentrx-check", "agentrx-judge")

    def identity(self) -> dict[str, Any]:
        return self.options.identity()

    async def find(self, case: Case) -> Finding:
        notes: list[str] = []
        constraints = list(self.options.constraints)
        if self.options.static:
            try:
                constraints += await self._global(case)
            except FAILED as error:
                notes.append(f"no global constraints ({error})")
        spans = windows(case.n, self.options.window)
        checked, errors = await gathered([self._window(case, span, constraints) for span in spans])
        if errors:
            notes.append(f"{len(errors)} of {len(spans)} windows were not checked ({errors[0]})")
        dynamic = [c for found, _ in checked for c in found]
        log = program_log([*constraints, *dynamic], case.trace)
        log += [violation for _, violations in checked for violation in violations]
        log = sorted(log, key=lambda v: v.step)[:_MAX_LOG]
        answer = await self._judge(case, log)
        scores: dict[int, float] = {}
        for violation in log:
            scores[violation.step] = max(scores.get(violation.step, 0.0), 0.5 * violation.weight)
        assert answer.step is not None
        scores[answer.step] = 1.0
        supported = any(v.step == answer.step for v in log)
        reasons = () if supported else ("no constraint is violated at the decided step",)
        vote = hypothesis_of(self.name, answer)
        return self.single(case, vote, scores=scores, notes=tuple(notes), reasons=reasons)

    async def _global(self, case: Case) -> list[Constraint]:
        schemas = self.options.schemas
        called = {call.name for step in case.trace.steps for call in step.tool_calls}
        tools = [
            f"{name}: {orjson.dumps(schemas[name]).decode()[:700]}"
            for name in sorted(schemas, key=lambda n: (n not in called, n))[:_MAX_TOOLS]
        ]
        return await case.ask(
            "agentrx-global",
            (
                case.head,
                section("TOOLS", tools or tools_seen(case.trace)),
                section("POLICY", self.options.policy_text.splitlines()),
            ),
            _SYNTHESIS,
            lambda data: _read_constraints(data, "global", 0),
            "agentrx/global",
            checks=_CHECK_TEXT,
        )

    async def _window(
        self, case: Case, span: range, constraints: Sequence[Constraint]
    ) -> tuple[list[Constraint], list[Violation]]:
        """Dynamic constraints for a window from what came before it, and what a judge finds violated."""
        found: list[Constraint] = []
        if self.options.dynamic:
            prefix = case.log(self.options.prefix_tokens, range(span[0])) if span[0] else ""
            found = await case.ask(
                "agentrx-dynamic",
                (case.head, prefix),
                _SYNTHESIS,
                lambda data: _read_constraints(data, "dynamic", span[0]),
                f"agentrx/dynamic/{span[0]}",
                first=str(span[0]),
                last=str(span[-1]),
                checks=_CHECK_TEXT,
            )
        judged = [c for c in (*constraints, *found) if c.check == Check.JUDGE]
        if not judged:
            return found, []
        listed = [f"{c.name}: {_guard_text(c.guard)}{c.text}" for c in judged[:_MAX_CONSTRAINTS]]
        names = {c.name for c in judged}

        def read(data: dict[str, Any]) -> list[Violation]:
            violations = []
            for item in items(data, "violations"):
                step, name = step_in(item, case.facts), words(item, "constraint", 80)
                if step is None or step not in span or name not in names:
                    continue
                quoted = case.facts.evidence(NAME, quote_in(item, step))
                violations.append(
                    Violation(
                        name,
                        step,
                        words(item, "why", 160),
                        "judge",
                        0.7 if quoted else 0.4,
                        quoted[0].text if quoted else "",
                    )
                )
            return violations

        violations = await case.ask(
            "agentrx-check",
            (case.head, section("CONSTRAINTS", listed), case.log(self.options.window_tokens, span)),
            form(
                "violations",
                violations=listing(record(constraint=TEXT, step=INTEGER, why=TEXT, quote=TEXT)),
            ),
            read,
            f"agentrx/check/{span[0]}",
            first=str(span[0]),
            last=str(span[-1]),
        )
        return found, violations

    async def _judge(self, case: Case, log: Sequence[Violation]) -> Answer:
        base = JOINT.schema(case.facts).body["properties"]
        category = one_of([c.value for c in RxCategory])
        schema = Schema("diagnosis", record(**{**base, "category": category}))

        def read(data: dict[str, Any]) -> Answer:
            given = data.get("category")
            theirs = read_category(given) if isinstance(given, str) else None
            ours = to_ours(theirs) if theirs is not None else None
            if ours is None and theirs == RxCategory.INCONCLUSIVE:
                step = step_in(data, case.facts)
                ours = case.examination.category_at(step or 0, None)
            # An unknown category stays as it is and is refused with the rest of what is wrong.
            return JOINT.read(data if ours is None else {**data, "category": ours.value}, NAME, case.facts)

        return await case.ask(
            "agentrx-judge",
            (
                case.head,
                section("VIOLATIONS", [v.line() for v in log] or ["none was found"]),
                case.log(self.options.overview_tokens),
            ),
            schema,
            read,
            "agentrx/judge",
            checklist=checklist_text(),
        )


_CHECK_TEXT = "\n".join(
    (
        "argument_present: the call of tool has the argument subject",
        "argument_one_of: its argument subject is one of values",
        "argument_type: its argument subject has the JSON type values[0]",
        "argument_at_least, argument_at_most: its argument subject against the number values[0]",
        "only_arguments: the call of tool has no arguments but values",
        "tool_called_before: before the step, the tool subject was called",
        "agent_spoke_before: before the step, the agent subject was heard",
        "no_error: no tool output of the step is an error",
        "judge: what text says, in words; for all that the others cannot say",
    )
)


def _guard_text(guard: Guard) -> str:
    parts = [f"when {guard.agent} acts"] if guard.agent else []
    parts += [f"when {guard.tool} is called"] if guard.tool else []
    return f"{' and '.join(parts)}: " if parts else ""


def _read_constraints(data: dict[str, Any], origin: str, first: int) -> list[Constraint]:
    found: dict[str, Constraint] = {}
    for item in items(data, "constraints"):
        kind, name, text = choice(item, "check", _CHECKS), words(item, "name", 80), words(item, "text")
        if kind is None or not name or (kind == Check.JUDGE and not text):
            continue
        subject = words(item, "subject", 80)
        if kind not in (Check.JUDGE, Check.NO_ERROR, Check.ONLY_ARGUMENTS) and not subject:
            continue
        given = item.get("values")
        values = [v for v in given if isinstance(v, str | int | float)] if isinstance(given, list) else []
        guard = Guard(words(item, "tool", 80), words(item, "agent", 80), first)
        if not guard.tool and kind.startswith(("argument", "only")):
            continue  # an argument belongs to a tool
        found.setdefault(
            name, Constraint(name, Check(kind), guard, subject, tuple(values[:60]), text, origin)
        )
    return list(found.values())[:_MAX_CONSTRAINTS]


class LocalAgentRx(LocalMethod[RxOptions]):
    """Without a model: tool schemas by program, everything else by hazard rules and clue detectors."""

    name = NAME
    options_type = RxOptions
    unsettled = 0.5  # weight from which violations of a step may be decisive
    comparable = 0.8  # share of the heaviest step's weight from which an earlier one is preferred

    def identity(self) -> dict[str, Any]:
        return self.options.identity()

    def find(self, examination: Examination) -> Finding:
        trace = examination.trace
        log = program_log(self.options.constraints, trace)
        if self.options.dynamic:
            log = sorted([*log, *rules_log(examination)], key=lambda v: v.step)
        acting = set(examination.view.actors)
        scores: dict[int, float] = {}
        for violation in log:
            if violation.step in acting:
                known = scores.get(violation.step, 0.0)
                scores[violation.step] = 1.0 - (1.0 - known) * (1.0 - min(violation.weight, 0.99))
        # Rules give false alarms: the first counts that is about as heavy as the heaviest.
        bar = max(self.unsettled, self.comparable * max(scores.values(), default=0.0))
        first = next((step for step in sorted(scores) if scores[step] >= bar), None)
        reasons: tuple[str, ...] = ()
        if first is None:
            first, scores, reasons = self._unviolated(examination, scores)
        agent = self._agent(examination, first)
        vote = Hypothesis(
            analyst=NAME,
            step=first,
            agent=agent,
            category=examination.category_at(first, agent),
            confidence=round(min(0.95, scores[first]), 4),
            rationale="; ".join(v.line() for v in log if v.step == first)[:600] or "ranking only",
            evidence=examination.evidence_at(first),
        )
        decision = alone(vote, examination, self.settings, supports_in(trace))
        return Finding(decision, scores, reasons=reasons)

    def _unviolated(
        self, examination: Examination, scores: dict[int, float]
    ) -> tuple[int, dict[int, float], tuple[str, ...]]:
        """Where no violation weighs enough: the strongest of the local rankers' votes."""
        votes = [o.hypothesis for o in self.local.opinions(examination) if o.hypothesis.step is not None]
        best = max(votes, key=lambda h: h.confidence)
        step = best.step or 0
        value = max(best.confidence, *scores.values(), 0.0)
        return step, {**scores, step: value}, ("no constraint is clearly violated; the ranking decided",)

    @staticmethod
    def _agent(examination: Examination, step: int) -> str:
        clues = [c for c in examination.clues_by_step.get(step, ()) if not c.omission]
        heaviest = max(clues, key=lambda c: c.weight, default=None)
        return heaviest.agent if heaviest is not None else examination.trace.steps[step].agent
