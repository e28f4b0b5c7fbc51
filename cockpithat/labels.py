"""Gold labels of labelled data, read apart from the traces.

Importers never touch these fields, so no label can reach a prompt or a feature; benchmarks read them
here and match them to reports by session id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpithat.analysis.roles import agent_key
from cockpithat.formats.reading import Document, read_document
from cockpithat.formats.recording import bounded_id
from cockpithat.formats.values import as_text, need, need_object


@dataclass(frozen=True, slots=True)
class GoldLabel:
    """What the annotators said: the decisive agent and the 0-based step, as written in the source."""

    session_id: str
    agent: str
    step: int
    reason: str = ""
    answer: str = ""  # the reference answer of the task
    step_text: str = ""  # the step as the source writes it

    def names_agent(self, agent: str | None) -> bool:
        """Whether an agent is the labelled one, blind to case, spaces and underscores."""
        return agent is not None and agent_key(agent) == agent_key(self.agent)


@dataclass(frozen=True, slots=True)
class RootCauseLabel:
    """AgentRx's label of one run, its 1-based step turned 0-based."""

    trajectory_id: str
    agent: str
    step: int
    category: str
    reason: str = ""
    failures: tuple[int, ...] = ()  # every labelled failure's step, 0-based, this one too
    step_text: str = ""  # the step as the source writes it


def read_whowhen_labels(path: Path) -> list[GoldLabel]:
    """The labels of a Who&When file, one a run, in file order. Raises ``FormatError``."""
    document = read_document(path)
    several = document.is_lines or isinstance(document.values[0], list)
    labels = []
    for number, (place, value) in enumerate(document.records()):
        run = need_object(document, place, value)
        fallback = f"{path.stem}-{number}" if several else path.stem
        question_id = run.get("question_ID")
        labels.append(
            GoldLabel(
                session_id=bounded_id(
                    question_id if isinstance(question_id, str) and question_id else fallback
                ),
                agent=need(document, place, run, "mistake_agent", str, "a string"),
                step=_step(document, place, run.get("mistake_step")),
                reason=as_text(run.get("mistake_reason")),
                answer=as_text(run.get("ground_truth")),
                step_text=as_text(run.get("mistake_step")),
            )
        )
    return labels


def read_agentrx_labels(path: Path) -> Iterator[RootCauseLabel]:
    """The decisive failure of each run in an AgentRx label file. Raises ``FormatError``."""
    document = read_document(path)
    for place, value in document.records():
        run = need_object(document, place, value)
        cause = run.get("root_cause")
        # One label of the published file writes this id as a string, the failures' ids are numbers.
        wanted = as_text(cause.get("failure_id")) if isinstance(cause, dict) else ""
        failures = need(document, place, run, "failures", list, "a list")
        known = [failure for failure in failures if isinstance(failure, dict)]
        steps = tuple(_step(document, place, failure.get("step_number")) - 1 for failure in known)
        for failure in known:
            if as_text(failure.get("failure_id")) == wanted:
                yield RootCauseLabel(
                    trajectory_id=as_text(run.get("trajectory_id")),
                    agent=as_text(failure.get("failed_agent")),
                    step=_step(document, place, failure.get("step_number")) - 1,
                    category=as_text(failure.get("failure_category")),
                    reason=as_text(failure.get("step_reason")),
                    failures=steps,
                    step_text=as_text(failure.get("step_number")),
                )


def _step(document: Document, place: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise document.error(place, f"the labelled step {value!r} is no number", "repair the label") from None
