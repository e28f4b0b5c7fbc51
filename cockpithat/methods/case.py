"""One trace on its way through a method with a model: what is known, and how a question is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from cockpithat.analysis.examination import Examination
from cockpithat.contract.trace import Trace
from cockpithat.llm import LlmError, Message, Role, Schema
from cockpithat.llm.errors import BudgetExhaustedError
from cockpithat.llm.tokens import message_tokens
from cockpithat.methods.log import render_log
from cockpithat.panel.answers import UnusableAnswerError
from cockpithat.panel.asking import Line, ask
from cockpithat.panel.envelope import describe, enclose
from cockpithat.panel.prompts import prompt
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.marks import quoted
from cockpithat.slicing.render import StepText

T = TypeVar("T")
SYSTEM = "methods-system"
FAILED = (LlmError, UnusableAnswerError)
"""What a question may raise when there is no usable answer."""


class TraceBudgetError(BudgetExhaustedError):
    """What a trace may cost is spent; another try costs it again."""

    may_pass = False


@dataclass
class Case:
    """Only its cached parts and the reservation change."""

    trace: Trace
    examination: Examination
    facts: TraceFacts
    texts: tuple[StepText, ...]
    line: Line
    role: Role = Role.ANALYST
    ground_truth: str | None = None
    trace_tokens: int | None = None
    reserved: int = 0  # tokens of calls under way

    @property
    def n(self) -> int:
        """Number of steps."""
        return len(self.trace.steps)

    @cached_property
    def head(self) -> str:
        """What stands above the steps; with the reference answer only where a benchmark shows it."""
        return describe(self.trace, self.ground_truth)

    def log(self, budget: int, steps: Sequence[int] | None = None, *, numbered: bool = True) -> str:
        """The wanted steps as quoted text, see :func:`render_log`."""
        return render_log(self.texts, budget, steps, numbered=numbered)

    async def ask(
        self,
        name: str,
        parts: Sequence[str],
        schema: Schema,
        read: Callable[[dict[str, Any]], T],
        purpose: str,
        *,
        persona: str | None = None,
        **slots: str,
    ) -> T:
        """One question over quoted data. Raises what is in :data:`FAILED`.

        ``parts`` are put into the envelope, one below the other: trace text, and whatever a model said about
        it before, which is no more to be trusted. The instruction follows, so that ours are the last words.
        """
        envelope = enclose("\n".join(part for part in parts if part))
        role = f"{prompt(persona).text}\n\n" if persona else ""
        messages: list[Message] = [
            {"role": "system", "content": prompt(SYSTEM).fill(nonce=envelope.nonce)},
            {"role": "user", "content": f"{envelope.text}\n\n{role}{prompt(name).fill(**slots)}"},
        ]
        reserved = self._reserve(messages)
        try:
            return await ask(self.line, self.role, messages, schema, read, purpose)
        finally:
            self.reserved -= reserved

    def _reserve(self, messages: Sequence[Message]) -> int:
        """Set aside what a call may use, so that calls at the same time do not share what is left."""
        if self.trace_tokens is None:
            return 0
        used = self.line.ledger.tokens
        spent = used.input + used.output + self.reserved
        settings = self.line.client.settings.role(self.role)
        wanted = message_tokens([message["content"] for message in messages])
        wanted += settings.max_output_tokens if settings else 0
        if spent + wanted > self.trace_tokens:
            raise TraceBudgetError(
                f"the trace's budget of {self.trace_tokens} tokens is spent ({spent} used, {wanted} needed)"
            )
        self.reserved += wanted
        return wanted


def section(title: str, lines: Sequence[str]) -> str:
    """A titled part of the envelope, its lines quoted; empty without lines."""
    return "\n".join([f"{title}:", *(quoted(line) for line in lines)]) if lines else ""


async def gathered(questions: Sequence[Awaitable[T]]) -> tuple[list[T], list[LlmError | UnusableAnswerError]]:
    """Answers of questions asked at the same time, in order, and the errors of those without one."""
    results = await asyncio.gather(*questions, return_exceptions=True)
    answers: list[T] = []
    errors: list[LlmError | UnusableAnswerError] = []
    for result in results:
        if isinstance(result, FAILED):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            answers.append(result)
    return answers, errors
