"""One labelled run: the trace that a method gets, and beside it what only the scorer sees."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.contract.base import Asil, Category
from cockpithat.contract.trace import Trace


class _Record(BaseModel):
    """Log records: unknown fields of a later version are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Target(_Record):
    """The label of one run. ``step`` is 0-based, ``*_text`` what the source wrote."""

    agent: str
    step: int
    agent_text: str
    step_text: str
    category: Category | None = None
    category_text: str = ""
    asil: Asil | None = None
    failures: tuple[int, ...] = Field((), description="every labelled failure step, where a source has them")


class Sample(_Record):
    """A run to judge. ``trace`` goes to the method; nothing else of this object ever does.

    ``reference`` is the task's right answer; it is given to a method only with ``--show-ground-truth``.
    """

    id: str
    group: str
    file: str
    trace: Trace
    target: Target
    second: Target | None = None
    reference: str = ""
    tags: dict[str, str] = Field(default_factory=dict)


def with_reference(trace: Trace, reference: str) -> Trace:
    """The trace with the task's right answer in its task, as judges with ground truth are shown it."""
    return trace.model_copy(update={"task": f"{trace.task}\n\nThe right answer to this task: {reference}"})
