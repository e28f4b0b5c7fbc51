"""What agents and drivers say: templates by language in ``data/simulator/text``, chosen by chance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from cockpithat.resources import read_resource
from cockpithat.simulator.dice import Dice

LANGUAGES = ("en", "de", "zh")
LOCALES = {"en": ("en-GB", "en-US"), "de": ("de-DE", "de-AT"), "zh": ("zh-CN",)}
MARKETS = {"en": ("UK", "US", "EU"), "de": ("EU",), "zh": ("CN",)}


class _Slots(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        raise KeyError(f"a template asks for {{{key}}}, which nobody gave")


class Pack:
    """All templates of one language: ``acts`` for everybody, ``families`` for what a family is about."""

    def __init__(self, language: str) -> None:
        raw = yaml.safe_load(read_resource(f"data/simulator/text/{language}.yaml"))
        self.acts: Mapping[str, list[str]] = raw["acts"]
        self.families: Mapping[str, Mapping[str, list[str]]] = raw["families"]
        self.names: list[str] = raw["names"]
        self.goals: list[str] = raw["goals"]

    def phrase(self, family: str, kind: str, dice: Dice, *name: object) -> str:
        """One wording of what a family is about (``ask``, ``alt``, ``good``, ``bad`` ...)."""
        return dice.choice(self.families[family][kind], "phrase", family, kind, *name)

    def line(self, act: str, slots: Mapping[str, Any], dice: Dice, *name: object) -> str:
        """One wording of a dialogue act, its slots filled."""
        template = dice.choice(self.acts[act], "line", act, *name)
        return template.format_map(_Slots(slots))


@cache
def pack(language: str) -> Pack:
    """The templates of a language. Raises ``FileNotFoundError`` for one that does not ship."""
    return Pack(language)
