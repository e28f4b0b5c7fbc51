"""Scenarios with a fault, as the builder makes them."""

from __future__ import annotations

from dataclasses import replace

from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import Family, Shape
from cockpithat.simulator.faults import Variant
from cockpithat.simulator.run import run
from cockpithat.simulator.scenario import Flow, Scenario, Side


def with_fault(family: Family, variant: Variant, *, last_side: str = "music", number: int = 0) -> Scenario:
    """A scenario with a variant in a family, its dangers timed as the builder times them."""
    dice = Dice("replay", family.name, variant.name, number)
    scenario = Scenario(
        seed=f"{family.name}/{variant.name}/{number}",
        family=family.name,
        situation=family.situation(dice),
        story=variant.story,
        calm=variant.story == "withdraw",
        fault=variant.fault,
        language="en",
        source="adapted_style",
        roster=dice.choice(("functional", "specialist"), "roster"),
        flow=replace(Flow(late_notice=True, late_fix=True), **variant.flow),
        sides=(Side(0, "mirror"), Side(3, "refused"), Side(5, last_side)),
    )
    if variant.story == "withdraw":
        asked = next(step.ts for step in run(scenario).steps if step.act == "family.withdraw")
        scenario = replace(scenario, change_ms=asked - 200)
    if family.shape is Shape.EVENT:
        ends = [run(scenario).end_ms, run(replace(scenario, fault=None)).end_ms]
        scenario = replace(scenario, arrival_ms=max(ends) + 800)
    return scenario
