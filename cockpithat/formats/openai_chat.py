"""OpenAI chat messages with tool calls: CAR-bench runs, single conversations, lists and lines of them.

One message is one step, the system prompt included, so a step's index is its position in the list.
Of a benchmark run only these fields are read: identity (``task_id``, ``trial``), ``reward`` as the failure
flag, the messages, and ``info.task.context_init_config``, the vehicle's state at the start, which its
agent could observe. Reference actions, instructions and reward details are gold and stay sealed.

The source has no times: steps are spaced evenly, and the session says that its timestamps are made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import (
    AgentInfo,
    IntendedChange,
    SessionEnd,
    SessionStart,
    StepEvent,
    ToolCall,
    ToolOutput,
)
from cockpithat.contract.trace import Trace
from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import SYNTHETIC_START_MS, SYNTHETIC_STEP_MS, Recording, bounded_id
from cockpithat.formats.state_map import Scalar, StateMap
from cockpithat.formats.values import as_text, clipped, decoded, joined, need, need_object

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_MESSAGE_FIELDS = ("traj", "messages")
_GRID_MS = 100


class OpenAIChat:
    """Reads runs with ``traj`` or ``messages``, or bare message lists."""

    name = "openai_chat"
    summary = "OpenAI chat messages with tool calls, such as CAR-bench runs"

    def recognises(self, document: Document) -> bool:
        """Runs with a message list, or messages with a role known to the API."""
        record = next((value for _, value in document.records()), None)
        if isinstance(record, list):
            record = {"messages": record}
        if not isinstance(record, dict):
            return False
        for field in _MESSAGE_FIELDS:
            messages = record.get(field)
            if isinstance(messages, list):
                return all(_is_message(message) for message in messages[:1])
        return _is_message(record)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """One recording a conversation; a bare list, or lines, of messages are one conversation."""
        seen: Counter[str] = Counter()
        several = document.is_lines or isinstance(document.values[0], list)
        for number, (place, run) in enumerate(_runs(document)):
            field, messages = _messages_of(document, place, run)
            session = _session_id(document, run, number if several else None)
            seen[session] += 1
            if seen[session] > 1:
                session = f"{session}-{seen[session]}"
            conversation = _Conversation(document, joined(place, field), session, messages, options.state_map)
            yield conversation.recording(run)


def _runs(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    records = list(document.records())
    if all(isinstance(value, dict) and _is_message(value) for _, value in records) and (
        document.is_lines or isinstance(document.values[0], list)
    ):
        yield "", {"messages": [value for _, value in records]}
        return
    for place, value in records:
        yield place, {"messages": value} if isinstance(value, list) else need_object(document, place, value)


def _is_message(value: Any) -> bool:
    role = value.get("role") if isinstance(value, dict) else None
    return isinstance(role, str) and role in _ROLES


def _messages_of(document: Document, place: str, run: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    field = next((name for name in _MESSAGE_FIELDS if name in run), "messages")
    messages = need(document, place, run, field, list, "a list of messages")
    checked = []
    for position, value in enumerate(messages):
        here = joined(place, f"/{field}/{position}")
        message = need_object(document, here, value)
        role = need(document, here, message, "role", str, "a string")
        if role not in _ROLES:
            raise document.error(here, f"unknown role {role!r}", f"use one of {', '.join(sorted(_ROLES))}")
        checked.append(message)
    return f"/{field}", checked


def _session_id(document: Document, run: dict[str, Any], number: int | None) -> str:
    for field in ("session_id", "conversation_id", "id"):
        value = run.get(field)
        if isinstance(value, str) and value:
            return bounded_id(value)
    task, trial = run.get("task_id"), run.get("trial")
    if isinstance(task, str | int):
        return bounded_id(f"{document.stem}/{task}" + (f"/{trial}" if isinstance(trial, int) else ""))
    return bounded_id(document.stem if number is None else f"{document.stem}/{number}")


@dataclass(slots=True)
class _Call:
    event_id: str
    position: int
    name: str
    arguments: dict[str, Any] | str
    answered: bool = False


class _Conversation:
    """Turns one message list into events and snapshots."""

    def __init__(
        self,
        document: Document,
        place: str,
        session: str,
        messages: list[dict[str, Any]],
        state_map: StateMap | None,
    ) -> None:
        self._document = document
        self._place = place
        self._session = session
        self._vehicle = bounded_id(f"chat-{session}")
        self._messages = messages
        self._map = state_map
        self._calls: list[_Call] = []
        self._call_by_id: dict[str, _Call] = {}
        self._changes: list[tuple[int, dict[str, Scalar]]] = []  # epoch ms, what became true

    def recording(self, run: Mapping[str, Any]) -> Recording:
        steps = tuple(self._step(position, message) for position, message in enumerate(self._messages))
        outcome, failed = _verdict(run)
        initial = self._initial_state(run)
        start = SessionStart(
            event_id=f"{self._session}/start",
            vehicle_id=self._vehicle,
            session_id=self._session,
            seq=0,
            ts=SYNTHETIC_START_MS,
            task=self._task(),
            roster=_roster(steps),
            vss_version=self._map.vss_version if self._map else None,
            sends_snapshots=self._map is not None,
            timestamps_synthetic=True,
        )
        end = SessionEnd(
            event_id=f"{self._session}/end",
            vehicle_id=self._vehicle,
            session_id=self._session,
            seq=len(steps) + 1,
            ts=self._time(len(steps)),
            outcome=outcome,
            failed=failed,
            final_answer=self._final_answer(),
        )
        snapshots = tuple(self._snapshots(initial)) if self._map else ()
        return Recording(self._document.name, (start, *steps, end), snapshots)

    def _time(self, position: int) -> int:
        return SYNTHETIC_START_MS + (position + 1) * SYNTHETIC_STEP_MS

    def _task(self) -> str:
        return next((as_text(m.get("content")) for m in self._messages if m["role"] == "user"), "")

    def _final_answer(self) -> str:
        answers = (
            as_text(message.get("content"))
            for message in reversed(self._messages)
            if message["role"] == "assistant"
        )
        return next((answer for answer in answers if answer.strip()), "")

    def _step(self, position: int, message: dict[str, Any]) -> StepEvent:
        role = message["role"]
        is_tool = role in {"tool", "function"}
        agent = "tool" if is_tool else as_text(message.get("name")).strip() or role
        event_id = f"{self._session}/{position}"
        calls = () if is_tool else self._tool_calls(position, event_id, message)
        output, answered = self._tool_output(position, message) if is_tool else (None, None)
        if calls:
            mode = "tool_call"
        elif is_tool:
            mode = "tool_output"
        else:
            mode = "system" if role in {"system", "developer"} else "message"
        return StepEvent(
            event_id=event_id,
            vehicle_id=self._vehicle,
            session_id=self._session,
            seq=position + 1,
            ts=self._time(position),
            agent=clipped(agent, 200),
            mode=mode,
            text="" if is_tool else as_text(message.get("content")),
            reasoning=as_text(message.get("reasoning_content") or message.get("reasoning")),
            tool_calls=calls,
            tool_outputs=(output,) if output else (),
            in_reply_to=answered.event_id if answered else None,
            intended=self._intended(calls),
        )

    def _tool_calls(self, position: int, event_id: str, message: dict[str, Any]) -> tuple[ToolCall, ...]:
        listed = message.get("tool_calls") or []
        legacy = message.get("function_call")
        here = joined(self._place, f"/{position}")
        if not isinstance(listed, list):
            raise self._document.error(
                joined(here, "/tool_calls"), "is no list", "give tool_calls as a list or null"
            )
        entries = [
            need_object(self._document, joined(here, f"/tool_calls/{number}"), entry)
            for number, entry in enumerate(listed)
        ]
        if isinstance(legacy, dict):
            entries.append({"function": legacy})
        calls = []
        for entry in entries:
            function = entry.get("function")
            function = function if isinstance(function, dict) else entry
            arguments = decoded(function.get("arguments"))
            if not isinstance(arguments, dict):
                arguments = as_text(arguments) if arguments else {}
            call_id = entry.get("id")
            call = _Call(event_id, position, as_text(function.get("name")), arguments)
            self._calls.append(call)
            if isinstance(call_id, str):
                self._call_by_id[call_id] = call
            calls.append(
                ToolCall(
                    name=call.name, arguments=arguments, call_id=call_id if isinstance(call_id, str) else None
                )
            )
        return tuple(calls)

    def _tool_output(self, position: int, message: dict[str, Any]) -> tuple[ToolOutput, _Call | None]:
        name = as_text(message.get("name"))
        call_id = message.get("tool_call_id")
        call = self._call_by_id.get(call_id) if isinstance(call_id, str) else None
        if call is None:  # no id in the source: the oldest open call of that tool
            call = next((c for c in self._calls if not c.answered and name in ("", c.name)), None)
        content = decoded(message.get("content"))
        failed = _is_error(content)
        if call is not None:
            call.answered = True
            self._note_state(position, call, content, failed)
        output = ToolOutput(
            name=name or (call.name if call else None),
            call_id=call_id if isinstance(call_id, str) else None,
            content=content,
            is_error=failed,
        )
        return output, call

    def _note_state(self, position: int, call: _Call, content: Any, failed: bool) -> None:
        """What a call changed is dated between the call and its result, what it read at the result."""
        if self._map is None or failed:
            return
        set_now = self._map.intended(call.name, call.arguments)
        if set_now:
            self._changes.append((self._time(call.position) + _GRID_MS, set_now))
            return
        result = content.get("result", content) if isinstance(content, dict) else None
        seen = self._map.observed(result)
        if seen:
            self._changes.append((self._time(position), seen))

    def _intended(self, calls: tuple[ToolCall, ...]) -> tuple[IntendedChange, ...]:
        if self._map is None:
            return ()
        wanted: dict[str, Scalar] = {}
        for call in calls:
            wanted.update(self._map.intended(call.name, call.arguments))
        return tuple(IntendedChange(path=path, value=value) for path, value in wanted.items())

    def _initial_state(self, run: Mapping[str, Any]) -> dict[str, Scalar]:
        if self._map is None:
            return {}
        config: Any = run
        for field in ("info", "task", "context_init_config"):
            config = config.get(field) if isinstance(config, Mapping) else None
        return self._map.observed(config)

    def _snapshots(self, state: dict[str, Scalar]) -> Iterator[VehicleSnapshot]:
        """The whole known state at every step, and each change when it happened.

        The simulator behind such a run changes its state by tools only, so repeating it is exact.
        """
        state = dict(state)
        pending = sorted(self._changes, key=lambda change: change[0])
        moments = [SYNTHETIC_START_MS, *(self._time(position) for position in range(len(self._messages) + 1))]
        for moment in moments:
            while pending and pending[0][0] <= moment:
                ts, change = pending.pop(0)
                state.update(change)
                if ts < moment:
                    yield self._snapshot(ts, change, "delta")
            yield self._snapshot(moment, state, "full")

    def _snapshot(self, ts: int, signals: dict[str, Scalar], kind: str) -> VehicleSnapshot:
        return VehicleSnapshot.model_validate(
            {
                "vehicle_id": self._vehicle,
                "ts": ts,
                "kind": kind,
                "vss_version": self._map.vss_version if self._map else "4.0",
                "signals": dict(signals),
                "session_id": self._session,
            }
        )


def _is_error(content: Any) -> bool:
    if isinstance(content, str):
        return content.lstrip()[:6].casefold().startswith(("error:", "error "))
    if isinstance(content, dict):
        status = content.get("status")
        refused = isinstance(status, str) and status.upper() in {"FAILURE", "FAILED", "ERROR"}
        return refused or bool(content.get("error")) or content.get("is_error") is True
    return False


def _verdict(run: Mapping[str, Any]) -> tuple[Outcome, bool | None]:
    """Outcome and failure flag: ``reward`` below 1, or what ``failed`` or ``success`` says; else unknown."""
    reward = run.get("reward")
    failed: bool | None = None
    if isinstance(run.get("failed"), bool):
        failed = run["failed"]
    elif isinstance(run.get("success"), bool):
        failed = not run["success"]
    elif isinstance(reward, int | float):
        failed = reward < 1
    if failed is None:
        return Outcome.UNKNOWN, None
    return (Outcome.FAILURE if failed else Outcome.SUCCESS), failed


def _roster(steps: tuple[StepEvent, ...]) -> tuple[AgentInfo, ...]:
    roles = {"system": "system", "developer": "system", "user": "user", "tool": "tool"}
    names = dict.fromkeys(step.agent for step in steps)
    return tuple(AgentInfo(name=name, role=roles.get(name, "agent")) for name in names)
