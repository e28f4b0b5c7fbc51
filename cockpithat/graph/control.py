"""Who calls on whom: dispatches, their returns, replies and turns with the user."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

_V = TypeVar("_V")

_AGENTS: Final = 64
_RETURNS: Final = 8

USERS: Final = frozenset(
    {
        "user",
        "human",
        "driver",
        "passenger",
        "customer",
        "client",
        "occupant",
        "fahrer",
        "nutzer",
        "用户",
        "驾驶员",
        "乘客",
    }
)
EVERYONE: Final = frozenset({"*", "all", "everyone", "everybody", "team", "group"})


class Call(NamedTuple):
    """An edge found here: the earlier step and what was seen."""

    step: int
    what: str


# A fleet has a few dozen names of agents; each is looked at several times a step.
@lru_cache(maxsize=4_096)
def agent_key(name: str) -> str:
    """Names are compared without case, because logs write ``Websurfer`` beside ``WebSurfer``."""
    return name.strip().casefold()


@lru_cache(maxsize=4_096)
def is_user(agent: str) -> bool:
    """Whether the name is one that logs give to the person."""
    return agent_key(agent) in USERS


@lru_cache(maxsize=4_096)
def is_terminal(agent: str) -> bool:
    """Whether the agent only runs what others wrote, such as ``Computer_terminal``."""
    key = agent_key(agent)
    return "terminal" in key or "executor" in key or "interpreter" in key


class Dispatches:
    """Open dispatches and the answers that wait for the dispatcher.

    A dispatch to X is answered by X's next step and the steps that X adds at once; when the dispatcher
    speaks again it has X's last step of these before it. State is one entry an agent, at most 64.
    """

    def __init__(self) -> None:
        self._open: dict[str, Call] = {}
        self._dispatcher: dict[str, str] = {}
        self._returns: dict[str, dict[str, Call]] = {}
        self._turn: tuple[str, Call] | None = None

    def calls(self, step: int, agent: str, target: str | None) -> list[Call]:
        """Edges into this step, oldest first; then the step's own dispatch is opened."""
        key = agent_key(agent)
        found: list[Call] = []
        if self._turn is not None and self._turn[0] != key:
            self._turn = None
        open_call = self._open.pop(key, None)
        if open_call is None and "*" in self._open and self._dispatcher.get("*") != key:
            open_call = self._open.pop("*")
            self._remember(self._dispatcher, key, self._dispatcher["*"])
        if open_call is not None:
            self._turn = (key, open_call)
        if self._turn is not None:
            found.append(self._turn[1])
        for helper, call in self._returns.pop(key, {}).items():
            found.append(call)
            self._dispatcher.pop(helper, None)
        dispatcher = self._dispatcher.get(key)
        if dispatcher is not None:
            waiting = self._returns.setdefault(dispatcher, {})
            self._remember(waiting, key, Call(step, f"{agent} reports back"), _RETURNS)
        if target and agent_key(target) != key:
            goal = "*" if agent_key(target) in EVERYONE else agent_key(target)
            self._remember(self._open, goal, Call(step, f"{agent} calls {target}"))
            self._remember(self._dispatcher, goal, key)
        return found

    @staticmethod
    def _remember(table: dict[str, _V], key: str, value: _V, limit: int = _AGENTS) -> None:
        table.pop(key, None)
        if len(table) >= limit:
            del table[next(iter(table))]
        table[key] = value
