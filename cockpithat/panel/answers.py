"""The form of each answer: its JSON Schema, and the reading of it against the trace.

Reading gives a value or the list of what is wrong with it, in words for the model's one second chance. What
is wrong is never quoted back: an answer may repeat what a trace ordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Evidence
from cockpithat.llm.client import Schema
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.marks import clean

MAX_RATIONALE = 1_200  # characters
MAX_QUOTES = 8

_EVIDENCE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"step": {"type": "integer"}, "quote": {"type": "string"}},
        "required": ["step", "quote"],
        "additionalProperties": False,
    },
}
_CONFIDENCE = {"type": "number"}
_TEXT = {"type": "string"}


class UnusableAnswerError(ValueError):
    """An answer that does not fit the form or the trace; ``problems`` says what to mend.

    ``may_pass``: another time there may be a better one. The same question is asked at temperature 0, so this
    holds only for what failed calls left without an answer.
    """

    def __init__(self, problems: list[str], *, may_pass: bool = False) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.may_pass = may_pass


@dataclass(frozen=True, slots=True)
class Answer:
    """A checked answer; fields that the question did not ask for are ``None``."""

    confidence: float
    rationale: str
    evidence: tuple[Evidence, ...]
    step: int | None = None
    agent: str | None = None
    omission: bool = False
    category: Category | None = None
    asil: Asil | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """What a question asks for."""

    name: str
    step: bool = False
    agent: bool = False
    omission: bool = False
    category: bool = False
    asil: bool = False

    def schema(self, facts: TraceFacts) -> Schema:
        """The JSON Schema for one trace, whose agents are the only ones allowed."""
        properties: dict[str, Any] = {}
        if self.step:
            # No list of all steps: endpoints bill the schema, and the number is checked here anyway.
            properties["step"] = {"type": "integer"}
        if self.agent:
            properties["agent"] = {"type": "string", "enum": list(facts.trace.agents)}
        if self.omission:
            properties["omission"] = {"type": "boolean"}
        if self.category:
            properties["category"] = {"type": "string", "enum": [category.value for category in Category]}
        if self.asil:
            properties["asil"] = {"type": "string", "enum": [asil.value for asil in Asil]}
        properties |= {"confidence": _CONFIDENCE, "rationale": _TEXT, "evidence": _EVIDENCE}
        return Schema(
            self.name,
            {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        )

    def read(self, data: dict[str, Any], analyst: str, facts: TraceFacts) -> Answer:
        """The checked answer. Raises :class:`UnusableAnswerError`."""
        problems: list[str] = []
        step = _step(data.get("step"), facts, problems) if self.step else None
        agent = _agent(data.get("agent"), facts, problems) if self.agent else None
        category = _category(data.get("category"), problems) if self.category else None
        asil = _asil(data.get("asil"), problems) if self.asil else None
        omission = data.get("omission") if self.omission else False
        if not isinstance(omission, bool):
            problems.append("omission must be true or false")
        confidence = _confidence(data.get("confidence"), problems)
        rationale = data.get("rationale")
        if not isinstance(rationale, str) or not clean(rationale).strip():
            problems.append("the rationale is empty")
        quotes = _quotes(data.get("evidence"), problems)
        if problems:
            raise UnusableAnswerError(problems)
        return Answer(
            confidence=confidence,
            rationale=clean(str(rationale)).strip()[:MAX_RATIONALE],
            evidence=facts.evidence(analyst, quotes),
            step=step,
            agent=agent,
            omission=omission is True,
            category=category,
            asil=asil,
        )


AGENT = Form("agent_decision", agent=True, omission=True, category=True, asil=True)
STEP = Form("step_decision", step=True)
JOINT = Form("decision", step=True, agent=True, omission=True, category=True, asil=True)
DEFENCE = Form("defence", step=True, agent=True, category=True)


def integer(value: Any) -> int | None:
    """A whole number as models write it: ``12``, ``12.0``, ``"12"`` or ``"@12"``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        digits = value.strip().removeprefix("@").strip()
        if digits.isascii() and digits.isdigit() and len(digits) <= 9:
            return int(digits)
    return None


def _step(value: Any, facts: TraceFacts, problems: list[str]) -> int | None:
    step = integer(value)
    if step is None:
        problems.append("step must be the number of a step")
    elif not facts.has_step(step):
        problems.append(f"there is no such step; steps are 0 to {len(facts.trace.steps) - 1}")
    return step


def _agent(value: Any, facts: TraceFacts, problems: list[str]) -> str | None:
    agent = facts.agent(value) if isinstance(value, str) else None
    if agent is None:
        problems.append("agent must be one of the names on the Agents line")
    return agent


def _category(value: Any, problems: list[str]) -> Category | None:
    if isinstance(value, str):
        name = "_".join(value.casefold().replace("-", " ").replace("–", " ").replace("_", " ").split())
        if name in set(Category):
            return Category(name)
    problems.append("category must be one of the eight category names")
    return None


def _asil(value: Any, problems: list[str]) -> Asil | None:
    if isinstance(value, str):
        name = value.strip().casefold().removeprefix("asil").strip(" -_")
        for asil in Asil:
            if name == asil.value.casefold():
                return asil
    problems.append("asil must be D, C, B, A, QM or unrated")
    return None


def _confidence(value: Any, problems: list[str]) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        problems.append("confidence must be a number from 0 to 1")
        return 0.0
    return float(value)


def _quotes(value: Any, problems: list[str]) -> list[tuple[int | None, str]]:
    if value is None:
        return []
    if not isinstance(value, list):
        problems.append("evidence must be a list of step and quote")
        return []
    return [
        (integer(item.get("step")), item["quote"])
        for item in value[:MAX_QUOTES]
        if isinstance(item, dict) and isinstance(item.get("quote"), str) and item["quote"].strip()
    ]
