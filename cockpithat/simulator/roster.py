"""The casts: which agent plays which part, and how its name is written in this cockpit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from cockpithat.contract.events import AgentInfo
from cockpithat.resources import read_resource
from cockpithat.simulator.dice import Dice

DRIVER = "driver"
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@cache
def _casts() -> dict[str, Any]:
    casts: dict[str, Any] = yaml.safe_load(read_resource("data/simulator/rosters.yaml"))
    return casts


def _spelt(name: str, style: str) -> str:
    words = _WORDS.findall(name)
    if style == "snake":
        return "_".join(word.lower() for word in words)
    if style == "spaced":
        return " ".join(words)
    if style == "camel":
        return "".join(word[0].upper() + word[1:] for word in words)
    return name


@dataclass(frozen=True)
class Cast:
    """The agents of one session."""

    parts: Mapping[str, str]
    agents: tuple[AgentInfo, ...]

    def agent(self, part: str) -> str:
        """The agent that plays a part. Raises ``KeyError`` for a part nobody plays."""
        return self.parts[part]


def cast(roster: str, dice: Dice) -> Cast:
    """The cast of a session: ``functional`` (appendix A.1) or ``specialist`` (the prompts')."""
    raw = _casts()[roster]
    style = dice.weighted(("plain", "camel", "snake", "spaced"), (6, 2, 1, 1), "spelling")
    version = f"{dice.integer(1, 3, 'major')}.{dice.integer(0, 9, 'minor')}"
    driver = dice.choice(("Driver", "driver", "User"), "driver name")
    names = {agent: _spelt(agent, style) for agent in raw["agents"]}
    parts = {part: names[agent] for part, agent in raw["parts"].items()}
    agents = [
        AgentInfo(name=names[agent], role=role, version=version) for agent, role in raw["agents"].items()
    ]
    return Cast(
        parts={**parts, DRIVER: driver},
        agents=(*agents, AgentInfo(name=driver, role="the person at the wheel")),
    )
