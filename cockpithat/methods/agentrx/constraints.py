"""Constraints with a guard and an assertion, and the program that checks them. Pure.

A constraint is data, never code: a guard says which steps it applies to, an assertion what must hold there.
What cannot be said this way is left to a judge (``check: judge``) in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.view import render
from cockpithat.contract.events import ToolCall
from cockpithat.contract.trace import Step


class Check(StrEnum):
    """What an assertion demands of a step that the guard selects."""

    ARGUMENT_PRESENT = "argument_present"
    ARGUMENT_ONE_OF = "argument_one_of"
    ARGUMENT_TYPE = "argument_type"
    ARGUMENT_AT_LEAST = "argument_at_least"
    ARGUMENT_AT_MOST = "argument_at_most"
    ONLY_ARGUMENTS = "only_arguments"
    TOOL_CALLED_BEFORE = "tool_called_before"
    AGENT_SPOKE_BEFORE = "agent_spoke_before"
    NO_ERROR = "no_error"
    JUDGE = "judge"


PROGRAM_CHECKS = tuple(check.value for check in Check if check != Check.JUDGE)


@dataclass(frozen=True, slots=True)
class Guard:
    """Steps a constraint applies to: all that match what is given. An empty guard matches every step."""

    tool: str = ""
    agent: str = ""
    first: int = 0  # no step before it

    def calls(self, step: Step) -> list[ToolCall]:
        """The calls of the step that the guard is about; with no tool named, all."""
        return [call for call in step.tool_calls if not self.tool or call.name == self.tool]

    def applies(self, step: Step) -> bool:
        """Whether the step is selected."""
        if step.index < self.first or (self.agent and agent_key(step.agent) != agent_key(self.agent)):
            return False
        return not self.tool or bool(self.calls(step))


@dataclass(frozen=True, slots=True)
class Constraint:
    """``subject`` is the argument, tool or agent that ``check`` is about; ``values`` what is allowed."""

    name: str
    check: Check
    guard: Guard = Guard()
    subject: str = ""
    values: tuple[Any, ...] = ()
    text: str = ""
    origin: str = "global"  # or dynamic


@dataclass(frozen=True, slots=True)
class Violation:
    """One entry of the log."""

    constraint: str
    step: int
    detail: str
    by: str = "program"  # or judge, rules
    weight: float = 0.6  # how far it alone speaks for the step being decisive
    quote: str = ""

    def line(self) -> str:
        """For a prompt."""
        return f"step {self.step} [{self.by}] {self.constraint}: {self.detail}"


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def type_matches(value: Any, name: str) -> bool:
    """Whether a value has the JSON type; an unknown type name matches."""
    if name not in _TYPES:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def check(constraints: Iterable[Constraint], steps: Sequence[Step], limit: int = 200) -> list[Violation]:
    """Run all program checks; the log by step, at most ``limit`` entries."""
    found: list[Violation] = []
    for constraint in constraints:
        if constraint.check == Check.JUDGE:
            continue
        called: set[str] = set()
        spoke: set[str] = set()
        for step in steps:
            if constraint.guard.applies(step):
                detail = _broken(constraint, step, called, spoke)
                if detail:
                    found.append(Violation(constraint.name, step.index, detail))
            called.update(call.name for call in step.tool_calls)
            spoke.add(agent_key(step.agent))
    return sorted(found, key=lambda v: v.step)[:limit]


def _broken(c: Constraint, step: Step, called: set[str], spoke: set[str]) -> str:
    """What is wrong at a step, in words; empty if nothing is."""
    if c.check == Check.TOOL_CALLED_BEFORE:
        return "" if c.subject in called else f"{c.subject} was not called before"
    if c.check == Check.AGENT_SPOKE_BEFORE:
        return "" if agent_key(c.subject) in spoke else f"{c.subject} was not heard before"
    if c.check == Check.NO_ERROR:
        failed = next((o for o in step.tool_outputs if o.is_error), None)
        return f"{failed.name or 'a tool'} failed: {render(failed.content)[:120]}" if failed else ""
    return next((said for call in c.guard.calls(step) if (said := _argument_broken(c, call))), "")


def _argument_broken(c: Constraint, call: ToolCall) -> str:
    arguments = _arguments(call)
    if c.check == Check.ONLY_ARGUMENTS:
        extra = [name for name in arguments if name not in c.values]
        return f"{call.name} has no argument {', '.join(extra[:4])}" if extra else ""
    if c.subject not in arguments:
        return f"{call.name} lacks {c.subject}" if c.check == Check.ARGUMENT_PRESENT else ""
    value = arguments[c.subject]
    shown = f"{call.name}.{c.subject} is {render(value)[:60]}"
    if c.check == Check.ARGUMENT_ONE_OF:
        return "" if value in c.values else f"{shown}, not one of {render(list(c.values))[:80]}"
    if c.check == Check.ARGUMENT_TYPE:
        wanted = str(c.values[0]) if c.values else ""
        return "" if type_matches(value, wanted) else f"{shown}, not of type {wanted}"
    if c.check in (Check.ARGUMENT_AT_LEAST, Check.ARGUMENT_AT_MOST):
        return _bound_broken(c, value, shown)
    return ""


def _bound_broken(c: Constraint, value: Any, shown: str) -> str:
    bound = c.values[0] if c.values else None
    for number in (value, bound):
        if isinstance(number, bool) or not isinstance(number, int | float):
            return ""
    if c.check == Check.ARGUMENT_AT_LEAST:
        return "" if value >= bound else f"{shown}, below {bound}"
    return "" if value <= bound else f"{shown}, above {bound}"


def from_schemas(schemas: Mapping[str, Any]) -> list[Constraint]:
    """Global constraints of tool schemas, ``{name: OpenAI function object or JSON Schema}``.

    Required and unknown arguments, types, enumerations and bounds; parts that are not as JSON Schema has them
    are passed over.
    """
    found: list[Constraint] = []
    for name, given in schemas.items():
        schema = _parameters(given)
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            continue
        guard = Guard(tool=name)
        required = schema.get("required")
        found.extend(
            Constraint(f"{name}_needs_{argument}", Check.ARGUMENT_PRESENT, guard, str(argument))
            for argument in (required if isinstance(required, list) else ())
        )
        if schema.get("additionalProperties") is False:
            found.append(
                Constraint(f"{name}_arguments", Check.ONLY_ARGUMENTS, guard, values=tuple(properties))
            )
        for argument, spec in properties.items():
            if isinstance(spec, dict):
                found.extend(_of_argument(name, guard, argument, spec))
    return found


def _parameters(given: Any) -> dict[str, Any]:
    for key in ("function", "parameters"):
        if isinstance(given, dict) and isinstance(given.get(key), dict):
            given = given[key]
    return given if isinstance(given, dict) else {}


def _of_argument(name: str, guard: Guard, argument: str, spec: dict[str, Any]) -> list[Constraint]:
    checks = (
        ("type", Check.ARGUMENT_TYPE, isinstance(spec.get("type"), str)),
        ("enum", Check.ARGUMENT_ONE_OF, isinstance(spec.get("enum"), list)),
        ("minimum", Check.ARGUMENT_AT_LEAST, isinstance(spec.get("minimum"), int | float)),
        ("maximum", Check.ARGUMENT_AT_MOST, isinstance(spec.get("maximum"), int | float)),
    )
    return [
        Constraint(
            f"{name}_{argument}_{key}",
            kind,
            guard,
            argument,
            tuple(spec[key]) if key == "enum" else (spec[key],),
        )
        for key, kind, usable in checks
        if usable
    ]
