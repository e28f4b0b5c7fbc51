"""One pass over a trace that every detector, ranker and analyst shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import orjson

from cockpithat.analysis.doings import Doing, Doings
from cockpithat.analysis.roles import agent_key, is_machine, is_person, is_safety
from cockpithat.analysis.tool_signals import Value, commands_of
from cockpithat.contract.trace import Step, Trace

_DISPATCHING_MODES = frozenset({"plan", "dispatch", "thought", "delegate", "handoff"})
MAX_SCANNED = 20_000
"""Characters of one step's text that detectors read; lengths count all of it."""

_MAX_RENDERED = 4_000


def render(value: Any) -> str:
    """A tool's arguments or output as text, at most 4,000 characters."""
    if isinstance(value, str):
        return value[:_MAX_RENDERED]
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str)[: 4 * _MAX_RENDERED]
    except (orjson.JSONEncodeError, RecursionError):
        return str(type(value).__name__)
    return text.decode("utf-8", "ignore")[:_MAX_RENDERED]


class TraceView:
    """What is known about a trace at a glance. Built lazily, each part once, linear in the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.steps: tuple[Step, ...] = trace.steps

    @cached_property
    def _role_of(self) -> dict[str, str]:
        return {agent_key(info.name): info.role for info in self.trace.roster}

    @cached_property
    def keys(self) -> list[str]:
        """Spelling-blind agent of each step."""
        cache: dict[str, str] = {}
        return [cache.setdefault(s.agent, agent_key(s.agent)) for s in self.steps]

    @cached_property
    def spelling(self) -> dict[str, str]:
        """How each agent is written: as on the roster, else as it spoke first."""
        names = {agent_key(info.name): info.name for info in self.trace.roster}
        for key, step in zip(self.keys, self.steps, strict=True):
            names.setdefault(key, step.agent)
        return names

    @cached_property
    def people(self) -> frozenset[str]:
        """Keys of agents that are people."""
        return frozenset(k for k, name in self.spelling.items() if is_person(name, self._role_of.get(k, "")))

    @cached_property
    def machines(self) -> frozenset[str]:
        """Keys of agents that only execute."""
        return frozenset(
            k
            for k, name in self.spelling.items()
            if k not in self.people and is_machine(name, self._role_of.get(k, ""))
        )

    @cached_property
    def safety_agents(self) -> frozenset[str]:
        """Keys of agents on the roster or in the trace whose job is safety."""
        return frozenset(
            k
            for k, name in self.spelling.items()
            if k not in self.people and is_safety(name, self._role_of.get(k, ""))
        )

    def acts(self, index: int) -> bool:
        """Whether the step is an agent's own, not a person's and not a terminal's."""
        return self.keys[index] not in self.people and self.keys[index] not in self.machines

    @cached_property
    def actors(self) -> list[int]:
        """Steps of agents; all steps if there are none."""
        return [i for i in range(len(self.steps)) if self.acts(i)] or list(range(len(self.steps)))

    @cached_property
    def coordinators(self) -> frozenset[str]:
        """Agents at least half of whose steps plan, think aloud or hand over to another agent."""
        turns: Counter[str] = Counter()
        handing: Counter[str] = Counter()
        for key, step in zip(self.keys, self.steps, strict=True):
            turns[key] += 1
            other = step.target is not None and agent_key(step.target) != key
            if other or step.plan or step.mode in _DISPATCHING_MODES:
                handing[key] += 1
        return frozenset(key for key, count in handing.items() if 2 * count >= turns[key])

    @cached_property
    def lengths(self) -> list[int]:
        """Characters of each step: text, reasoning, tool arguments and outputs."""
        return [
            len(s.text)
            + len(s.reasoning)
            + sum(len(render(c.arguments)) for c in s.tool_calls)
            + sum(len(render(o.content)) for o in s.tool_outputs)
            for s in self.steps
        ]

    @cached_property
    def words(self) -> list[str]:
        """What each step says: reasoning and text, cut to a bound for scanning."""
        return [(f"{s.reasoning}\n{s.text}" if s.reasoning else s.text)[:MAX_SCANNED] for s in self.steps]

    @cached_property
    def lowered(self) -> list[str]:
        """:attr:`words` in lower case."""
        return [text.lower() for text in self.words]

    @cached_property
    def commands(self) -> list[dict[str, Value]]:
        """What each step sets out to change, by VSS path."""
        return [commands_of(step) if step.intended or step.tool_calls else {} for step in self.steps]

    @cached_property
    def doings(self) -> list[Doing]:
        """What each step does: look, change, talk."""
        return self._doings.steps

    @cached_property
    def _doings(self) -> Doings:
        return Doings(self.steps, self.commands)

    @cached_property
    def bus_paths(self) -> tuple[str, ...]:
        """Signals that the bus shows at the first or last step that carries state."""
        states = [step.state for step in (*self.steps[:1], *self.steps[-1:]) if step.state is not None]
        return tuple(sorted({path for state in states for path in (*state.before, *state.after)}))

    @cached_property
    def moving_paths(self) -> frozenset[str]:
        """Signals that move by themselves, such as speed: a reading of them is soon another."""
        return self._doings.drifting

    @cached_property
    def characters(self) -> dict[str, int]:
        """Characters by agent key; people and terminals left out unless there is no one else."""
        totals: dict[str, int] = {}
        for i in self.actors:
            totals[self.keys[i]] = totals.get(self.keys[i], 0) + self.lengths[i]
        return totals

    def own_steps(self, key: str) -> list[int]:
        """Steps of an agent, in order."""
        return [i for i, k in enumerate(self.keys) if k == key]

    def following(self, index: int, reach: int) -> Iterator[int]:
        """The next ``reach`` steps after one."""
        return iter(range(index + 1, min(index + 1 + reach, len(self.steps))))

    @cached_property
    def embodied(self) -> bool:
        """Whether the trace has any embodied channel: e, sigma or m, or vehicle commands."""
        return any(
            s.environment or s.state or s.memory or c for s, c in zip(self.steps, self.commands, strict=True)
        )
