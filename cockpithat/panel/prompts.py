"""Prompt files: one a role in ``prompts/``, with a version in the front matter and ``{{slots}}``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import yaml

from cockpithat.contract.base import Category
from cockpithat.resources import read_resource

_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_SLOT = re.compile(r"\{\{(\w+)\}\}")

CATEGORY_MEANING: dict[Category, str] = {
    Category.INVENTION_OF_NEW_INFORMATION: "states as fact what nothing in the record supports",
    Category.PLANNING_FAILURE: "the plan is wrong, incomplete or in the wrong order",
    Category.PLAN_ADHERENCE_FAILURE: "a sound plan or instruction was not carried out as given",
    Category.MISINTERPRETATION_OF_TOOL_OUTPUT: "a tool's output was misread, cut or ignored",
    Category.DRIVER_AGENT_INTERACTION: "the person was misunderstood, distracted or not asked",
    Category.ENVIRONMENTAL_MISGROUNDING: "acts against road, weather, light or scene",
    Category.SAFETY_SAFEGUARD_FAILURE: "a safety check was missing, failed or was overruled",
    Category.CROSS_DOMAIN_CONTAMINATION: "memory or settings of another person, trip or domain leaked in",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt file: its name, version and text."""

    name: str
    version: str
    text: str

    def fill(self, **values: str) -> str:
        """The text with every slot filled. Raises ``KeyError`` for a slot without a value.

        Slots are filled in one pass, so a value that looks like a slot stays as it is.
        """
        return _SLOT.sub(lambda match: values[match[1]], self.text)


@cache
def prompt(name: str) -> Prompt:
    """The prompt of that name. Raises ``FileNotFoundError``, or ``ValueError`` for a broken front matter."""
    content = read_resource(f"prompts/{name}.md")
    front = _FRONT.match(content)
    head = yaml.safe_load(front[1]) if front else None
    if front is None or not isinstance(head, dict) or head.get("name") != name or "version" not in head:
        raise ValueError(f"prompts/{name}.md needs a front matter with its name and a version")
    return Prompt(name, str(head["version"]), content[front.end() :].strip())


def categories_text() -> str:
    """The eight categories with their meanings, a line each."""
    return "\n".join(f"{category.value}: {meaning}" for category, meaning in CATEGORY_MEANING.items())


def versions(names: list[str]) -> dict[str, str]:
    """Versions of prompts by name, for a report's provenance."""
    return {name: prompt(name).version for name in names}
