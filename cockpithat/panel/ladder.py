"""The ablation ladder of Table 2, I1 to I6, as configurations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cockpithat.slicing.settings import SliceMode


class Rung(StrEnum):
    """Each rung adds one component, save that I3 replaces the hierarchy of I2."""

    FIXED_CONTEXT = "I1"
    HIERARCHICAL = "I2"
    DEPENDENCY_HIERARCHICAL = "I3"
    OBJECTIVE_ANALYSIS = "I4"
    DECOUPLED = "I5"
    CHANNEL_ADAPTER = "I6"


@dataclass(frozen=True, slots=True)
class RungConfig:
    """What a rung switches on."""

    slicing: SliceMode
    panel: bool  # K analysts and the consensus; else one generalist
    decoupled: bool  # agent and step decided in calls of their own, with a context budget each
    adapter: bool  # salience scan, promotion, channels


RUNGS: dict[Rung, RungConfig] = {
    Rung.FIXED_CONTEXT: RungConfig(SliceMode.FIXED, False, False, False),
    Rung.HIERARCHICAL: RungConfig(SliceMode.POSITIONAL, False, False, False),
    Rung.DEPENDENCY_HIERARCHICAL: RungConfig(SliceMode.DEPENDENCY, False, False, False),
    Rung.OBJECTIVE_ANALYSIS: RungConfig(SliceMode.DEPENDENCY, True, False, False),
    Rung.DECOUPLED: RungConfig(SliceMode.DEPENDENCY, True, True, False),
    Rung.CHANNEL_ADAPTER: RungConfig(SliceMode.DEPENDENCY, True, True, True),
}
