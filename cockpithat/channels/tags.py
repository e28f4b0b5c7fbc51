"""Salience tags, the channels each one calls for (equation 2), and what the scan returns (equation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from cockpithat.contract.base import Category
from cockpithat.contract.trace import Trace

Channel = Literal["e", "sigma", "m"]
Priority = Literal["high", "medium", "low"]


class Tag(StrEnum):
    """The four tags of section 3.3, one for each embodied failure class."""

    INTERACTION_RISK = "interaction_risk"
    ENV_MISGROUNDING = "env_misgrounding"
    SAFETY_VIOLATION = "safety_violation"
    CROSS_DOMAIN = "cross_domain"


# Equation 2, the map Pi from a tag to the channels that are attached to the step.
PI: MappingProxyType[Tag, tuple[Channel, ...]] = MappingProxyType(
    {
        Tag.INTERACTION_RISK: ("sigma",),
        Tag.ENV_MISGROUNDING: ("e",),
        Tag.SAFETY_VIOLATION: ("sigma", "e"),
        Tag.CROSS_DOMAIN: ("m",),
    }
)

_TAG_OF_CATEGORY = MappingProxyType(
    {
        Category.DRIVER_AGENT_INTERACTION: Tag.INTERACTION_RISK,
        Category.ENVIRONMENTAL_MISGROUNDING: Tag.ENV_MISGROUNDING,
        Category.SAFETY_SAFEGUARD_FAILURE: Tag.SAFETY_VIOLATION,
        Category.CROSS_DOMAIN_CONTAMINATION: Tag.CROSS_DOMAIN,
    }
)


def tag_for(category: Category) -> Tag | None:
    """The tag of an embodied failure class; ``None`` for the four general ones."""
    return _TAG_OF_CATEGORY.get(category)


@dataclass(frozen=True, slots=True)
class Salience:
    """One flagged step, ``(i, tau_i, p_i)`` of equation 1, with what prompt 2 asks for besides.

    ``score`` is p in [0, 1]. ``strength`` is the promotion the scanner suggests, in layers; it is kept for
    the reader: section 3.3 fixes the promotion at one layer, and at the first for a safety violation.
    """

    step: int
    tag: Tag
    score: float
    priority: Priority = "medium"
    strength: int = 1
    why: str = ""


def is_embodied(trace: Trace) -> bool:
    """Whether any step carries environment, vehicle state or memory; else the adapter is bypassed."""
    return any(
        step.environment
        or step.memory
        or (step.state is not None and (step.state.before or step.state.after or step.state.changes))
        for step in trace.steps
    )
