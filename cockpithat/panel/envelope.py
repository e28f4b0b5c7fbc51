"""Trace content as data between lines that it cannot contain.

The delimiter carries a hash of what it encloses. To close it early a trace would have to hold a hash of a
text that holds that hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cockpithat.contract.trace import Trace
from cockpithat.slicing.marks import single_line

_MAX_TASK = 1_200  # characters
_MAX_ANSWER = 800
_MAX_REFERENCE = 1_200


@dataclass(frozen=True, slots=True)
class Envelope:
    """Quoted data and the nonce of its delimiters."""

    nonce: str
    text: str


def enclose(data: str) -> Envelope:
    """Wrap data. The nonce is a function of the data, so that equal requests stay equal (the cache)."""
    nonce = hashlib.sha256(b"envelope\0" + data.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    while nonce in data:  # would take a hash collision by design; costs nothing to rule out
        nonce = hashlib.sha256(nonce.encode()).hexdigest()[:16]
    return Envelope(nonce, f"DATA {nonce}\n{data}\nEND {nonce}")


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 6] + " [...]"


def agents_line(trace: Trace) -> str:
    """The names an answer may use, roster first, then others that spoke, with their roster roles."""
    roles = {agent.name: agent.role for agent in trace.roster if agent.role}
    return "Agents: " + "; ".join(
        single_line(name) + (f" ({_clip(single_line(roles[name]), 80)})" if name in roles else "")
        for name in trace.agents
    )


def describe(trace: Trace, reference: str | None = None) -> str:
    """What stands above the steps: task, agents, final answer and how it ended.

    ``reference`` is the task's right answer, only where a benchmark shows it to the judge.
    """
    lines = [agents_line(trace)]
    if trace.task.strip():
        lines.append("Task: " + _clip(single_line(trace.task), _MAX_TASK))
    if trace.final_answer.strip():
        lines.append("Final answer: " + _clip(single_line(trace.final_answer), _MAX_ANSWER))
    if trace.failure_reason:
        lines.append("Ended: " + _clip(single_line(trace.failure_reason), 300))
    if reference is not None:
        lines.append("Reference answer: " + single_line(reference)[:_MAX_REFERENCE])
    return "\n".join(lines)
