"""The search: prior, hierarchy, suspects, dependencies, two narrowing rounds, tests, local re-search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from cockpithat.contract.reports import Hypothesis, RootCause
from cockpithat.llm.errors import LlmError
from cockpithat.methods.falat.space import Hierarchy, Prior, Space, Suspect, consolidate, windows
from cockpithat.methods.falat.transitions import Flow, Transition, described, flow
from cockpithat.methods.falat.verdict import (
    Assessment,
    Basis,
    Challenge,
    Chosen,
    close_calls,
    earliest_minimal,
    neighbours,
    settle,
)
from cockpithat.methods.options import ModelOptions
from cockpithat.panel.answers import UnusableAnswerError

NAME = "falat"


class FalatOptions(ModelOptions):
    """Bounds and ablations; the source states none of the numbers, so all are reconstructed."""

    hierarchy: bool = Field(True, description="Ablation: the three-level hierarchy")
    prior: bool = Field(True, description="Ablation: the external task prior")
    transitions: bool = Field(True, description="Ablation: typed dependencies and pruning by them")
    window: int = Field(12, ge=1, description="Most steps of one window")
    window_tokens: int = Field(4_000, ge=200, description="Raw evidence of one window (approx-1)")
    overview_tokens: int = Field(6_000, ge=200, description="Compressed trajectory of one call (approx-1)")
    evidence_tokens: int = Field(5_000, ge=200, description="Raw evidence around candidates in one call")
    suspects: int = Field(10, ge=1, le=40, description="Candidates kept across windows")
    first_round: int = Field(5, ge=1, description="Candidates after the first narrowing round")
    second_round: int = Field(3, ge=1, description="Candidates after the second")
    radius: int = Field(2, ge=1, description="Steps on each side that local re-search compares")


class Judge(Protocol):
    """Who answers the questions of the search. May raise ``LlmError`` or ``UnusableAnswerError``."""

    async def prior(self) -> Prior | None:
        """The task prior; the judge must not look at a step for it."""
        ...

    async def hierarchy(self, space: Space) -> Hierarchy:
        """The two upper levels."""
        ...

    async def suspects(self, space: Space) -> list[Suspect]:
        """Suspects of all windows, each window on its own; notes say which had no answer."""
        ...

    async def transitions(self, space: Space, suspects: Sequence[Suspect]) -> list[Transition]:
        """Typed dependencies among suspects and to the final output (number ``space.n``)."""
        ...

    async def verify(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        """First round: how sure it is, from raw evidence, that each introduces a deviation with effect."""
        ...

    async def narrow(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        """Second round: how well each explains the failure against prior, dependencies and overview."""
        ...

    async def test(self, space: Space, suspects: Sequence[Suspect]) -> Assessment:
        """The three tests."""
        ...

    async def challenge(
        self, space: Space, predicted: int, near: Sequence[int], together: Sequence[int]
    ) -> list[Challenge]:
        """Local re-search around a predicted step; ``together`` are the other steps of its set, corrected."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the search found. ``challenges`` is the comparison around each chosen step."""

    chosen: Chosen
    causes: tuple[Challenge, ...]  # ascending by step, at least one
    revised: bool  # local re-search replaced a prediction
    scores: dict[int, float]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]


async def search(
    judge: Judge, n: int, options: FalatOptions, fallback: Callable[[int], Challenge]
) -> Outcome:
    """Run all stages on ``n`` steps.

    The stage that finds suspects must answer; every other one may fail and is then passed over with a note.
    ``fallback`` makes the verdict on a step that local re-search could not judge. Raises what the suspects'
    stage raises, and what the tests raise when local re-search fails as well.
    """
    space = Space(n, windows(n, options.window))
    if options.prior:
        try:
            space.prior = await judge.prior()
        except (LlmError, UnusableAnswerError) as error:
            space.notes.append(f"no task prior ({error})")
    if options.hierarchy:
        try:
            space.hierarchy = await judge.hierarchy(space)
        except (LlmError, UnusableAnswerError) as error:
            space.notes.append(f"no hierarchy ({error})")
    suspects = consolidate(await judge.suspects(space), options.suspects)
    if not suspects:
        raise UnusableAnswerError(["no window has a suspect"])
    scores = {s.step: 0.4 * s.score for s in suspects}
    if options.transitions:
        suspects = await _pruned(judge, space, suspects)
    first = await _round(judge.verify, "first narrowing round", space, suspects, options.first_round)
    second = await _round(judge.narrow, "second narrowing round", space, first[0], options.second_round)
    for kept, values, base in ((first[0], first[1], 0.4), (second[0], second[1], 0.6)):
        scores |= {s.step: base + 0.2 * values[s.step] for s in kept}
    chosen, failed = await _tested(judge, space, second)
    causes, revised, reasons = await _researched(
        judge, space, chosen, failed, options.radius, [s.step for s in second[0]], fallback, scores
    )
    return Outcome(chosen, causes, revised, scores, tuple(space.notes), reasons)


