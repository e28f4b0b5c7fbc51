"""What each step does, told from calls, answers and the bus: look something up, change something, or talk.

A tool's name says little: every cockpit names its tools otherwise. So a call that declares or implies a
change, or after which a signal moved that does not move by itself, is a change; a call that brings back
values is a look; the answer says whether it was refused.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cockpithat.analysis.environment import flatten
from cockpithat.analysis.tool_signals import Value
from cockpithat.contract.events import ToolCall, ToolOutput
from cockpithat.contract.trace import Step

_STATUS_KEYS = frozenset(
    {"status", "code", "success", "result", "reason", "message", "detail", "ok", "error", "call_id", "id"}
)
_REFUSED_WORDS = frozenset(
    {"failure", "failed", "error", "rejected", "denied", "timeout", "refused", "not executed", "nok"}
)
_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_]{2,40})\s?[=:]\s?([^;,\s]{1,60})")
_LATE_MS = 1_500
_DRIFTS = 4
_MAX_DATA = 60


@dataclass(slots=True)
class Doing:
    """One step. ``answers`` is the step that made the call which this step's output answers."""

    looks: bool = False
    writes: bool = False
    refused: bool = False
    data: dict[str, object] = field(default_factory=dict)  # values that a tool brought back
    targets: dict[str, Value] = field(default_factory=dict)  # what is set: VSS path, or the tool's own name
    moved: frozenset[str] = frozenset()  # signals that moved right after a call
    answers: int | None = None


class Doings:
    """What all steps of a trace do. One pass, linear in the trace."""

    def __init__(self, steps: tuple[Step, ...], commands: list[dict[str, Value]]) -> None:
        self._steps = steps
        self._commands = commands

    @cached_property
    def drifting(self) -> frozenset[str]:
        """Signals that move by themselves: numbers that changed at four or more steps."""
        times: Counter[str] = Counter()
        for step in self._steps:
            if step.state is not None:
                times.update({c.path for c in step.state.changes if not isinstance(c.after, (bool, str))})
        return frozenset(path for path, count in times.items() if count >= _DRIFTS)

    @cached_property
    def steps(self) -> list[Doing]:
        """One :class:`Doing` a step."""
        doings: list[Doing] = []
        caller: dict[str, int] = {}
        last_call: int | None = None
        for i, step in enumerate(self._steps):
            doing = Doing(targets=dict(self._commands[i]))
            doings.append(doing)
            for call in step.tool_calls:
                if call.call_id:
                    caller[call.call_id] = i
                last_call = i
            if step.tool_calls:
                doing.moved = self._moved(step)
            for output in step.tool_outputs[:20]:
                data = data_of(output)
                refused = is_refused(output)
                at = caller.get(output.call_id or "", last_call if last_call is not None else i)
                doing.answers = at if at != i else None
                called = doings[at]
                doing.refused |= refused
                called.refused |= refused
                if data and not refused:
                    doing.data.update(data)
                    called.looks = True
                elif not data:
                    called.writes = called.writes or bool(self._steps[at].tool_calls)
            doing.writes = doing.writes or bool(doing.targets or doing.moved)
        for i, (doing, step) in enumerate(zip(doings, self._steps, strict=True)):
            doing.looks = doing.looks and not doing.writes
            if not doing.writes and step.tool_calls and not doing.looks:
                doing.looks = not self._answered(i)
            if doing.writes and not doing.targets:
                for call in step.tool_calls:
                    doing.targets.update(_named_targets(call))
        return doings

    def _answered(self, index: int) -> bool:
        following = self._steps[index + 1 : index + 3]
        return bool(self._steps[index].tool_outputs) or any(s.tool_outputs for s in following)

    def _moved(self, step: Step) -> frozenset[str]:
        if step.state is None:
            return frozenset()
        return frozenset(
            c.path
            for c in step.state.changes
            if c.path not in self.drifting and c.ts - step.ts <= _LATE_MS and c.after is not None
        )


def is_refused(output: ToolOutput) -> bool:
    """Whether a tool says, in whatever form, that it did not do it."""
    if output.is_error:
        return True
    content = output.content
    if isinstance(content, dict):
        if content.get("success") is False or content.get("ok") is False:
            return True
        code = content.get("code")
        if isinstance(code, int) and not isinstance(code, bool) and code >= 400:
            return True
        status = content.get("status", content.get("result"))
        return isinstance(status, str) and status.strip().lower()[:40] in _REFUSED_WORDS
    if isinstance(content, str):
        head = content[:40].lower()
        return any(head.startswith(word) for word in _REFUSED_WORDS)
    return False


def data_of(output: ToolOutput) -> dict[str, object]:
    """Values in a tool's answer by key, statuses left out; at most 60."""
    content: Any = output.content
    if isinstance(content, str):
        return {m[1].lower(): _scalar(m[2]) for m in _PAIR.finditer(content[:2_000])}
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    if not isinstance(content, dict):
        return {}
    data = {
        key: value
        for key, value in flatten(content).items()
        if "." not in key and key not in _STATUS_KEYS and isinstance(value, (bool, int, float, str))
    }
    return dict(list(data.items())[:_MAX_DATA])


def _scalar(text: str) -> object:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _named_targets(call: ToolCall) -> dict[str, Value]:
    arguments = call.arguments
    if not isinstance(arguments, dict):
        return {}
    return {
        key: value
        for key, value in flatten(arguments).items()
        if isinstance(value, (bool, int, float, str)) and "." not in key
    }
