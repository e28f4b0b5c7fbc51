"""The three methods of Who&When (2505.00212): all-at-once, step-by-step, binary search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from cockpithat.contract.reports import Hypothesis
from cockpithat.llm import Role
from cockpithat.llm.settings import LlmSettings
from cockpithat.methods.base import LlmMethod
from cockpithat.methods.case import Case
from cockpithat.methods.finding import Finding
from cockpithat.methods.forms import FLAG, NUMBER, TEXT, choice, form, one_of, quote_in, refuse, share, words
from cockpithat.methods.options import ModelOptions
from cockpithat.panel.answers import JOINT, Answer, UnusableAnswerError
from cockpithat.panel.prompts import categories_text
from cockpithat.slicing.marks import single_line


class LogOptions(ModelOptions):
    """How the log is shown."""

    numbered: bool = Field(
        False,
        description="Number the steps and group an agent's consecutive ones; the original form does neither",
    )
    log_tokens: int = Field(
        96_000, ge=200, description="Longest log of one call (approx-1); a longer one is cut evenly"
    )


class AllAtOnceOptions(LogOptions):
    """Options of all-at-once."""

    model: Literal["analyst", "scanner"] = Field(
        "analyst", description="Whose endpoint answers: the panel's analyst, or the cheaper scanner"
    )


def hypothesis_of(name: str, answer: Answer, **more: Any) -> Hypothesis:
    """An answer in full as a vote."""
    values: dict[str, Any] = {
        "step": answer.step,
        "agent": answer.agent,
        "category": answer.category,
        "confidence": answer.confidence,
        "rationale": answer.rationale,
        "evidence": answer.evidence,
    }
    if answer.asil is not None:
        values["asil"] = answer.asil
    return Hypothesis(analyst=name, **(values | more))


def _counting(numbered: bool) -> str:
    return "" if numbered else "Steps are not numbered: count them from the first shown, which is step 0. "


class AllAtOnce(LlmMethod[AllAtOnceOptions]):
    """Task and whole log once; agent, step and reason in one answer."""

    name = "all-at-once"
    options_type = AllAtOnceOptions
    prompts = ("all-at-once-decide",)

    @property
    def role(self) -> Role:
        return cheap_role(self.panel.llm) if self.options.model == "scanner" else Role.ANALYST

    async def find(self, case: Case) -> Finding:
        options = self.options
        answer = await case.ask(
            "all-at-once-decide",
            (case.head, case.log(options.log_tokens, numbered=options.numbered)),
            JOINT.schema(case.facts),
            lambda data: JOINT.read(data, self.name, case.facts),
            self.name,
            categories=categories_text(),
            counting=_counting(options.numbered),
        )
        assert answer.step is not None
        scores = {e.step: 0.5 * answer.confidence for e in answer.evidence if e.step is not None}
        scores[answer.step] = answer.confidence
        return self.single(case, hypothesis_of(self.name, answer), scores=scores)


def cheap_role(llm: LlmSettings) -> Role:
    """The cheaper endpoint, where there is one."""
    return Role.SCANNER if llm.scanner is not None else Role.ANALYST


class StepByStepOptions(LogOptions):
    """Options of step-by-step."""

    undecided: Literal["least_sure", "none"] = Field(
        "least_sure",
        description="When no step is said to hold the error: take the no that was least sure, or name none",
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """The answer about one step. ``doubt`` is how much speaks for the error being there, 0 to 1."""

    error: bool
    doubt: float
    reason: str
    quotes: list[tuple[int | None, str]]


class StepByStep(LlmMethod[StepByStepOptions]):
    """The log grows by a step a call; the first yes ends it."""

    name = "step-by-step"
    options_type = StepByStepOptions
    prompts = ("step-by-step-look",)
    queued = True

    async def find(self, case: Case) -> Finding:
        looks: dict[int, _Look] = {}
        missing: list[int] = []
        problem: UnusableAnswerError | None = None
        for step in range(case.n):
            try:
                looks[step] = await self._look(case, step)
            except UnusableAnswerError as error:
                missing.append(step)
                problem = error
                continue
            if looks[step].error:
                break
        if not looks:
            raise problem or refuse("no step was looked at")
        notes = (f"no usable answer about {len(missing)} of the steps",) if missing else ()
        scores = {step: look.doubt for step, look in looks.items()}
        found = next((step for step, look in looks.items() if look.error), None)
        reasons = () if found is not None else ("no step was said to hold the decisive error",)
        if found is None and self.options.undecided == "least_sure":
            found = max(looks, key=lambda step: looks[step].doubt)
        return self.single(
            case, _at(self.name, case, found, looks.get(found) if found is not None else None),
            scores=scores, notes=notes, reasons=reasons,
        )  # fmt: skip

    async def _look(self, case: Case, step: int) -> _Look:
        options = self.options
        agent = single_line(case.trace.steps[step].agent)

        def read(data: dict[str, Any]) -> _Look:
            if not isinstance(data.get("error"), bool):
                raise refuse("error must be true or false")
            sure = share(data, "confidence", 0.5)
            doubt = sure if data["error"] else 1.0 - sure
            return _Look(data["error"], doubt, words(data, "reason", 600), quote_in(data, step))

        return await case.ask(
            "step-by-step-look",
            (
                case.head,
                case.log(options.log_tokens, range(step + 1), numbered=options.numbered),
                f"Latest step: {f'@{step}, ' if options.numbered else ''}by {agent}",
            ),
            form("step_look", error=FLAG, confidence=NUMBER, reason=TEXT, quote=TEXT),
            read,
            f"{self.name}/{step}",
        )


def _at(name: str, case: Case, step: int | None, look: _Look | None) -> Hypothesis:
    """A vote for a step and whoever acted there; the category is what the clues speak for."""
    if step is None or look is None:
        return Hypothesis(analyst=name, rationale="no step was said to hold the decisive error")
    agent = case.trace.steps[step].agent
    return Hypothesis(
        analyst=name,
        step=step,
        agent=agent,
        category=case.examination.category_at(step, agent),
        confidence=look.doubt,
        rationale=look.reason,
        evidence=case.facts.evidence(name, look.quotes),
    )


def halves(low: int, high: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both halves of the inclusive range ``low`` to ``high`` (``low < high``); the first has the odd one."""
    if low >= high:
        raise ValueError(f"steps {low} to {high} cannot be halved")
    middle = (low + high) // 2
    return (low, middle), (middle + 1, high)


