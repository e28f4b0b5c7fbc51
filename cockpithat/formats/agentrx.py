"""AgentRx's intermediate form of a trajectory: numbered steps, each with its substeps.

``{trajectory_id, instruction, steps: [{index, substeps: [{role, content}]}]}``, a list or lines of such, or
the bare list of steps of one run. Steps are numbered from 1; the trace's index is that number less one, and a
gap in the numbers is refused, for it would shift what labels name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import AgentInfo, SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import Trace
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import SYNTHETIC_START_MS, SYNTHETIC_STEP_MS, Recording, bounded_id
from cockpithat.formats.values import as_text, clipped, joined, need, need_object

_FINAL_ANSWER_LIMIT = 4_000


class AgentRx:
    """Reads runs with ``steps`` that have ``substeps``. See the module's text for the rules."""

    name = "agentrx"
    summary = "AgentRx trajectories: steps numbered from 1, each with substeps"

    def recognises(self, document: Document) -> bool:
        """A step with ``index`` and ``substeps``, or a run whose first step is one."""
        record = next((value for _, value in document.records()), None)
        if isinstance(record, dict) and isinstance(record.get("steps"), list):
            record = next(iter(record["steps"]), None)
        return isinstance(record, dict) and {"index", "substeps"} <= record.keys()

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """One recording a run."""
        records = list(document.records())
        if all(isinstance(value, dict) and "substeps" in value for _, value in records):
            yield _recording(document, "", {"steps": [value for _, value in records]}, document.path.stem)
            return
        for number, (place, value) in enumerate(records):
            fallback = document.path.stem if len(records) == 1 else f"{document.path.stem}-{number}"
            yield _recording(document, place, need_object(document, place, value), fallback)


def _recording(document: Document, place: str, run: dict[str, Any], fallback: str) -> Recording:
    steps = need(document, place, run, "steps", list, "a list of steps")
    session = bounded_id(as_text(run.get("trajectory_id")) or fallback)
    common = {"vehicle_id": bounded_id(f"agentrx-{session}"), "session_id": session}
    events: list[StepEvent] = []
    for position, value in enumerate(steps):
        here = joined(place, f"/steps/{position}")
        step = need_object(document, here, value)
        if step.get("index") != position + 1:
            raise document.error(
                here,
                f"step has index {step.get('index')!r} where {position + 1} is due",
                "number the steps from 1 without gaps",
            )
        agent, text = _said(document, here, step)
        events.append(
            StepEvent(
                **common,
                event_id=f"{session}/{position}",
                seq=position + 1,
                ts=SYNTHETIC_START_MS + (position + 1) * SYNTHETIC_STEP_MS,
                agent=agent,
                text=text,
            )
        )
    names = dict.fromkeys(event.agent for event in events)
    start = SessionStart(
        **common,
        event_id=f"{session}/start",
        seq=0,
        ts=SYNTHETIC_START_MS,
        task=as_text(run.get("instruction")),
        roster=tuple(AgentInfo(name=name) for name in names),
        sends_snapshots=False,
        timestamps_synthetic=True,
    )
    end = SessionEnd(
        **common,
        event_id=f"{session}/end",
        seq=len(events) + 1,
        ts=SYNTHETIC_START_MS + (len(events) + 1) * SYNTHETIC_STEP_MS,
        outcome=Outcome.FAILURE,  # the form is one of failed runs
        failed=True,
        final_answer=clipped(events[-1].text, _FINAL_ANSWER_LIMIT) if events else "",
    )
    return Recording(document.path.name, (start, *events, end))


def _said(document: Document, place: str, step: dict[str, Any]) -> tuple[str, str]:
    """Agent and text of a step: the first substep's speaker, and all substeps' words."""
    substeps = need(document, place, step, "substeps", list, "a list of substeps")
    parts = [
        need_object(document, joined(place, f"/substeps/{number}"), substep)
        for number, substep in enumerate(substeps)
    ]
    first = parts[0] if parts else {}
    name = as_text(first.get("name") or first.get("agent") or first.get("role"))
    agent = clipped(name.partition(" (")[0].strip() or "unknown", 200)
    return agent, "\n".join(as_text(part.get("content")) for part in parts)
