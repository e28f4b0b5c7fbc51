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
    """All templates of one language: ``acts`` for everybody, ``families`` for what a family is about.

    The unseen families have their own, and their cockpits word the acts of the main story in their own way.
    """

    def __init__(self, language: str, unseen: bool = False) -> None:
        raw = yaml.safe_load(read_resource(f"data/simulator/text/{language}.yaml"))
        if unseen:
            own = yaml.safe_load(read_resource(f"data/simulator/text/unseen_{language}.yaml"))
            raw = {**raw, **own, "acts": {**raw["acts"], **own["acts"]}}
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
def pack(language: str, unseen: bool = False) -> Pack:
    """The templates of a language, or those of the unseen families.

    Raises ``FileNotFoundError`` for a language that does not ship.
    """
    return Pack(language, unseen)
