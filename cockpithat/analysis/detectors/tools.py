"""Tool errors that no one minded, and calls repeated without any change."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.detectors.cues import ACKNOWLEDGED, ERROR, HARD_ERROR
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category
from cockpithat.contract.trace import Step

_REACH = 3
_BAD_STATUS = frozenset({"failure", "failed", "error", "rejected", "denied", "timeout", "refused"})


class ToolErrors:
    """``tool_error_ignored``: the next step of an agent goes on as if nothing had happened."""

    name = "tool_errors"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One clue for each error; a structured error weighs more than a word in a text."""
        for i, step in enumerate(view.steps):
            error = self._error(view, i, step)
            if error is None:
                continue
            weight, _ = error
            following = next(
                (j for j in view.following(i, _REACH) if view.acts(j) and _says(view.steps[j])), None
            )
            if following is None or ACKNOWLEDGED.search(view.words[following]):
                continue
            if self._tries_again(view, i, following):
                continue
            yield Clue(
                kind="tool_error_ignored",
                step=following,
                agent=view.steps[following].agent,
                category=Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
                weight=weight,
                channel="c",
                text=quote(
                    view.words[following].strip() or render(view.steps[following].tool_calls[0].arguments)
                ),
            )

    @staticmethod
    def _error(view: TraceView, index: int, step: Step) -> tuple[float, str] | None:
        for output in step.tool_outputs:
            text = render(output.content)
            if output.is_error or _bad_status(output.content):
                return 0.7, text
            if ERROR.search(text[:400]):
                return 0.35, text
        if view.keys[index] in view.machines and (match := HARD_ERROR.search(view.words[index])):
            return 0.3, quote(view.words[index], match.start())
        return None

    @staticmethod
    def _tries_again(view: TraceView, error: int, following: int) -> bool:
        names = {output.name for output in view.steps[error].tool_outputs if output.name}
        return any(call.name in names for call in view.steps[following].tool_calls)


def _says(step: Step) -> bool:
    return bool(step.text.strip() or step.tool_calls)


def _bad_status(content: object) -> bool:
    if isinstance(content, dict):
        status = content.get("status", content.get("result"))
        return (isinstance(status, str) and status.lower()[:40] in _BAD_STATUS) or content.get(
            "success"
        ) is False
    return False


class Loops:
    """``repeated_step``: an agent says or calls the very same again, with nothing new in between."""

    name = "loops"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """From the second time on; the third weighs more."""
        times: dict[tuple[str, int], int] = {}
        for i, step in enumerate(view.steps):
            if not view.acts(i):
                continue
            calls = "; ".join(f"{call.name} {render(call.arguments)}" for call in step.tool_calls)
            said = " ".join(view.lowered[i].split())
            if len(said) + len(calls) < 40:
                continue
            key = (view.keys[i], hash((said, calls)))
            times[key] = times.get(key, 0) + 1
            if times[key] in (2, 3):
                yield Clue(
                    kind="repeated_step",
                    step=i,
                    agent=step.agent,
                    category=Category.PLANNING_FAILURE,
                    weight=0.2 if times[key] == 2 else 0.35,
                    channel="c",
                    text=quote(view.words[i].strip() or calls.split("; ")[0]),
                )
