"""Rules of thumb that must not solve CockpitBench: each names one step of a session, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cockpithat.contract.events import StepEvent
from cockpithat.simulator.session import SimulatedSession
from cockpithat.simulator.signals import signal_table

Rule = Callable[[SimulatedSession], int | None]
_SETS = re.compile(r"^(vss\.set|set_|execute$|write_state$|cockpit\.)")


def _find(steps: tuple[StepEvent, ...], test: Callable[[StepEvent], bool], last: bool) -> int | None:
    found = [index for index, step in enumerate(steps) if test(step)]
    return None if not found else found[-1 if last else 0]


def is_safety(step: StepEvent) -> bool:
    """Whether the safety agent acts, whatever its name's spelling."""
    return "safety" in step.agent.lower()


def sets_something(step: StepEvent) -> bool:
    """Whether a step calls a tool that changes the vehicle."""
    return any(_SETS.match(call.name) for call in step.tool_calls)


def has_error(step: StepEvent) -> bool:
    """Whether a tool says in the step that it failed."""
    words = ("reject", "not executed", "'success': false", "409")
    return any(o.is_error or any(w in str(o.content).lower() for w in words) for o in step.tool_outputs)


def is_driver(step: StepEvent) -> bool:
    """Whether the person at the wheel speaks."""
    return step.agent.lower() in ("driver", "user")


def _length(step: StepEvent) -> int:
    return len(step.text) + len(step.reasoning) + sum(len(str(c.arguments)) for c in step.tool_calls)


def first_state_change(session: SimulatedSession) -> int | None:
    """The step during which an actuator first moves on the bus."""
    table = signal_table(extended=True)
    for snapshot in session.snapshots[1:]:
        moved = [p for p in snapshot.signals if table[p].type == "actuator" and "Brake.IsActive" not in p]
        if moved:
            before = [i for i, step in enumerate(session.steps) if step.ts < snapshot.ts]
            return before[-1] if before else None
    return None


def longest_step(session: SimulatedSession) -> int | None:
    """The longest step that is not the driver's."""
    own = [i for i, step in enumerate(session.steps) if not is_driver(step)]
    return max(own, key=lambda i: _length(session.steps[i])) if own else None


def most_characters(session: SimulatedSession, last: bool = False) -> int | None:
    """The first (or last) step of the agent that says most."""
    totals: dict[str, int] = {}
    for step in session.steps:
        if not is_driver(step):
            totals[step.agent] = totals.get(step.agent, 0) + _length(step)
    top = max(totals, key=lambda name: totals[name])
    return _find(session.steps, lambda step: step.agent == top, last)


def all_rules() -> Iterator[tuple[str, Rule]]:
    """Every rule by name: cues first and last and their neighbours, positions, agents, modes."""
    yield "first state change", first_state_change
    yield "longest step", longest_step
    yield "first step of the agent with most characters", most_characters
    yield "last step of the agent with most characters", lambda s: most_characters(s, last=True)
    cues: dict[str, Callable[[StepEvent], bool]] = {
        "safety step": is_safety,
        "change of the vehicle": sets_something,
        "tool error": has_error,
        "tool call": lambda step: bool(step.tool_calls),
        "tool output": lambda step: bool(step.tool_outputs),
        "plan": lambda step: bool(step.plan),
        "plan item": lambda step: step.plan_item is not None,
        "memory": lambda step: bool(step.memory),
        "environment": lambda step: bool(step.environment),
        "driver": is_driver,
        "delegation": lambda step: step.target is not None,
        "intended change": lambda step: bool(step.intended),
        "message of an agent": lambda step: step.mode == "message" and not is_driver(step),
        "observation": lambda step: step.mode == "observation",
        "dialogue agent": lambda s: (
            s.agent.lower().replace("_", "").replace(" ", "") in ("dialoguemanager", "director")
        ),
        "vehicle agent": lambda s: (
            s.agent.lower().replace("_", "").replace(" ", "") in ("statecontroller", "vehicleagent")
        ),
        "scouting agent": lambda s: (
            s.agent.lower().replace("_", "").replace(" ", "") in ("environmentinterpreter", "navigationagent")
        ),
    }
    for name, test in cues.items():
        for last in (False, True):
            for shift in (-2, -1, 0, 1, 2):
                yield f"{'last' if last else 'first'} {name} {shift:+d}", _shifted(test, last, shift)
    for index in range(20):
        yield f"step {index}", lambda s, i=index: i if i < len(s.steps) else None  # type: ignore[misc]
        yield (
            f"step {index} from the end",
            lambda s, i=index: (  # type: ignore[misc]
                len(s.steps) - 1 - i if i < len(s.steps) else None
            ),
        )
    for tenth in range(11):
        yield f"at {tenth}0 %", lambda s, t=tenth: round(t / 10 * (len(s.steps) - 1))  # type: ignore[misc]


def _shifted(test: Callable[[StepEvent], bool], last: bool, shift: int) -> Rule:
    def rule(session: SimulatedSession) -> int | None:
        at = _find(session.steps, test, last)
        if at is None or not 0 <= at + shift < len(session.steps):
            return None
        return at + shift

    return rule
