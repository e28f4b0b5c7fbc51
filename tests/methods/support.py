"""A model played by a server that can answer any form: it reads the JSON Schema of the request.

Names of fields decide what is put there, so that one player serves every method. A test changes single forms
by name. What methods ask in what order is read from the client's own records.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.llm import CallRecord, ChatClient, LlmSettings, RoleSettings
from cockpithat.llm.settings import BreakerSettings, CacheSettings, RetrySettings
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.settings import PanelSettings
from cockpithat.panel.verify import TraceFacts
from tests.panel.support import quotable
from tests.support.chat_server import ChatServer, Reply, Request, json_reply

Answer = Callable[[Request, dict[str, Any]], dict[str, Any]]

_CANDIDATES = re.compile(r"^CANDIDATES:\n((?:step \d+:.*\n?)+)", re.MULTILINE)
_PREDICTED = re.compile(r"Step (\d+) was predicted to be decisive")
_SCREENED = re.compile(r"among the candidate steps ([\d, ]+)\.")
_CONSTRAINTS = re.compile(r"^CONSTRAINTS:\n(\w+):", re.MULTILINE)
_VALUES: dict[str, Any] = {
    "confidence": 0.8,
    "score": 0.7,
    "suspicion": 0.8,
    "relevance": 0.8,
    "local_inconsistency": 0.6,
    "prior_inconsistency": 0.7,
    "error": False,
    "omission": False,
    "met": False,
    "half": "first",
    "asil": "A",
    "category": "planning_failure",
    "conclusion": "single_agent",
    "role": "root_cause",
    "type": "follow_up",
    "check": "judge",
    "other_agents": [],
    "alternatives": [],
    "joint": [],
    "needs": [],
    "values": [],
    "tool": "",
    "subject": "",
    "subtask": 1,
}
SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "schemas" / "report.v1.json").read_text(encoding="utf-8")
)


def form_of(request: Request) -> str:
    """Name of the form a request asks for."""
    return str(request.body["response_format"]["json_schema"]["name"])


def steps_at_hand(request: Request) -> list[int]:
    """The steps that an answer should speak of: named candidates, else those shown."""
    if (predicted := _PREDICTED.search(request.prompt)) is not None:
        return [int(predicted[1])]
    if (screened := _SCREENED.search(request.prompt)) is not None:
        return [int(n) for n in screened[1].split(",")]
    if (listed := _CANDIDATES.search(request.prompt)) is not None:
        return [int(n) for n in re.findall(r"^step (\d+):", listed[1], re.MULTILINE)]
    return [step for step, _ in quotable(request)] or [0]


def answer_to(request: Request) -> dict[str, Any]:
    """An answer that fits the request's schema and the trace it shows."""
    quotes = dict(quotable(request))
    steps = steps_at_hand(request)
    middle = steps[len(steps) // 2]

    def value(name: str, schema: dict[str, Any], step: int) -> Any:
        if schema["type"] == "object":
            return {key: value(key, part, step) for key, part in schema["properties"].items()}
        if name in _VALUES:
            known = _VALUES[name]
            return known if "enum" not in schema or known in schema["enum"] else schema["enum"][0]
        if schema["type"] == "array":
            item = schema["items"]
            if item["type"] != "object":
                return [value(name, item, step)]
            several = steps[:3] if {"step", "first", "source"} & item["properties"].keys() else [step]
            if name == "subtasks" and "first" in item["properties"]:
                several = steps[:1]
            return [value(name, item, chosen) for chosen in several]
        if name in ("step", "first", "source"):
            return step
        if name == "target":
            final = re.search(r"which counts as step (\d+)", request.prompt)
            return int(final[1]) if final else step + 1
        if schema["type"] == "boolean":
            return True
        if name == "agent":
            return schema.get("enum", [""])[-1]
        if name == "quote":
            return quotes.get(step, "")
        if name == "constraint":
            named = _CONSTRAINTS.search(request.prompt)
            return named[1] if named else "none"
        return f"{name} in words"

    schema = request.body["response_format"]["json_schema"]["schema"]
    return {key: value(key, part, middle) for key, part in schema["properties"].items()}


def player(changed: Mapping[str, Answer | Reply] | None = None) -> Callable[[Request], Reply]:
    """A server's behaviour: good answers, save for the forms that ``changed`` names."""

    def play(request: Request) -> Reply:
        change = (changed or {}).get(form_of(request))
        if isinstance(change, Reply):
            return change
        answer = answer_to(request)
        return json_reply(change(request, answer) if change else answer)

    return play


def check(trace: Trace, report: Report) -> None:
    """The report fits the published schema and the trace, whatever a model said."""
    jsonschema.validate(json.loads(report.model_dump_json()), SCHEMA)
    facts = TraceFacts(trace)
    assert report.step is None or facts.has_step(report.step)
    assert report.agent is None or report.agent in trace.agents
    assert report.asil.rank >= report.severity.floor.rank
    assert report.severity.floor == LocalAttribution().judge(trace).severity.floor
    for cause in report.root_causes:
        assert cause.step is None or facts.has_step(cause.step)
        assert cause.agent is None or cause.agent in trace.agents
    steps = [candidate.step for candidate in report.candidates]
    assert len(steps) == len(set(steps)) and all(facts.has_step(step) for step in steps)
    assert steps[:1] == ([report.step] if report.step is not None else steps[:1])


class Rig:
    """A method on a server, with every call it made."""

    def __init__(
        self, server: ChatServer, *, scanner: bool = True, llm: dict[str, Any] | None = None
    ) -> None:
        self.server = server
        self.records: list[CallRecord] = []
        large = RoleSettings(base_url=server.url, model="large", input_price=1, output_price=2)
        small = RoleSettings(base_url=server.url, model="small", input_price=0.1, output_price=0.2)
        self.settings = LlmSettings(
            analyst=large,
            scanner=small if scanner else None,
            trust_environment=False,
            cache=CacheSettings(enabled=False),
            retry=RetrySettings(attempts=1),
            breaker=BreakerSettings(failures=1_000),
            **(llm or {}),
        )
        self.client = ChatClient(self.settings, observe=self.records.append)

    @property
    def attribution(self) -> AttributionSettings:
        """Settings with this server as endpoint."""
        return AttributionSettings(panel=PanelSettings(llm=self.settings))

    def method(self, kind: Any, **options: Any) -> Any:
        """A method of a class of ours, with options."""
        if kind is PanelAttribution:
            return kind(self.attribution, client=self.client)
        return kind(self.attribution, options, client=self.client)

    def purposes(self) -> Counter[str]:
        """What was asked, by stage: the first two parts of each purpose."""
        return Counter("/".join(record.purpose.split("/")[:2]) for record in self.records)

    async def __aenter__(self) -> Rig:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


def long_enough(traces: list[Trace], least: int) -> Trace:
    """The first trace with at least so many steps."""
    return next(trace for trace in traces if len(trace.steps) >= least)
