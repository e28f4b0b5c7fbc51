"""Runs and methods made by hand."""

from __future__ import annotations

from collections.abc import Callable

from cockpithat.bench.samples import Sample, Target
from cockpithat.contract.base import Asil, Category
from cockpithat.contract.reports import Candidate, Provenance, Report, TokenUsage
from cockpithat.contract.trace import Step, Trace

Verdict = tuple[str | None, int | None]


def trace_of(name: str, steps: int = 6) -> Trace:
    agents = ("Planner", "Coder")
    return Trace(
        trace_id=f"trace-{name}",
        vehicle_id="v",
        session_id=name,
        task="Find it.",
        steps=tuple(
            Step(index=i, seq=i, event_id=f"{name}/{i}", ts=i, agent=agents[i % 2], text=f"words {i}")
            for i in range(steps)
        ),
    )


def sample_of(
    name: str,
    step: int = 1,
    *,
    steps: int = 6,
    group: str = "g",
    category: Category | None = None,
    asil: Asil | None = None,
    second: tuple[str, int] | None = None,
    reference: str = "42",
) -> Sample:
    def target(agent: str, step: int) -> Target:
        return Target(
            agent=agent, step=step, agent_text=agent, step_text=str(step), category=category, asil=asil
        )

    return Sample(
        id=name,
        group=group,
        file=f"{name}.json",
        trace=trace_of(name, steps),
        target=target(("Planner", "Coder")[step % 2], step),
        second=target(*second) if second else None,
        reference=reference,
    )


class Scripted:
    """A method that answers what ``verdict`` says about a session, and counts what it was asked."""

    def __init__(
        self,
        verdict: Callable[[Trace], Verdict],
        *,
        name: str = "scripted",
        digest: str = "c0",
        ranking: Callable[[Trace], list[int]] | None = None,
    ) -> None:
        self.name, self.analysts = name, "local"
        self.verdict = verdict
        self.ranking = ranking
        self.seen: list[Trace] = []
        self.provenance = Provenance(
            product_version="0", rules_id="r", rules_version="1", config_digest=digest
        )

    async def attribute(self, trace: Trace) -> Report:
        self.seen.append(trace)
        agent, step = self.verdict(trace)
        order = self.ranking(trace) if self.ranking else []
        return Report(
            report_id=f"r-{trace.trace_id}",
            trace_id=trace.trace_id,
            vehicle_id=trace.vehicle_id,
            session_id=trace.session_id,
            outcome=trace.outcome,
            method=self.name,
            analysts=self.analysts,
            step=step,
            agent=agent,
            category=Category.PLANNING_FAILURE,
            asil=Asil.B,
            candidates=tuple(Candidate(step=i, agent="x", score=0.5) for i in order),
            tokens=TokenUsage(input=100, output=10),
            provenance=self.provenance,
        )
