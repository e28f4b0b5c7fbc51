"""Tool calls, their outputs, and the step that reads an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cockpithat.contract.events import ToolCall, ToolOutput
from cockpithat.graph.control import Call, agent_key

_OPEN_CALLS: Final = 64
_WAITING: Final = 16


class _OpenCall(NamedTuple):
    step: int
    agent: str
    name: str


class ToolLedger:
    """Open calls by id and by order, and results that their callers have not read yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, _OpenCall] = {}
        self._unnamed: list[_OpenCall] = []
        self._unread: dict[str, list[Call]] = {}
        self.work = 0

    def calls(self, step: int, agent: str, calls: Sequence[ToolCall]) -> None:
        """Remember the step's calls; beyond 64 open ones the oldest is forgotten."""
        for call in calls[:_OPEN_CALLS]:
            self.work += 1
            opened = _OpenCall(step, agent, call.name)
            if call.call_id:
                self._by_id.pop(call.call_id, None)
                if len(self._by_id) >= _OPEN_CALLS:
                    del self._by_id[next(iter(self._by_id))]
                self._by_id[call.call_id] = opened
            else:
                self._unnamed.append(opened)
                del self._unnamed[:-_OPEN_CALLS]

    def outputs(self, step: int, agent: str, outputs: Sequence[ToolOutput]) -> list[Call]:
        """Edges from the calls that these outputs answer; the results now wait for the callers' next step."""
        found: list[Call] = []
        for output in outputs[:_OPEN_CALLS]:
            call = self._answered(output)
            caller = call.agent if call is not None else agent
            name = output.name or (call.name if call is not None else "tool")
            if call is not None and call.step != step:
                found.append(Call(call.step, f"call of {name}"))
            waiting = self._unread.setdefault(agent_key(caller), [])
            waiting.append(Call(step, f"{'error' if output.is_error else 'result'} of {name}"))
            del waiting[:-_WAITING]
            if len(self._unread) > _OPEN_CALLS:
                del self._unread[next(iter(self._unread))]
        return found

    def results_for(self, agent: str) -> list[Call]:
        """Results that this agent's step is the first to have before it; they count as read from here on."""
        return self._unread.pop(agent_key(agent), []) if self._unread else []

    def _answered(self, output: ToolOutput) -> _OpenCall | None:
        self.work += 1
        if output.call_id:
            call = self._by_id.pop(output.call_id, None)
            if call is not None:
                return call
        for at in range(len(self._unnamed)):
            self.work += 1
            if output.name is None or self._unnamed[at].name == output.name:
                return self._unnamed.pop(at)
        return None
