"""The eight injection primitives and their variants.

A variant strikes one decision of one agent and changes what happens there: a tool is not called, another
place is looked at, a plan lacks an item, another action is carried out. What follows is the other agents'
ordinary behaviour. ``shapes`` says in which stories the decision exists, ``flow`` what the conversation
must contain for it, ``story`` what the driver does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cockpithat.contract.base import Category
from cockpithat.simulator.families import Family, Shape
from cockpithat.simulator.scenario import Fault

_ALL = frozenset(Shape)
_ACTING = frozenset({Shape.REQUEST, Shape.SECURE, Shape.VALUE})
_PROTECTING = frozenset({Shape.SECURE, Shape.EVENT})


@dataclass(frozen=True)
class Variant:
    """One way in which a primitive strikes."""

    category: Category
    name: str
    point: str
    shapes: frozenset[Shape] = _ALL
    flow: Mapping[str, bool] = field(default_factory=dict)
    story: str = "plain"
    channel: str = "c"  # where the decisive evidence lies

    @property
    def fault(self) -> Fault:
        """As it stands in a scenario."""
        return Fault(self.category, self.name, self.point)

    def fits(self, family: Family) -> bool:
        """Whether the decision exists in a family's story."""
        if family.shape not in self.shapes:
            return False
        return self.story != "withdraw" or family.withdrawable


_C = Category
_CHECKED = {"check": True, "memory": False, "late_plan": False, "observe_only": False}
_REMEMBERED = {"memory": True, "insist": False}
_GATED = {"insist": True, "review": True, "check": True, "memory": False}

VARIANTS: tuple[Variant, ...] = (
    Variant(_C.INVENTION_OF_NEW_INFORMATION, "unseen_reading", "invent", _ALL, _CHECKED),
    Variant(
        _C.INVENTION_OF_NEW_INFORMATION, "claimed_action", "claim", _PROTECTING,
        {**_CHECKED, "verify": False, "stiff": False}, channel="sigma",
    ),
    Variant(
        _C.INVENTION_OF_NEW_INFORMATION, "claimed_consent", "consent", _ACTING,
        {**_CHECKED, "dispatch": True, "insist": False},
    ),
    Variant(
        _C.PLANNING_FAILURE, "missing_item", "plan", _ALL,
        {"plan": True, "late_plan": False, "memory": False, "insist": False},
    ),
    Variant(
        _C.PLANNING_FAILURE, "wrong_order", "order", _ACTING,
        {"plan": True, "late_plan": False, "memory": False, "insist": False},
    ),
    Variant(
        _C.PLANNING_FAILURE, "against_finding", "late_plan", _ALL,
        {"check": True, "plan": True, "late_plan": True, "memory": False, "insist": False, "review": False},
    ),
    Variant(
        _C.PLAN_ADHERENCE_FAILURE, "skipped_check", "skip", _ACTING,
        {"plan": True, "late_plan": False, "dispatch": True, "memory": False, "insist": False, "check": True},
    ),
    Variant(
        _C.PLAN_ADHERENCE_FAILURE, "early_action", "early", _ACTING,
        {"plan": True, "late_plan": False, "memory": False, "insist": False, "check": True},
    ),
    Variant(
        _C.PLAN_ADHERENCE_FAILURE, "other_action", "adhere", _ALL,
        {"plan": True, "dispatch": True, "insist": False, "verify": False, "memory": False, "stiff": False},
        channel="sigma",
    ),
    Variant(_C.MISINTERPRETATION_OF_TOOL_OUTPUT, "misread_reading", "read", _ALL, _CHECKED),
    Variant(
        _C.MISINTERPRETATION_OF_TOOL_OUTPUT, "failure_read_as_done", "status", _PROTECTING,
        {**_CHECKED, "stiff": True, "verify": False, "insist": False}, channel="sigma",
    ),
    Variant(
        _C.MISINTERPRETATION_OF_TOOL_OUTPUT, "misread_by_safety", "safety_read", _ALL,
        {**_GATED, "safety_looks": True},
    ),
    Variant(_C.DRIVER_AGENT_INTERACTION, "wrong_referent", "intent", _ACTING, {}, "ambiguous", "sigma"),
    Variant(_C.DRIVER_AGENT_INTERACTION, "wrong_speaker", "intent", _ALL, {}, "speaker", "e"),
    Variant(
        _C.DRIVER_AGENT_INTERACTION, "missed_withdrawal", "withdrawal", _ACTING,
        {"insist": False}, "withdraw",
    ),
    Variant(
        _C.DRIVER_AGENT_INTERACTION, "stop_ignored", "stop", _ACTING, {"insist": False}, "withdraw", "sigma"
    ),
    Variant(
        _C.DRIVER_AGENT_INTERACTION, "aside_taken_as_order", "aside", frozenset({Shape.EVENT}),
        {**_CHECKED, "dispatch": True, "insist": False}, "aside",
    ),
    Variant(_C.ENVIRONMENTAL_MISGROUNDING, "wrong_place", "ground", _ALL, _CHECKED, channel="e"),
    Variant(_C.ENVIRONMENTAL_MISGROUNDING, "stale_frame", "ground", _ALL, _CHECKED, channel="e"),
    Variant(
        _C.ENVIRONMENTAL_MISGROUNDING, "false_scene", "scene", _ALL,
        {"check": True, "memory": False, "late_plan": False, "observe_only": True}, channel="e",
    ),
    Variant(
        _C.SAFETY_SAFEGUARD_FAILURE, "blind_approval", "approve", _ALL,
        {**_GATED, "safety_looks": False}, channel="sigma",
    ),
    Variant(
        _C.SAFETY_SAFEGUARD_FAILURE, "approval_against_reading", "approve", _ALL,
        {**_GATED, "safety_looks": True}, channel="sigma",
    ),
    Variant(_C.SAFETY_SAFEGUARD_FAILURE, "bypass", "bypass", _ACTING, _GATED, channel="sigma"),
    Variant(_C.SAFETY_SAFEGUARD_FAILURE, "override_ignored", "override", _ACTING, _GATED, channel="sigma"),
    Variant(_C.CROSS_DOMAIN_CONTAMINATION, "other_person", "recall", _ALL, _REMEMBERED, channel="m"),
    Variant(_C.CROSS_DOMAIN_CONTAMINATION, "other_domain", "recall", _ALL, _REMEMBERED, channel="m"),
    Variant(_C.CROSS_DOMAIN_CONTAMINATION, "other_session", "recall", _ALL, _REMEMBERED, channel="m"),
)  # fmt: skip


def variants_of(category: Category) -> tuple[Variant, ...]:
    """All variants of one primitive."""
    return tuple(variant for variant in VARIANTS if variant.category == category)


BY_VARIANT: dict[tuple[Category, str], Variant] = {(v.category, v.name): v for v in VARIANTS}
