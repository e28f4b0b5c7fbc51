"""How tools are called and how they answer: four dialects of names, arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from cockpithat.contract.events import IntendedChange, ToolCall, ToolOutput
from cockpithat.resources import read_resource
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.world import SCENE_PREFIX, Write


@cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = yaml.safe_load(read_resource("data/simulator/tools.yaml"))
    return names


@cache
def _unseen_names() -> dict[str, Any]:
    own = yaml.safe_load(read_resource("data/simulator/unseen_tools.yaml"))
    return {table: _merged(_names()[table], own[table]) for table in _names()}


def _merged(common: Any, own: Any) -> Any:
    return {**common, **own} if isinstance(common, dict) else own


def visible(writes: Sequence[Write]) -> list[Write]:
    """The writes that a tool call is about: signals, not what follows in the world."""
    return [(path, value) for path, value in writes if not path.startswith(SCENE_PREFIX)]


def intended(writes: Sequence[Write]) -> tuple[IntendedChange, ...]:
    """The state changes that a step sets out to make."""
    return tuple(
        IntendedChange(path=path, value=value)
        for path, value in visible(writes)
        if not path.startswith("Vehicle.Driver.")
    )


@dataclass(frozen=True)
class Toolbox:
    """The tools of one cockpit."""

    dialect: str
    dice: Dice
    names: Mapping[str, Any]

    @staticmethod
    def of(dice: Dice, *, unseen: bool = False) -> Toolbox:
        """A toolbox with a drawn dialect; the unseen families' cockpits have one dialect more."""
        names = _unseen_names() if unseen else _names()
        return Toolbox(dice.choice(names["dialects"], "dialect"), dice, names)

    def _alias(self, path: str) -> str:
        known = self.names["aliases"].get(path)
        return self.dice.choice(known, "alias", path) if known else path.rsplit(".", 1)[-1].lower()

    def check_name(self, check: str) -> str:
        """The name of a look-up."""
        name = self.dice.choice(self.names["checks"][check], "check", check)
        if self.dialect == "dotted":
            return f"{name.split('_')[0]}.{name}.query"
        if self.dialect == "command":
            return "query"
        if self.dialect == "resource":
            return f"fetch_{name}"
        return f"get_{name}"

    def check_call(self, check: str, call_id: str, arguments: Mapping[str, Any]) -> ToolCall:
        """A look-up."""
        args = dict(arguments)
        if self.dialect == "command":
            args = {"topic": self.dice.choice(self.names["checks"][check], "check", check), **args}
        return ToolCall(name=self.check_name(check), arguments=args, call_id=call_id)

    def set_call(self, writes: Sequence[Write], call_id: str) -> ToolCall:
        """One call that makes these changes."""
        shown = [(p, v) for p, v in visible(writes) if not p.startswith("Vehicle.Driver.")]
        if self.dialect == "path":
            sets = [{"path": path, "value": value} for path, value in shown]
            return ToolCall(
                name="vss.set",
                arguments=sets[0] if len(sets) == 1 else {"updates": sets},
                call_id=call_id,
            )
        named = {self._alias(path): value for path, value in shown}
        first = next(iter(named))
        if self.dialect == "verb":
            return ToolCall(name=f"set_{first}", arguments=named, call_id=call_id)
        if self.dialect == "dotted":
            args = {"value": named[first]} if len(named) == 1 else {"values": named}
            return ToolCall(name=f"cockpit.{first}.set", arguments=args, call_id=call_id)
        if self.dialect == "resource":
            return ToolCall(name="write_state", arguments={"changes": named}, call_id=call_id)
        return ToolCall(name="execute", arguments={"command": "SET", "targets": named}, call_id=call_id)

    def check_output(self, call: ToolCall, reading: Mapping[str, Any]) -> ToolOutput:
        """The answer to a look-up."""
        content: Any = dict(reading)
        if self.dialect == "command":
            content = {"code": 0, "data": dict(reading)}
        elif self.dialect == "dotted":
            content = "; ".join(f"{key}={value}" for key, value in reading.items())
        elif self.dialect == "resource":
            content = [{"name": key, "is": value} for key, value in reading.items()]
        return ToolOutput(name=call.name, call_id=call.call_id, content=content)

    def set_output(self, call: ToolCall, *, accepted: bool, reason: str = "") -> ToolOutput:
        """The answer to a change: accepted, or rejected for a reason."""
        content: Any
        if self.dialect == "path":
            content = {"status": "ok"} if accepted else {"status": "rejected", "reason": reason}
        elif self.dialect == "verb":
            content = {"success": accepted} if accepted else {"success": False, "detail": reason}
        elif self.dialect == "dotted":
            content = "OK" if accepted else f"NOT EXECUTED: {reason}"
        elif self.dialect == "resource":
            content = {"applied": accepted} if accepted else {"applied": False, "because": reason}
        else:
            content = {"code": 0} if accepted else {"code": 409, "message": reason}
        # Half of the cockpits report a refusal in the body only, as many real interfaces do.
        flagged = not accepted and self.dice.chance(0.5, "refusals are errors")
        return ToolOutput(name=call.name, call_id=call.call_id, content=content, is_error=flagged)

    def place(self, kind: str, right: bool, *name: object) -> str:
        """Where a look-up looks: the place in question, or another one."""
        places: list[str] = self.names["places"][kind]
        return places[0] if right else self.dice.choice(places[1:], "place", *name)
