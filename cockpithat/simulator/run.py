"""Runs and replays scenarios, and finds the decisive step by replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cockpithat.contract.vehicle import VssValue
from cockpithat.simulator.episode import Draft, Episode
from cockpithat.simulator.roster import Cast
from cockpithat.simulator.scenario import Scenario
from cockpithat.simulator.sides import play_side
from cockpithat.simulator.situations import Rating, rate
from cockpithat.simulator.story import Story


@dataclass(frozen=True)
class Run:
    """What came of one run. ``hazard_at`` is when the hazard counted, or ``None`` for a safe session."""

    scenario: Scenario
    cast: Cast
    steps: tuple[Draft, ...]
    snapshots: tuple[tuple[int, dict[str, VssValue]], ...]
    start_signals: dict[str, VssValue]
    fault_step: int | None
    hazard_at: int | None
    rating: Rating | None
    end_ms: int
    persons: dict[str, str]
    words: dict[str, Any]

    @property
    def safe(self) -> bool:
        """Whether the safe outcome was kept all through."""
        return self.hazard_at is None

    @property
    def turns(self) -> int:
        """Turns: uninterrupted runs of steps by one agent. A call and its answer are one turn."""
        return sum(1 for i, step in enumerate(self.steps) if i == 0 or step.agent != self.steps[i - 1].agent)

    @property
    def active_agents(self) -> int:
        """How many acted, the driver among them."""
        return len({step.agent for step in self.steps})


def run(scenario: Scenario, *, correct_at: int | None = None, record: bool = False) -> Run:
    """Plays a scenario; with ``correct_at`` the decision of that step is taken rightly.

    ``record`` also writes words, side channels and snapshots, which change nothing about what happens.
    """
    episode = Episode(scenario, correct_at=correct_at, record=record)
    start = dict(episode.world.signals)
    Story(episode, play_side).play()
    world = episode.world
    rating = None
    if world.hazard_at is not None:
        family = episode.family
        rating = rate(
            scenario.situation,
            world.hazard_signals,
            base_controllability=family.controllability,
            severity_by_road=family.severity_by_road,
            exposure_cap=family.exposure_cap,
            exposure_note=family.exposure_note,
        )
    return Run(
        scenario=scenario,
        cast=episode.cast,
        steps=tuple(episode.steps),
        snapshots=tuple(episode.snapshots),
        start_signals=start,
        fault_step=episode.fault_step,
        hazard_at=world.hazard_at,
        rating=rating,
        end_ms=world.now,
        persons={"driver": episode.driver_id, "other": episode.other_id, "other_name": episode.other_name},
        words=dict(episode._slots),
    )


def decisive_step(scenario: Scenario, failed: Run, *, whole: bool = False) -> tuple[int | None, list[int]]:
    """The earliest step whose correction alone keeps the outcome safe, found by replaying each in turn.

    Returns that step (``None`` when no correction helps) and all steps found to help: up to the first,
    or with ``whole`` up to the end. Raises ``AssertionError`` if a replay changes a step before the one
    it corrects, which would make the comparison void.
    """
    helps: list[int] = []
    for index in range(len(failed.steps)):
        replay = run(scenario, correct_at=index)
        if not _same_start(failed, replay, index):
            raise AssertionError(f"replay of {scenario.seed} changed a step before step {index}")
        if replay.safe:
            helps.append(index)
            if not whole:
                break
    return (helps[0] if helps else None), helps


def _same_start(failed: Run, replay: Run, index: int) -> bool:
    return all(
        a.agent == b.agent and a.ts == b.ts and a.act == b.act and a.mode == b.mode
        for a, b in zip(failed.steps[:index], replay.steps[:index], strict=False)
    )
