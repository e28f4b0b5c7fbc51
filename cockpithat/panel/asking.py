"""One question to a model: ask, check the answer against the trace, ask once more, give up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cockpithat.llm import ChatClient, Ledger, Message, Role, Schema
from cockpithat.panel.answers import UnusableAnswerError
from cockpithat.panel.prompts import prompt

T = TypeVar("T")
_MAX_ECHO = 2_000  # characters of a bad answer that the second question shows


@dataclass(frozen=True, slots=True)
class Line:
    """The way to a model for one trace: client, accounts and the moment by which all must be done."""

    client: ChatClient
    ledger: Ledger
    deadline: float | None = None


async def ask(
    line: Line,
    role: Role,
    messages: list[Message],
    schema: Schema,
    read: Callable[[dict[str, Any]], T],
    purpose: str,
) -> T:
    """The answer as ``read`` understands it.

    ``read`` raises :class:`UnusableAnswerError` for an answer that cannot be used; then, and when there is no
    JSON at all, the model is told what is wrong and asked once more. Raises that error or an ``LlmError``.
    """
    completion = await line.client.complete(
        role, messages, schema, ledger=line.ledger, purpose=purpose, deadline=line.deadline
    )
    try:
        return _read(completion.data, completion.problem, read)
    except UnusableAnswerError as error:
        again: list[Message] = [
            *messages,
            {"role": "assistant", "content": completion.text[:_MAX_ECHO] or "(no answer)"},
            {"role": "user", "content": prompt("repair").fill(problems="; ".join(error.problems))},
        ]
    completion = await line.client.complete(
        role, again, schema, ledger=line.ledger, purpose=f"{purpose}/repair", deadline=line.deadline
    )
    return _read(completion.data, completion.problem, read)


def _read(data: dict[str, Any] | None, problem: str | None, read: Callable[[dict[str, Any]], T]) -> T:
    if data is None:
        raise UnusableAnswerError([problem or "there is no JSON object in it"])
    return read(data)
