"""The analysts: each reads the contexts on its own and gives a hypothesis (section 3.4)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Hypothesis
from cockpithat.llm import LlmError, Message, Role
from cockpithat.panel.answers import AGENT, JOINT, STEP, Answer, Form, UnusableAnswerError
from cockpithat.panel.asking import Line, ask
from cockpithat.panel.envelope import Envelope, describe, enclose
from cockpithat.panel.prompts import categories_text, prompt
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing import SharedContext


@dataclass(frozen=True, slots=True)
class Question:
    """A decision asked of every analyst: its form, its prompt, and the context it is taken on."""

    form: Form
    prompt: str
    context: SharedContext
    reference: str | None = None  # the right answer, where a benchmark shows it

    def envelope(self, facts: TraceFacts) -> Envelope:
        """The context as quoted data."""
        return enclose(f"{describe(facts.trace, self.reference)}\n{self.context.text}")


@dataclass(frozen=True, slots=True)
class Consultation:
    """What a panel said. ``may_pass``: who did not answer may do so another time."""

    hypotheses: list[Hypothesis]
    may_pass: bool

    @property
    def answered(self) -> int:
        """How many analysts answered."""
        return sum(h.answered for h in self.hypotheses)


def decoupled(agent_context: SharedContext, step_context: SharedContext) -> list[Question]:
    """Agent and step as decisions of their own, each with its own context (I5)."""
    return [Question(AGENT, "decide_agent", agent_context), Question(STEP, "decide_step", step_context)]


def joint(context: SharedContext) -> list[Question]:
    """Everything in one decision (I1 to I4)."""
    return [Question(JOINT, "decide_joint", context)]


def messages_for(analyst: str, question: Question, envelope: Envelope) -> list[Message]:
    """The request of one analyst.

    What all analysts share comes first, so that endpoints which cache prefixes read it once; the role comes
    after the data, so that ours are the last words.
    """
    role = f"{prompt(analyst).text}\n\n{prompt(question.prompt).fill(categories=categories_text())}"
    return [
        {"role": "system", "content": prompt("common").fill(nonce=envelope.nonce)},
        {"role": "user", "content": f"{envelope.text}\n\n{role}"},
    ]


async def _answer(
    line: Line, analyst: str, question: Question, envelope: Envelope, facts: TraceFacts
) -> Answer:
    return await ask(
        line,
        Role.ANALYST,
        messages_for(analyst, question, envelope),
        question.form.schema(facts),
        lambda data: question.form.read(data, analyst, facts),
        f"{analyst}/{question.form.name}",
    )


def _merge(analyst: str, answers: list[Answer]) -> Hypothesis:
    """One hypothesis of an analyst's answers.

    Its confidence is the mean of theirs: equations 3 and 5 have one ``c_k``, and two decisions give two.
    """
    step = next((a.step for a in answers if a.step is not None), None)
    agent = next((a.agent for a in answers if a.agent is not None), None)
    return Hypothesis(
        analyst=analyst,
        step=step,
        agent=agent,
        category=next((a.category for a in answers if a.category is not None), None),
        asil=next((a.asil for a in answers if a.asil is not None), Asil.UNRATED),
        confidence=sum(a.confidence for a in answers) / len(answers),
        rationale=" ".join(dict.fromkeys(a.rationale for a in answers)),
        evidence=tuple({(e.step, e.text): e for a in answers for e in a.evidence}.values()),
    )


async def _hypothesis(
    line: Line, analyst: str, questions: list[tuple[Question, Envelope]], facts: TraceFacts
) -> tuple[Hypothesis, bool]:
    """The analyst's hypothesis; marked unanswered, with the reason, when any of its decisions is missing.

    The second value says of an unanswered one whether that may pass.
    """
    results = await asyncio.gather(
        *(_answer(line, analyst, question, envelope, facts) for question, envelope in questions),
        return_exceptions=True,
    )
    answers: list[Answer] = []
    for result in results:
        if isinstance(result, Answer):
            answers.append(result)
        elif isinstance(result, UnusableAnswerError):
            return _silent(analyst, f"unusable answer: {result}"), False
        elif isinstance(result, LlmError):
            return _silent(analyst, f"{result.kind}: {result}"), result.may_pass
        else:
            raise result
    return _merge(analyst, answers), False


def _silent(analyst: str, why: str) -> Hypothesis:
    return Hypothesis(analyst=analyst, answered=False, error=why[:300])


async def consult(
    line: Line, panel: tuple[str, ...], questions: list[Question], facts: TraceFacts
) -> Consultation:
    """All hypotheses in the panel's order; analysts answer at the same time and see nothing of each other."""
    asked = [(question, question.envelope(facts)) for question in questions]
    results = await asyncio.gather(*(_hypothesis(line, analyst, asked, facts) for analyst in panel))
    return Consultation([hypothesis for hypothesis, _ in results], any(may_pass for _, may_pass in results))
