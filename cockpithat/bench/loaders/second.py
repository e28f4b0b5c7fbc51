"""AgentRx's labels as targets: the labels of its own runs, and a second opinion on Who&When's."""

from __future__ import annotations

from pathlib import Path

from cockpithat.bench.samples import Target
from cockpithat.contract.base import Category
from cockpithat.labels import RootCauseLabel, read_agentrx_labels

# AgentRx's taxonomy has ten categories. These five have a counterpart among the eight of the contract; the
# others (invalid invocation, underspecified intent, ...) are kept as text and not scored.
_CATEGORIES = {
    "inventionofnewinformation": Category.INVENTION_OF_NEW_INFORMATION,
    "misinterpretationoftooloutput": Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
    "instructionplanadherencefailure": Category.PLAN_ADHERENCE_FAILURE,
    "instructionadherencefailure": Category.PLAN_ADHERENCE_FAILURE,
    "intentplanmisalignment": Category.PLANNING_FAILURE,
}


def category_of(text: str) -> Category | None:
    """The contract's category for AgentRx's, where there is one."""
    return _CATEGORIES.get("".join(c for c in text.casefold() if c.isalpha()))


def target_of(label: RootCauseLabel) -> Target:
    """A label as the scorer takes it."""
    return Target(
        agent=label.agent,
        step=label.step,
        agent_text=label.agent,
        # Reports count from 0, so the script's substring rule is held against the same number.
        step_text=str(label.step),
        category=category_of(label.category),
        category_text=label.category,
        failures=label.failures,
    )


def second_labels(path: Path) -> dict[str, Target]:
    """Targets of an AgentRx label file by trajectory id."""
    return {label.trajectory_id: target_of(label) for label in read_agentrx_labels(path)}
