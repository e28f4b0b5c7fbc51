"""Strict scoring of one answer, and the Who&When script's verdict beside it."""

from __future__ import annotations

from pydantic import Field

from cockpithat.analysis.roles import agent_key
from cockpithat.bench.official import agent_right, answer_text, read_answer, step_right
from cockpithat.bench.samples import Target, _Record
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace


class Answer(_Record):
    """What a method said about one run."""

    agent: str | None = None
    step: int | None = None
    category: Category | None = None
    asil: Asil = Asil.UNRATED
    confidence: float = 0.0
    contested: bool = False
    review: bool = False
    degraded: str | None = None


class Scores(_Record):
    """Hits of one answer; ``None`` where the label says nothing. A missing answer is a miss.

    ``distance`` is in steps, ``None`` where no step was named. ``any_failure`` counts a hit on any labelled
    failure, as AgentRx's own report does.
    """

    agent: bool
    step: bool
    joint: bool
    distance: int | None = None
    official_agent: bool
    official_step: bool
    category: bool | None = None
    asil: bool | None = None
    any_failure: bool | None = None


class Chance(_Record):
    """What a uniform guess of step and, apart from it, of an agent that spoke scores on this run."""

    agent: float = Field(ge=0, le=1)
    step: float = Field(ge=0, le=1)
    joint: float = Field(ge=0, le=1)
    official_agent: float = Field(ge=0, le=1)
    official_step: float = Field(ge=0, le=1)


def answer_of(report: Report) -> Answer:
    """The parts of a report that are scored."""
    return Answer(
        agent=report.agent,
        step=report.step,
        category=report.category,
        asil=report.asil,
        confidence=report.confidence,
        contested=report.contested,
        review=report.review.required,
        degraded=report.degraded,
    )


def same_agent(predicted: str | None, gold: str) -> bool:
    """Equal names, blind to case, spaces and punctuation: ``Websurfer`` is ``WebSurfer``."""
    return predicted is not None and agent_key(predicted) == agent_key(gold)


def score(answer: Answer | None, target: Target) -> Scores:
    """Strict hits and the script's. ``None`` is a run that the method failed on."""
    given = answer or Answer()
    agent = same_agent(given.agent, target.agent)
    step = given.step == target.step
    official = read_answer(answer_text(given.agent, given.step))
    return Scores(
        agent=agent,
        step=step,
        joint=agent and step,
        distance=None if given.step is None else abs(given.step - target.step),
        official_agent=agent_right(official, target.agent_text),
        official_step=step_right(official, target.step_text),
        category=None if target.category is None else given.category == target.category,
        asil=None if target.asil is None else given.asil == target.asil,
        any_failure=given.step in target.failures if target.failures else None,
    )


def chance(trace: Trace, target: Target) -> Chance:
    """Exact expectation of a uniform guess; the official one goes through the script's parse rules."""
    speakers = {agent_key(step.agent): step.agent for step in trace.steps}
    if not speakers:
        return Chance(agent=0, step=0, joint=0, official_agent=0, official_step=0)
    read = [read_answer(answer_text(name, 0)) for name in speakers.values()]
    n = len(trace.steps)
    agent = (agent_key(target.agent) in speakers) / len(speakers)
    step = (0 <= target.step < n) / n
    return Chance(
        agent=agent,
        step=step,
        joint=agent * step,
        official_agent=sum(agent_right(r, target.agent_text) for r in read) / len(speakers),
        official_step=sum(target.step_text in str(i) for i in range(n)) / n,
    )
