"""Who is who among the names of a trace, on any roster: people, terminals, coordinators, safety agents."""

from __future__ import annotations

import re
from functools import lru_cache

_PEOPLE = frozenset(
    {"user", "human", "driver", "passenger", "customer", "person", "rider", "occupant", "codriver", "owner",
     "simulateddriver", "driveragent", "userproxy", "fahrer", "beifahrer", "nutzer",
     "司机", "驾驶员", "用户", "乘客"}
)  # fmt: skip
_MACHINES = frozenset(
    {"tool", "tools", "function", "environment", "system", "terminal", "executor", "vehicle", "vehiclebus",
     "codeexecutor", "shell", "console"}
)  # fmt: skip
_MACHINE_PARTS = ("terminal",)
_SAFETY = re.compile(
    r"safety|safeguard|guardian|guardrail|sicherheit|risk\s?(?:agent|monitor|assess)|安全", re.IGNORECASE
)
_NUMBER_AT_END = re.compile(r"\d{1,4}$")


_LONG = 128  # names come from outside: longer ones are not remembered


def agent_key(name: str) -> str:
    """Spelling-blind form of a name: ``Websurfer`` and ``WebSurfer`` are one agent."""
    return _known_key(name) if len(name) <= _LONG else _key(name)


def _key(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum()) or name


_known_key = lru_cache(maxsize=4_096)(_key)


def _core(name: str) -> str:
    return _NUMBER_AT_END.sub("", agent_key(name[:256]))


def is_person(name: str, role: str = "") -> bool:
    """A human in the car or at the keyboard, by name or by the roster's role."""
    return _core(name) in _PEOPLE or _core(role) in _PEOPLE


def is_machine(name: str, role: str = "") -> bool:
    """Something that only executes or reports: a terminal, a tool, the bus."""
    core = _core(name)
    return core in _MACHINES or any(part in core for part in _MACHINE_PARTS) or _core(role) in _MACHINES


def is_safety(name: str, role: str = "") -> bool:
    """An agent whose job is to check or stop others, by name or role."""
    return bool(_SAFETY.search(name[:256])) or bool(_SAFETY.search(role[:256]))
