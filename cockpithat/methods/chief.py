"""CHIEF (2602.23701): hierarchical causal graph, virtual oracles, backtracking, causal screening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from cockpithat.llm import Schema
from cockpithat.methods.base import LlmMethod
from cockpithat.methods.case import FAILED, Case, gathered, section
from cockpithat.methods.chief_screen import Screened, Subtask, backtrack, screen
from cockpithat.methods.falat.space import Stage, align
from cockpithat.methods.finding import Finding
from cockpithat.methods.forms import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    flag,
    form,
    items,
    listing,
    record,
    refuse,
    share,
    step_in,
    words,
)
from cockpithat.methods.options import ModelOptions
from cockpithat.methods.who_when import hypothesis_of
from cockpithat.panel.answers import JOINT, Answer, integer
from cockpithat.panel.prompts import categories_text


class ChiefOptions(ModelOptions):
    """Bounds; the source states none of the numbers, so all are reconstructed."""

    overview_tokens: int = Field(8_000, ge=200, description="Log from which the graph is built (approx-1)")
    subtask_tokens: int = Field(4_000, ge=200, description="Raw steps of one subtask in one call")
    evidence_tokens: int = Field(5_000, ge=200, description="Raw evidence around candidates in one call")
    subtasks: int = Field(3, ge=1, description="Subtasks followed to their steps")
    candidates: int = Field(6, ge=1, description="Candidates that are screened")


class Chief(LlmMethod[ChiefOptions]):
    """Four stages: graph, oracles, backtracking by level, screening."""

    name = "chief"
    options_type = ChiefOptions
    prompts = ("chief-graph", "chief-oracles", "chief-subtasks", "chief-steps", "chief-screen")

    async def find(self, case: Case) -> Finding:
        notes: list[str] = []
        subtasks, steps = await self._graph(case)
        oracles: dict[int, str] = {}
        try:
            oracles = await self._oracles(case, subtasks)
        except FAILED as error:
            notes.append(f"no virtual oracles ({error})")
        shown = _shown(subtasks, oracles)
        try:
            missed = await self._missed(case, subtasks, shown, steps)
        except FAILED as error:
            notes.append(f"no check of subtasks ({error})")
            missed = {s.number for s in subtasks}
        walked = backtrack(subtasks, missed, self.options.subtasks)
        found, errors = await gathered([self._within(case, subtask, shown) for subtask in walked])
        if not found:
            raise errors[0]
        if errors:
            notes.append(f"{len(errors)} of {len(walked)} subtasks have no answer")
        scores: dict[int, float] = {}
        for part in found:
            for step, score in part.items():
                scores[step] = max(scores.get(step, 0.0), score)
        if not scores:
            raise refuse("no step misses an oracle")
        ranked = sorted(scores, key=lambda step: (-scores[step], step))[: self.options.candidates]
        screened, answer = await self._screen(case, shown, ranked)
        left = screen(screened, {step: scores[step] for step in ranked})
        step = left[0]
        vote = hypothesis_of(self.name, answer)
        if step != answer.step:  # the screens decide; the answer's own choice speaks for another step
            agent = case.trace.steps[step].agent
            vote = vote.model_copy(
                update={
                    "step": step,
                    "agent": agent,
                    "category": case.examination.category_at(step, agent),
                    "confidence": round(0.8 * vote.confidence, 4),
                    "evidence": tuple(e for e in vote.evidence if e.step == step),
                }
            )
        scores = {s: 0.5 * value for s, value in scores.items()} | {
            s: 0.9 - 0.1 * place for place, s in enumerate(left[:4])
        }
        return self.single(case, vote, scores=scores, notes=tuple(notes))

    async def _graph(self, case: Case) -> tuple[list[Subtask], list[str]]:
        """Subtasks that cover the log, and key steps as observation, thought, action, result."""

        def read(data: dict[str, Any]) -> tuple[list[Subtask], list[str]]:
            given = [
                (first, item)
                for item in items(data, "subtasks", needed=True)
                if (first := step_in(item, case.facts, "first")) is not None
            ]
            if not given:
                raise refuse("no subtask begins at a step that exists")
            aligned = align([Stage(first, first, words(item, "goal")) for first, item in given], (), case.n)
            needs: dict[int, tuple[int, ...]] = {}
            for first, item in given:
                listed = item.get("needs")
                numbers = [integer(v) for v in listed] if isinstance(listed, list) else []
                needs.setdefault(first, tuple(v for v in numbers if v is not None))
            begins = sorted(needs)  # in the order of the aligned stages, the first of which begins at 0
            subtasks = [
                Subtask(
                    number,
                    stage.summary,
                    stage.first,
                    stage.last,
                    # Causes come before effects; without any the previous subtask is taken for the cause.
                    tuple(v for v in needs[begins[number - 1]] if 1 <= v < number)
                    or ((number - 1,) if number > 1 else ()),
                )
                for number, stage in enumerate(aligned.stages, 1)
            ]
            steps = [
                f"step {step}: " + "; ".join(f"{name} {words(item, name, 120)}" for name in _OTAR)
                for item in items(data, "steps")
                if (step := step_in(item, case.facts)) is not None
            ]
            return subtasks, steps

        return await case.ask(
            "chief-graph",
            (case.head, case.log(self.options.overview_tokens)),
            form(
                "causal_graph",
                subtasks=listing(record(first=INTEGER, goal=TEXT, needs=listing(INTEGER))),
                steps=listing(record(step=INTEGER, **dict.fromkeys(_OTAR, TEXT))),
            ),
            read,
            "chief/graph",
        )

    async def _oracles(self, case: Case, subtasks: Sequence[Subtask]) -> dict[int, str]:
        def read(data: dict[str, Any]) -> dict[int, str]:
            found = {
                number: words(item, "delivers")
                for item in items(data, "oracles", needed=True)
                if (number := integer(item.get("subtask"))) is not None and words(item, "delivers")
            }
            if not found:
                raise refuse("no oracle is for a subtask")
            return found

        return await case.ask(
            "chief-oracles",
            (case.head, section("SUBTASKS", _shown(subtasks, {}))),
            form("oracles", oracles=listing(record(subtask=INTEGER, delivers=TEXT))),
            read,
            "chief/oracles",
        )

    async def _missed(
        self, case: Case, subtasks: Sequence[Subtask], shown: Sequence[str], steps: Sequence[str]
    ) -> set[int]:
        """Numbers of the subtasks that miss their oracle."""

        def read(data: dict[str, Any]) -> set[int]:
            verdicts = items(data, "subtasks", needed=True)
            return {
                number
                for item in verdicts
                if (number := integer(item.get("subtask"))) is not None and item.get("met") is False
            }

        return await case.ask(
            "chief-subtasks",
            (
                case.head,
                section("SUBTASKS", shown),
                section("KEY STEPS", steps),
                case.log(self.options.overview_tokens),
            ),
            form("checks", subtasks=listing(record(subtask=INTEGER, why=TEXT, met=FLAG))),
            read,
            "chief/subtasks",
        )

    async def _within(self, case: Case, subtask: Subtask, shown: Sequence[str]) -> dict[int, float]:
        """Steps of one subtask that may be behind its missing the oracle, with a score."""
        span = range(subtask.first, subtask.last + 1)

        def read(data: dict[str, Any]) -> dict[int, float]:
            return {
                step: share(item, "score")
                for item in items(data, "steps")
                if (step := step_in(item, case.facts)) in span and step is not None
            }

        return await case.ask(
            "chief-steps",
            (case.head, section("SUBTASKS", shown), case.log(self.options.subtask_tokens, span)),
            form("suspect_steps", steps=listing(record(step=INTEGER, why=TEXT, score=NUMBER))),
            read,
            f"chief/steps/{subtask.number}",
            number=str(subtask.number),
        )

    async def _screen(
        self, case: Case, shown: Sequence[str], candidates: Sequence[int]
    ) -> tuple[list[Screened], Answer]:
        base = JOINT.schema(case.facts)
        screens = record(step=INTEGER, why=TEXT, own=FLAG, lasting=FLAG, recovers=FLAG)
        schema = Schema("screening", record(screens=listing(screens), **base.body["properties"]))

        def read(data: dict[str, Any]) -> tuple[list[Screened], Answer]:
            screened = [
                Screened(step, flag(item, "own"), flag(item, "lasting"), flag(item, "recovers"))
                for item in items(data, "screens", needed=True)
                if (step := step_in(item, case.facts)) in candidates and step is not None
            ]
            return screened, JOINT.read(data, self.name, case.facts)

        near = {i for s in candidates for i in range(max(0, s - 1), min(case.n, s + 2))}
        return await case.ask(
            "chief-screen",
            (case.head, section("SUBTASKS", shown), case.log(self.options.evidence_tokens, sorted(near))),
            schema,
            read,
            "chief/screen",
            candidates=", ".join(str(step) for step in sorted(candidates)),
            categories=categories_text(),
        )


_OTAR = ("observation", "thought", "action", "result")


def _shown(subtasks: Sequence[Subtask], oracles: dict[int, str]) -> list[str]:
    return [
        f"subtask {s.number} (steps {s.first}-{s.last}"
        + (f", needs {', '.join(map(str, s.needs))}" if s.needs else "")
        + f"): {s.goal}"
        + (f" | should deliver: {oracles[s.number]}" if s.number in oracles else "")
        for s in subtasks
    ]