class BinarySearch(LlmMethod[LogOptions]):
    """Which half of the log holds the error, until one step is left."""

    name = "binary-search"
    options_type = LogOptions
    prompts = ("binary-search-half",)
    queued = True

    async def find(self, case: Case) -> Finding:
        low, high = 0, case.n - 1
        scores = dict.fromkeys(range(case.n), 1.0)
        surest, reason, quotes = 1.0, "the only step", list[tuple[int | None, str]]()
        while low < high:
            first, second = halves(low, high)
            later, sure, reason, quotes = await self._half(case, first, second)
            for start, end in (first, second):
                share_of = sure if ((start, end) == second) == later else 1.0 - sure
                for step in range(start, end + 1):
                    scores[step] *= share_of
            surest = min(surest, sure)
            low, high = second if later else first
        return self.single(
            case, _at(self.name, case, low, _Look(True, surest, reason, quotes)), scores=scores
        )

    async def _half(
        self, case: Case, first: tuple[int, int], second: tuple[int, int]
    ) -> tuple[bool, float, str, list[tuple[int | None, str]]]:
        """Whether it is the second half, how sure (0.5 to 1), why, and a quote."""
        options = self.options
        spans = [range(start, end + 1) for start, end in (first, second)]
        if options.numbered:
            names = [f"steps {span[0]} to {span[-1]}" for span in spans]
        else:
            names = [
                f"the {place} {len(span)} steps shown"
                for place, span in zip(("first", "last"), spans, strict=True)
            ]

        def read(data: dict[str, Any]) -> tuple[bool, float, str, list[tuple[int | None, str]]]:
            half = choice(data, "half", ("first", "second"))
            if half is None:
                raise refuse('half must be "first" or "second"')
            return (
                half == "second",
                max(share(data, "confidence", 0.5), 0.5),
                words(data, "reason", 600),
                quote_in(data, None),
            )

        return await case.ask(
            "binary-search-half",
            (
                case.head,
                case.log(options.log_tokens, range(first[0], second[1] + 1), numbered=options.numbered),
            ),
            form("half", half=one_of(("first", "second")), confidence=NUMBER, reason=TEXT, quote=TEXT),
            read,
            f"{self.name}/{first[0]}-{second[1]}",
            first=names[0],
            second=names[1],
        )
