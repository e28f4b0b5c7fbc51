"""Who&When logs: ``history`` of messages, with gold labels beside it that stay sealed.

Both splits of ag2ai/Agents_Failure_Attribution. Algorithm-generated (CaptainAgent): the agent is
``history[].name``. Hand-crafted (Magentic-One): no ``name``; the agent is ``role`` without its suffix,
and the suffix says what kind of step it is. One history item is one step, so a step's index is its
position in ``history``, empty ones too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cockpithat.analysis.roles import agent_key, is_machine, is_person
from cockpithat.contract.base import Outcome
from cockpithat.contract.events import AgentInfo, SessionEnd, SessionStart, StepEvent
from cockpithat.contract.trace import Trace
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import SYNTHETIC_START_MS, SYNTHETIC_STEP_MS, Recording, bounded_id
from cockpithat.formats.values import as_text, clipped, joined, need, need_object

_FINAL_ANSWER_LIMIT = 4_000
_CLOSING_WORDS = {"", "terminate"}


@dataclass(frozen=True, slots=True)
class _Speaker:
    agent: str
    mode: str
    target: str | None


class WhoWhen:
    """Reads a run, a list of runs, or one run a line. See the module's text for the rules."""

    name = "whowhen"
    summary = "Who&When runs (both splits) and other logs with history[{role|name, content}]"

    def recognises(self, document: Document) -> bool:
        """An object with a ``history`` list of messages."""
        record = next((value for _, value in document.records()), None)
        return isinstance(record, dict) and isinstance(record.get("history"), list)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """One recording a run."""
        several = document.is_lines or isinstance(document.values[0], list)
        for number, (place, value) in enumerate(document.records()):
            run = need_object(document, place, value)
            fallback = f"{document.stem}-{number}" if several else document.stem
            yield _recording(document, place, run, fallback)


def _recording(document: Document, place: str, run: dict[str, Any], fallback: str) -> Recording:
    history = need(document, place, run, "history", list, "a list of messages")
    messages = [
        need_object(document, joined(place, f"/history/{position}"), message)
        for position, message in enumerate(history)
    ]
    named = any(message.get("name") for message in messages)
    speakers = _speakers(messages)
    question_id = run.get("question_ID")
    session = bounded_id(question_id if isinstance(question_id, str) and question_id else fallback)
    split = "algorithm-generated" if named else "hand-crafted"
    common = {"vehicle_id": bounded_id(f"whowhen-{split}-{session}"), "session_id": session}
    texts = [as_text(message.get("content")) for message in messages]
    start = SessionStart(
        **common,
        event_id=f"{session}/start",
        seq=0,
        ts=SYNTHETIC_START_MS,
        task=as_text(run.get("question")),
        roster=_roster(run, speakers),
        sends_snapshots=False,
        timestamps_synthetic=True,
    )
    steps = tuple(
        StepEvent(
            **common,
            event_id=f"{session}/{position}",
            seq=position + 1,
            ts=SYNTHETIC_START_MS + (position + 1) * SYNTHETIC_STEP_MS,
            agent=speaker.agent,
            mode=speaker.mode,
            target=speaker.target,
            text=text,
        )
        for position, (speaker, text) in enumerate(zip(speakers, texts, strict=True))
    )
    failed = not _was_right(run)
    end = SessionEnd(
        **common,
        event_id=f"{session}/end",
        seq=len(messages) + 1,
        ts=SYNTHETIC_START_MS + (len(messages) + 1) * SYNTHETIC_STEP_MS,
        outcome=Outcome.FAILURE if failed else Outcome.SUCCESS,
        failed=failed,
        final_answer=_final_answer(texts),
    )
    return Recording(document.name, (start, *steps, end))


def _was_right(run: dict[str, Any]) -> bool:
    """The run's own verdict; the hand-crafted split spells it ``is_corrected``. Absent means failed."""
    return run.get("is_correct") is True or run.get("is_corrected") is True


def _final_answer(texts: list[str]) -> str:
    for text in reversed(texts):
        if text.strip().strip(".").casefold() not in _CLOSING_WORDS:
            return clipped(text, _FINAL_ANSWER_LIMIT)
    return ""


def _speakers(messages: list[dict[str, Any]]) -> list[_Speaker]:
    """Who speaks at each step, each agent under the spelling it has most often in this run."""
    raw = [_speaker(message) for message in messages]
    spellings: dict[str, Counter[str]] = {}
    for speaker in raw:
        for name in (speaker.agent, speaker.target):
            if name:
                spellings.setdefault(agent_key(name), Counter())[name] += 1
    usual = {key: counter.most_common(1)[0][0] for key, counter in spellings.items()}
    return [
        _Speaker(
            usual[agent_key(speaker.agent)],
            speaker.mode,
            usual[agent_key(speaker.target)] if speaker.target else None,
        )
        for speaker in raw
    ]


def _speaker(message: dict[str, Any]) -> _Speaker:
    role = as_text(message.get("role")).strip()
    name = as_text(message.get("name")).strip()
    if name:
        return _Speaker(clipped(name, 200), _mode_of(name), None)
    base, opening, rest = role.partition(" (")
    suffix = rest.removesuffix(")").strip() if opening else ""
    agent = clipped(base.strip() or "unknown", 200)
    if suffix.startswith("->"):
        return _Speaker(agent, "dispatch", clipped(suffix.removeprefix("->").strip(), 200) or None)
    if suffix == "thought":
        return _Speaker(agent, "thought", None)
    if suffix == "termination condition":
        return _Speaker(agent, "termination", None)
    return _Speaker(agent, _mode_of(agent), None)


def _mode_of(agent: str) -> str:
    return "tool_output" if is_machine(agent) else "message"


def _roster(run: dict[str, Any], speakers: list[_Speaker]) -> tuple[AgentInfo, ...]:
    prompts = run.get("system_prompt")
    described = prompts if isinstance(prompts, dict) else {}
    descriptions = {agent_key(str(name)): as_text(text) for name, text in described.items()}
    names = {agent_key(speaker.agent): speaker.agent for speaker in speakers}
    for speaker in speakers:
        if speaker.target:
            names.setdefault(agent_key(speaker.target), speaker.target)
    for name in described:
        names.setdefault(agent_key(str(name)), clipped(str(name) or "unknown", 200))
    return tuple(
        AgentInfo(name=name, role=_role(name), description=descriptions.get(key, ""))
        for key, name in names.items()
    )


def _role(name: str) -> str:
    if is_person(name):
        return "user"
    return "terminal" if is_machine(name) else "agent"
