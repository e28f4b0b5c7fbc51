"""A model that is played by a server: it reads prompts of ours and answers well, badly or as ordered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.trace import Trace
from cockpithat.llm import CallRecord, ChatClient, LlmSettings, RoleSettings
from cockpithat.llm.settings import BreakerSettings, CacheSettings, RetrySettings
from cockpithat.panel.ladder import Rung
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.settings import PanelSettings
from tests.support.chat_server import ChatServer, Reply, Request, json_reply

KEY = "sk-panel-secret-42"
ROOT = Path(__file__).resolve().parents[2]

_STEP = re.compile(r"^@(\d+)[^\n]*\n(.+)$", re.MULTILINE)
_AGENTS = re.compile(r"^Agents: (.+)$", re.MULTILINE)


# How a model knows what it is asked when no schema comes along: by the words of the prompt.
_ASKED = {
    "The analysts disagree": "defence",
    "Decide which agent is responsible, the failure category": "agent_decision",
    "Decide which one step is the decisive error": "step_decision",
    "Decide which agent is responsible, which one step": "decision",
    "Flag steps of a failed car cockpit session": "salience",
    "You link mentions": "links",
    "You build the dependency graph": "graph",
}
_FIELDS = {
    "agent_decision": ("agent", "omission", "category", "asil"),
    "step_decision": ("step",),
    "decision": ("step", "agent", "omission", "category", "asil"),
    "defence": ("step", "agent", "category"),
}


def form_of(request: Request) -> str:
    """Name of the form a request asks for."""
    return next(name for words, name in _ASKED.items() if words in request.prompt)


def fields_of(request: Request) -> tuple[str, ...]:
    """Fields of that form."""
    return (*_FIELDS.get(form_of(request), ()), "confidence", "rationale", "evidence")


def agents_of(request: Request) -> list[str]:
    """Names on the Agents line."""
    line = _AGENTS.search(request.prompt)
    return [name.split(" (")[0] for name in line[1].split("; ")] if line else [""]


def quotable(request: Request) -> list[tuple[int, str]]:
    """Steps that a prompt shows with the first words of what stands there."""
    found = []
    for match in _STEP.finditer(request.prompt):
        words = match[2].split("[...]")[0].strip().split()
        if not match[2].startswith(("@", "==", "END ")) and words:
            found.append((int(match[1]), " ".join(words[:8])))
    return found


def good_answer(request: Request, **more: Any) -> dict[str, Any]:
    """A correct answer: a step and agent that exist, a quote that stands there."""
    if form_of(request) == "salience":
        return {
            "salient": [
                {
                    "step": 1,
                    "tag": "safety_violation",
                    "salience": 0.9,
                    "priority": "high",
                    "strength": 3,
                    "why": "risk",
                }
            ]
        }
    if form_of(request) == "links":
        return {"add": [], "drop": []}
    shown = quotable(request)
    step, quote = shown[len(shown) // 2] if shown else (0, "nothing")
    values: dict[str, Any] = {
        "step": step,
        "agent": agents_of(request)[-1],
        "omission": False,
        "category": "planning_failure",
        "asil": "A",
        "confidence": 0.7,
        "rationale": "This step set the wrong course.",
        "evidence": [{"step": step, "quote": quote}],
    }
    return {name: values[name] for name in fields_of(request)} | more


def good(request: Request) -> Reply:
    """The correct answer as a reply."""
    return json_reply(good_answer(request))


# Every way in which issue 4 wants an endpoint to misbehave, and some more.
MISBEHAVIOUR: dict[str, Callable[[Request], Reply]] = {
    "correct": good,
    "fenced": lambda r: Reply(content=f"Certainly!\n```json\n{json.dumps(good_answer(r))}\n```"),
    "malformed": lambda _: Reply(content='{"step": 1, "agent": }'),
    "prose": lambda _: Reply(content="It was probably the planner, around step 3."),
    "truncated": lambda r: Reply(content=json.dumps(good_answer(r))[:40], finish="length"),
    "refusing": lambda _: Reply(content=None, refusal="I can't help with that."),
    "filtered": lambda _: Reply(content="", finish="content_filter"),
    "slow": lambda r: json_reply(good_answer(r), delay=0.6),
    "rate limit": lambda _: Reply(status=429, headers={"retry-after": "1"}, raw=b"slow down"),
    "error 500": lambda _: Reply(status=500, raw=b"internal"),
    "bad request": lambda _: Reply(status=400, raw=b"context length exceeded"),
    "no key": lambda _: Reply(status=401, raw=f"bad key {KEY}".encode()),
    "closed": lambda _: Reply(close=True),
    "cut": lambda r: Reply(content=json.dumps(good_answer(r)), cut=True),
    "not a completion": lambda _: Reply(raw=b"<html>502</html>"),
    "out of range": lambda r: json_reply(good_answer(r, step=9_999, evidence=[])),
    "negative step": lambda r: json_reply(good_answer(r, step=-1)),
    "unknown agent": lambda r: json_reply(good_answer(r, agent="GhostAgent")),
    "empty rationale": lambda r: json_reply(good_answer(r, rationale="  \u200b ")),
    "wrong category": lambda r: json_reply(good_answer(r, category="bad_luck")),
    "overconfident": lambda r: json_reply(good_answer(r, confidence=100)),
    "wrong types": lambda r: json_reply({name: [] for name in fields_of(r)}),
    "invented quotes": lambda r: json_reply(
        good_answer(r, evidence=[{"step": 0, "quote": "words that nobody ever said in this session"}])
    ),
}


class Panel:
    """A panel on a server, with every call it made."""

    def __init__(self, method: PanelAttribution, records: list[CallRecord], waits: list[float]) -> None:
        self.method, self.records, self.waits = method, records, waits


def panel_on(
    server: ChatServer,
    *,
    rung: Rung = Rung.CHANNEL_ADAPTER,
    scanner: bool = True,
    linker: bool = False,
    cache: bool = False,
    llm: dict[str, Any] | None = None,
    **panel: Any,
) -> Panel:
    """A panel whose waits are noted instead of waited."""
    records: list[CallRecord] = []
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    role = RoleSettings(base_url=server.url, model="large", api_key_env="KEY", input_price=1, output_price=2)
    small = RoleSettings(
        base_url=server.url, model="small", api_key_env="KEY", input_price=0.1, output_price=0.2
    )
    settings = LlmSettings(
        analyst=role,
        scanner=small if scanner else None,
        linker=small if linker else None,
        trust_environment=False,
        cache=CacheSettings(enabled=cache),
        **{
            "retry": RetrySettings(attempts=2),
            "breaker": BreakerSettings(failures=1_000),
            "call_seconds": 20.0,
            **(llm or {}),
        },
    )
    client = ChatClient(settings, sleep=note, environ={"KEY": KEY}, observe=records.append)
    method = PanelAttribution(
        AttributionSettings(panel=PanelSettings(llm=settings, rung=rung, **panel)), client=client
    )
    return Panel(method, records, waits)


def with_step(trace: Trace, index: int, **fields: Any) -> Trace:
    """A trace with fields of one step changed, its graph dropped so that it is built anew."""
    steps = list(trace.steps)
    steps[index] = steps[index].model_copy(update=fields)
    return trace.model_copy(update={"steps": tuple(steps), "graph": None})