async def _pruned(judge: Judge, space: Space, suspects: list[Suspect]) -> list[Suspect]:
    try:
        transitions = await judge.transitions(space, suspects)
    except (LlmError, UnusableAnswerError) as error:
        space.notes.append(f"no typed dependencies ({error})")
        return suspects
    result: Flow = flow([s.step for s in suspects], transitions, space.n)
    space.transitions = described(transitions, result, space.n)
    return [s for s in suspects if s.step in result.kept]


_Narrowed = tuple[list[Suspect], dict[int, float]]


async def _round(
    ask: Callable[[Space, Sequence[Suspect]], Awaitable[Mapping[int, float]]],
    name: str,
    space: Space,
    suspects: list[Suspect],
    limit: int,
) -> _Narrowed:
    """The best ``limit`` suspects by the judge's values; by their own scores where it has none."""
    values = {s.step: s.score for s in suspects}
    if len(suspects) > 1:
        try:
            given = await ask(space, suspects)
            values = {s.step: given.get(s.step, 0.0) for s in suspects}
        except (LlmError, UnusableAnswerError) as error:
            space.notes.append(f"no {name} ({error})")
    kept = sorted(suspects, key=lambda s: (-values[s.step], s.step))[:limit]
    return kept, values


async def _tested(judge: Judge, space: Space, narrowed: _Narrowed) -> tuple[Chosen, Exception | None]:
    suspects, values = narrowed
    among = {s.step: values[s.step] for s in suspects}
    try:
        return earliest_minimal(await judge.test(space, suspects), among), None
    except (LlmError, UnusableAnswerError) as error:
        space.notes.append(f"no tests ({error})")
        return earliest_minimal(Assessment(()), among), error


async def _researched(
    judge: Judge,
    space: Space,
    chosen: Chosen,
    failed: Exception | None,
    radius: int,
    others: Sequence[int],
    fallback: Callable[[int], Challenge],
    scores: dict[int, float],
) -> tuple[tuple[Challenge, ...], bool, tuple[str, ...]]:
    causes: dict[int, Challenge] = {}
    reasons: list[str] = []
    revised = False
    for predicted in chosen.steps:
        verdict: Challenge | None = None
        try:
            near = neighbours(predicted, space.n, radius, others)
            together = [step for step in chosen.steps if step != predicted]
            judged = await judge.challenge(space, predicted, near, together)
            verdict = settle(predicted, judged)
            for one in judged:
                scores[one.step] = max(scores.get(one.step, 0.0), 0.8 * one.suspicion)
            if close_calls(judged):
                reasons.append(f"steps near {predicted} are hard to tell apart")
        except (LlmError, UnusableAnswerError) as error:
            if failed is not None:
                raise failed from error
            space.notes.append(f"no local re-search around step {predicted} ({error})")
        verdict = verdict or fallback(predicted)
        revised = revised or verdict.step != predicted
        if not verdict.recovers and chosen.basis != Basis.JOINT:
            reasons.append(f"correcting step {verdict.step} alone is not seen to recover the outcome")
        causes.setdefault(verdict.step, verdict)
    for step in causes:
        scores[step] = 1.0
    if chosen.basis == Basis.RANKED:
        reasons.append(chosen.basis.value)
    return tuple(causes[step] for step in sorted(causes)), revised, tuple(reasons)


def hypothesis_of(outcome: Outcome) -> Hypothesis:
    """The vote for the earliest root cause."""
    cause = outcome.causes[0]
    how = "replaced the prediction" if outcome.revised else "confirmed the prediction"
    return Hypothesis(
        analyst=NAME,
        step=cause.step,
        agent=cause.agent,
        category=cause.category,
        asil=cause.asil,
        confidence=cause.suspicion,
        rationale=f"{outcome.chosen.basis.value}; local re-search {how}. {cause.argument}".strip(),
        evidence=cause.evidence,
    )


def further_causes(outcome: Outcome) -> tuple[RootCause, ...]:
    """The rest of the minimal set."""
    return tuple(
        RootCause(
            step=cause.step,
            agent=cause.agent,
            category=cause.category,
            confidence=round(cause.suspicion, 4),
            evidence=cause.evidence,
        )
        for cause in outcome.causes[1:]
    )
