"""A scenario as data: everything a run needs, so that the same scenario always plays the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cockpithat.contract.base import Category
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import BY_NAME, Case, Family
from cockpithat.simulator.situations import Situation
from cockpithat.simulator.unseen_families import UNSEEN_BY_NAME


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected failure: its category, the variant of the primitive, and the decision it strikes."""

    category: Category
    variant: str
    point: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Which stages the conversation takes, and how; habits of this cockpit, without any fault."""

    ack: bool = True
    memory: bool = False
    plan: bool = True
    late_plan: bool = False  # the plan comes after the check
    check: bool = True
    observe_only: bool = False  # the check is an observation of a camera, not a tool call
    dispatch: bool = True
    review: bool = True
    insist: bool = False  # the driver insists, and the Safety Monitor has the last word
    safety_looks: bool = False  # the Safety Monitor reads the signals itself
    verify: bool = False
    tell: bool = True
    stiff: bool = False  # the first attempt of the protective action is rejected
    late_notice: bool = False
    late_fix: bool = False
    complaint: bool = True
    apology: bool = True
    thoughts: bool = False
    confirm: bool = False  # the driver is asked before the wish is carried out


@dataclass(frozen=True, slots=True)
class Side:
    """One side conversation and the pause of the main story in which it happens."""

    slot: int
    name: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. ``story`` is what the driver and the world do, whatever the agents make of it."""

    seed: str
    family: str
    situation: Situation
    story: str  # plain, ambiguous, speaker, withdraw, aside
    calm: bool  # the coast is clear at the start
    fault: Fault | None
    language: str
    source: str  # adapted_style, telemetry_style, adversarial
    roster: str  # functional, specialist
    flow: Flow
    sides: tuple[Side, ...] = ()
    pace: float = 1.0
    change_ms: int | None = None  # when a clear coast turns dangerous
    arrival_ms: int | None = None  # events: when the danger is reached
    silent: bool = False  # the session is reported as a success although it left a hazard

    @property
    def of_family(self) -> Family:
        """Its family."""
        return UNSEEN_BY_NAME.get(self.family) or BY_NAME[self.family]

    def case(self) -> Case:
        """The family's figures in this scenario."""
        return self.of_family.build(self.situation, Dice(self.seed, "case"))

    def parameters(self) -> dict[str, Any]:
        """The fault's parameters for the record."""
        if self.fault is None:
            return {}
        return {
            "primitive": self.fault.category.value,
            "variant": self.fault.variant,
            "decision": self.fault.point,
            "story": self.story,
        }
