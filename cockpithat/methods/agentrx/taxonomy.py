"""AgentRx's ten categories, and which of our eight each one is.

Ours are from CockpitHAT and have no place for failures that no agent made. What has no counterpart is mapped
to the nearest by who could have prevented it; ``docs/methods/agentrx.md`` gives the reasons.
"""

from __future__ import annotations

from enum import StrEnum

from cockpithat.contract.base import Category


class RxCategory(StrEnum):
    """The ten, in AgentRx's order."""

    ADHERENCE = "instruction_plan_adherence_failure"
    INVENTION = "invention_of_new_information"
    INVALID_INVOCATION = "invalid_invocation"
    MISINTERPRETATION = "misinterpretation_of_tool_output"
    MISALIGNMENT = "intent_plan_misalignment"
    UNDERSPECIFIED = "underspecified_user_intent"
    NOT_SUPPORTED = "intent_not_supported"
    GUARDRAILS = "guardrails_triggered"
    SYSTEM = "system_failure"
    INCONCLUSIVE = "inconclusive"


CHECKLIST: dict[RxCategory, str] = {
    RxCategory.ADHERENCE: "the goal was understood and all that was needed was known, yet a step of plan, "
    "instruction or policy was skipped, reordered or added",
    RxCategory.INVENTION: "a claim or value that decided something stands in nothing seen up to there",
    RxCategory.INVALID_INVOCATION: "a call was refused for its form: missing, unknown or ill-typed "
    "arguments, bad syntax; not for a network or access reason",
    RxCategory.MISINTERPRETATION: "a tool's or another agent's output was there and what was made of it "
    "contradicts it, leaves a vital part out or miscalculates",
    RxCategory.MISALIGNMENT: "the plan serves another goal or breaks a constraint, because the intent was "
    "misread although it was clear",
    RxCategory.UNDERSPECIFIED: "a piece of information was missing everywhere, and the agent went on without "
    "it or did not ask",
    RxCategory.NOT_SUPPORTED: "no available tool or capability can do what was asked",
    RxCategory.GUARDRAILS: "a policy, login, paywall, captcha or access rule blocked a plan that was sound",
    RxCategory.SYSTEM: "a tool could not be reached: time-out, refused connection, service down",
    RxCategory.INCONCLUSIVE: "none of these; use sparingly",
}

_OURS: dict[RxCategory, Category | None] = {
    RxCategory.ADHERENCE: Category.PLAN_ADHERENCE_FAILURE,
    RxCategory.INVENTION: Category.INVENTION_OF_NEW_INFORMATION,
    RxCategory.INVALID_INVOCATION: Category.PLAN_ADHERENCE_FAILURE,
    RxCategory.MISINTERPRETATION: Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
    RxCategory.MISALIGNMENT: Category.PLANNING_FAILURE,
    RxCategory.UNDERSPECIFIED: Category.DRIVER_AGENT_INTERACTION,
    RxCategory.NOT_SUPPORTED: Category.PLANNING_FAILURE,
    RxCategory.GUARDRAILS: Category.PLANNING_FAILURE,
    RxCategory.SYSTEM: Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
    RxCategory.INCONCLUSIVE: None,
}

_SPELLINGS = {
    "instruction_adherence_failure": RxCategory.ADHERENCE,
    "handoff_failure": RxCategory.MISINTERPRETATION,
}


def to_ours(category: RxCategory) -> Category | None:
    """The nearest of the eight; ``None`` for inconclusive."""
    return _OURS[category]


def read_category(name: str) -> RxCategory | None:
    """A category by any spelling found in AgentRx's data and code, or ``None``."""
    head = name.split("(")[0].casefold()
    key = "_".join("".join(c if c.isalnum() else " " for c in head).split())
    for category in RxCategory:
        if key == category.value or key.startswith(f"{category.value}_"):
            return category
    return _SPELLINGS.get(key)


def checklist_text() -> str:
    """All ten with their checks, a line each."""
    return "\n".join(f"{category.value}: {check}" for category, check in CHECKLIST.items())
