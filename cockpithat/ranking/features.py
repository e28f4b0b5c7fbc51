"""All features of a trace's steps and agents. Every feature has a name that a person can read."""

from __future__ import annotations

from dataclasses import dataclass

from cockpithat.analysis.examination import Examination
from cockpithat.ranking.deeds import deed_features
from cockpithat.ranking.evidence import evidence_features
from cockpithat.ranking.texts import Features, text_features

DIALOGUE, COCKPIT = "dialogue", "cockpit"


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """Features by step for the steps that can be decisive: those of agents, in order."""

    domain: str  # which weights apply: with words only, or with embodied channels
    steps: tuple[int, ...]
    agents: tuple[str, ...]  # key of the agent of each step
    rows: tuple[Features, ...]


def step_features(examination: Examination) -> StepFeatures:
    """Features of every step of an agent. Linear in the trace."""
    view = examination.view
    steps = [i for i in view.actors if not _is_answer(examination, i)] or view.actors
    parts = (
        text_features(view, steps),
        deed_features(examination, steps),
        evidence_features(examination, steps),
    )
    rows = tuple({name: value for part in parts for name, value in part[i].items()} for i in steps)
    return StepFeatures(
        domain=COCKPIT if view.embodied else DIALOGUE,
        steps=tuple(steps),
        agents=tuple(view.keys[i] for i in steps),
        rows=rows,
    )


def _is_answer(examination: Examination, index: int) -> bool:
    """A tool's answer under its caller's name is no decision of the agent."""
    step = examination.view.steps[index]
    return step.mode == "tool_output" and not step.text.strip()
