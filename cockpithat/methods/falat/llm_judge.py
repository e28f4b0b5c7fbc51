"""The search's questions, put to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cockpithat.contract.base import Asil
from cockpithat.methods.base import LlmMethod
from cockpithat.methods.case import Case, gathered, section
from cockpithat.methods.falat.search import (
    NAME,
    FalatOptions,
    further_causes,
    hypothesis_of,
    search,
)
from cockpithat.methods.falat.space import Hierarchy, Moment, Prior, Space, Stage, Suspect, align
from cockpithat.methods.falat.transitions import NAMES, Transition, TransitionType
from cockpithat.methods.falat.verdict import PARTS, Assessment, Challenge, Part, ThreeTests
from cockpithat.methods.finding import Finding
from cockpithat.methods.forms import (
    CATEGORY,
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    category_in,
    choice,
    flag,
    form,
    items,
    listing,
    one_of,
    quote_in,
    record,
    refuse,
    share,
    step_in,
    steps_in,
    words,
)
from cockpithat.panel.answers import integer
from cockpithat.panel.envelope import agents_line
from cockpithat.panel.prompts import categories_text
from cockpithat.slicing.marks import single_line

_MAX_PRIOR_ITEMS = 8
_ASIL = one_of([asil.value for asil in Asil])
_MAX_TASK, _MAX_OUTPUT, _MAX_ROLE = 2_400, 1_200, 300  # characters


def blind_head(case: Case) -> str:
    """What the prior may see: task, roster with descriptions, wrong final output; no step, no answer."""
    trace = case.trace
    lines = [agents_line(trace), "Task: " + single_line(trace.task)[:_MAX_TASK]]
    lines += [
        f"{single_line(agent.name)}: {single_line(agent.description)[:_MAX_ROLE]}"
        for agent in trace.roster
        if agent.description
    ]
    lines.append(
        "Final output, which is wrong: " + (single_line(trace.final_answer)[:_MAX_OUTPUT] or "(none)")
    )
    return "\n".join(lines)


class LlmJudge:
    """One trace's judge."""

    def __init__(self, case: Case, options: FalatOptions) -> None:
        self.case, self.options = case, options

    def _overview(self, space: Space) -> str:
        """The compressed trajectory: the upper levels; in the ablation, the log cut to the same budget."""
        if space.hierarchy is not None:
            return section("EXECUTION", space.hierarchy.lines())
        return self.case.log(self.options.overview_tokens)

    @staticmethod
    def _expected(space: Space) -> str:
        return section("EXPECTATION", space.prior.lines()) if space.prior is not None else ""

    @staticmethod
    def _dependencies(space: Space) -> str:
        return section("DEPENDENCIES", space.transitions)

    @staticmethod
    def _listed(suspects: Sequence[Suspect]) -> str:
        return section(
            "CANDIDATES", [f"step {s.step}: {s.why}" for s in sorted(suspects, key=lambda s: s.step)]
        )

    def _around(self, suspects: Sequence[Suspect], reach: int = 1) -> str:
        """Raw evidence of candidates and the steps directly around them."""
        n = self.case.n
        near = {i for s in suspects for i in range(max(0, s.step - reach), min(n, s.step + reach + 1))}
        return self.case.log(self.options.evidence_tokens, sorted(near))

    async def prior(self) -> Prior:
        def read(data: dict[str, Any]) -> Prior:
            output = words(data, "expected_output", 400)
            if not output:
                raise refuse("expected_output is empty")
            roles = [
                (agent, words(item, "scope"))
                for item in items(data, "roles")
                if isinstance(item.get("agent"), str)
                and (agent := self.case.facts.agent(item["agent"])) is not None
            ]
            return Prior(
                output,
                _texts(data, "requirements"),
                tuple((single_line(agent), scope) for agent, scope in roles[:_MAX_PRIOR_ITEMS]),
                _texts(data, "risks"),
            )

        return await self.case.ask(
            "falat-prior",
            (blind_head(self.case),),
            form(
                "prior",
                expected_output=TEXT,
                requirements=listing(TEXT),
                roles=listing(record(agent=TEXT, scope=TEXT)),
                risks=listing(TEXT),
            ),
            read,
            "falat/prior",
        )

    async def hierarchy(self, space: Space) -> Hierarchy:
        def read(data: dict[str, Any]) -> Hierarchy:
            stages = [
                Stage(first, first, words(item, "summary"))
                for item in items(data, "stages", needed=True)
                if (first := step_in(item, self.case.facts, "first")) is not None
            ]
            moments = [
                Moment(step, words(item, "what"))
                for item in items(data, "moments")
                if (step := step_in(item, self.case.facts)) is not None
            ]
            if not stages:
                raise refuse("no stage begins at a step that exists")
            return align(stages, moments, space.n)

        return await self.case.ask(
            "falat-hierarchy",
            (self.case.head, self._expected(space), self.case.log(self.options.overview_tokens)),
            form(
                "hierarchy",
                stages=listing(record(first=INTEGER, summary=TEXT)),
                moments=listing(record(step=INTEGER, what=TEXT)),
            ),
            read,
            "falat/hierarchy",
        )

    async def suspects(self, space: Space) -> list[Suspect]:
        asked = [self._window(space, window) for window in space.windows]
        answers, errors = await gathered(asked)
        if not answers and errors:
            raise errors[0]
        if errors:
            space.notes.append(f"{len(errors)} of {len(asked)} windows have no answer")
        return [suspect for answer in answers for suspect in answer]

    async def _window(self, space: Space, window: range) -> list[Suspect]:
        informed = space.prior is not None
        fields = {"step": INTEGER, "relevance": NUMBER, "local_inconsistency": NUMBER}
        if informed:
            fields["prior_inconsistency"] = NUMBER

        def read(data: dict[str, Any]) -> list[Suspect]:
            return [
                Suspect(
                    step,
                    share(item, "relevance"),
                    share(item, "local_inconsistency"),
                    share(item, "prior_inconsistency") if informed else None,
                    words(item, "why"),
                )
                for item in items(data, "suspects")
                if (step := step_in(item, self.case.facts)) is not None and step in window
            ]

        return await self.case.ask(
            "falat-suspects",
            (
                self.case.head,
                self._expected(space),
                self._overview(space) if space.hierarchy is not None else "",
                self.case.log(self.options.window_tokens, window),
            ),
            form("suspects", suspects=listing(record(**fields, why=TEXT))),
            read,
            f"falat/suspects/{window[0]}-{window[-1]}",
            first=str(window[0]),
            last=str(window[-1]),
            prior="prior_inconsistency (it goes against the expectation), " if informed else "",
            prior_field='"prior_inconsistency": 0 to 1, ' if informed else "",
        )

    async def transitions(self, space: Space, suspects: Sequence[Suspect]) -> list[Transition]:
        wanted = {s.step for s in suspects}

        def read(data: dict[str, Any]) -> list[Transition]:
            found = []
            for item in items(data, "transitions"):
                source, target = integer(item.get("source")), integer(item.get("target"))
                kind = choice(item, "type", NAMES)
                if source is None or target is None or kind is None:
                    continue
                if source in wanted and source < target <= space.n:
                    value = words(item, "value", 80)
                    found.append(Transition(source, target, TransitionType(kind), value))
            return found

        graph = self.case.trace.graph
        edges = [e for e in graph.edges if e.source in wanted or e.target in wanted] if graph else []
        hints = [f"{e.source} -> {e.target}: {', '.join(x.signal for x in e.evidence)}" for e in edges[:60]]
        return await self.case.ask(
            "falat-transitions",
            (
                self.case.head,
                self._overview(space) if space.hierarchy is not None else "",
                section("LINKS FOUND BY RULES", hints),
                self._listed(suspects),
                self._around(suspects),
            ),
            form(
                "transitions",
                transitions=listing(record(source=INTEGER, target=INTEGER, type=one_of(NAMES), value=TEXT)),
            ),
            read,
            "falat/transitions",
            final=str(space.n),
        )

    async def verify(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        parts = (self.case.head, self._dependencies(space), self._listed(suspects), self._around(suspects))
        return await self._scored("falat-verify", parts, suspects)

    async def narrow(self, space: Space, suspects: Sequence[Suspect]) -> Mapping[int, float]:
        parts = (
            self.case.head,
            self._expected(space),
            self._dependencies(space),
            self._overview(space),
            self._listed(suspects),
        )
        return await self._scored("falat-narrow", parts, suspects)

    async def _scored(
        self, name: str, parts: Sequence[str], suspects: Sequence[Suspect]
    ) -> Mapping[int, float]:
        wanted = {s.step for s in suspects}

        def read(data: dict[str, Any]) -> dict[int, float]:
            found = {
                step: share(item, "score")
                for item in items(data, "scores", needed=True)
                if (step := step_in(item, self.case.facts)) in wanted and step is not None
            }
            if not found:
                raise refuse("no score is for a candidate")
            return found

        scores = listing(record(step=INTEGER, why=TEXT, score=NUMBER))
        return await self.case.ask(name, parts, form("scores", scores=scores), read, name.replace("-", "/"))

    async def test(self, space: Space, suspects: Sequence[Suspect]) -> Assessment:
        wanted = {s.step for s in suspects}

        def read(data: dict[str, Any]) -> Assessment:
            tested = {
                step: ThreeTests(
                    step, flag(item, "independent"), flag(item, "sufficient"), flag(item, "precedes")
                )
                for item in items(data, "tests", needed=True)
                if (step := step_in(item, self.case.facts)) in wanted and step is not None
            }
            if not tested:
                raise refuse("no test is for a candidate")
            joint = data.get("joint")
            groups = joint if isinstance(joint, list) else []
            return Assessment(
                tuple(tested.values()), tuple(tuple(steps_in(g, self.case.facts)) for g in groups[:8])
            )

        tests = record(step=INTEGER, why=TEXT, independent=FLAG, sufficient=FLAG, precedes=FLAG)
        return await self.case.ask(
            "falat-tests",
            (
                self.case.head,
                self._expected(space),
                self._dependencies(space),
                self._overview(space) if space.hierarchy is not None else "",
                self._listed(suspects),
                self._around(suspects),
            ),
            form("tests", tests=listing(tests), joint=listing(listing(INTEGER))),
            read,
            "falat/tests",
        )

    async def challenge(
        self, space: Space, predicted: int, near: Sequence[int], together: Sequence[int]
    ) -> list[Challenge]:
        facts = self.case.facts

        def read(data: dict[str, Any]) -> list[Challenge]:
            rating = data.get("asil")
            asil = Asil(rating) if rating in set(Asil) else Asil.UNRATED
            found: dict[int, Challenge] = {}
            for item in items(data, "steps", needed=True):
                step = step_in(item, facts)
                if step is None or step not in near:
                    continue
                given = item.get("agent")
                agent = facts.agent(given) if isinstance(given, str) else None
                part = choice(item, "role", PARTS)
                found[step] = Challenge(
                    step,
                    share(item, "suspicion"),
                    Part(part) if part else Part.CONTRIBUTING,
                    flag(item, "recovers"),
                    agent or self.case.trace.steps[step].agent,
                    category_in(item),
                    asil,
                    words(item, "argument"),
                    facts.evidence(NAME, quote_in(item, step)),
                )
            if predicted not in found:
                raise refuse(f"step {predicted} is not judged")
            return list(found.values())

        one = record(
            step=INTEGER,
            agent=one_of(self.case.trace.agents),
            argument=TEXT,
            role=one_of(PARTS),
            recovers=FLAG,
            suspicion=NUMBER,
            category=CATEGORY,
            quote=TEXT,
        )
        corrected = f" Take it that {_named(together)} would be corrected too." if together else ""
        return await self.case.ask(
            "falat-challenge",
            (
                self.case.head,
                self._expected(space),
                self._dependencies(space),
                self.case.log(self.options.evidence_tokens, near),
            ),
            form("challenge", steps=listing(one), asil=_ASIL),
            read,
            f"falat/challenge/{predicted}",
            predicted=str(predicted),
            near=", ".join(str(step) for step in near),
            corrected=corrected,
            categories=categories_text(),
        )


def _named(steps: Sequence[int]) -> str:
    return " and ".join(f"step {step}" for step in steps)


def _texts(data: dict[str, Any], name: str) -> tuple[str, ...]:
    values = data.get(name)
    if not isinstance(values, list):
        raise refuse(f"{name} must be a list")
    return tuple(single_line(v)[:200] for v in values[:_MAX_PRIOR_ITEMS] if isinstance(v, str) and v.strip())


class Falat(LlmMethod[FalatOptions]):
    """FALAT with a model as judge."""

    name = NAME
    options_type = FalatOptions
    prompts = tuple(
        f"falat-{stage}"
        for stage in (
            "prior",
            "hierarchy",
            "suspects",
            "transitions",
            "verify",
            "narrow",
            "tests",
            "challenge",
        )
    )

    async def find(self, case: Case) -> Finding:
        def fallback(step: int) -> Challenge:
            agent = case.trace.steps[step].agent
            return Challenge(step, 0.5, Part.ROOT_CAUSE, False, agent)

        outcome = await search(LlmJudge(case, self.options), case.n, self.options, fallback)
        vote = hypothesis_of(outcome)
        if vote.category is None:
            category = case.examination.category_at(vote.step or 0, vote.agent)
            vote = vote.model_copy(update={"category": category})
        return self.single(
            case,
            vote,
            scores=outcome.scores,
            causes=further_causes(outcome),
            notes=outcome.notes,
            reasons=outcome.reasons,
        )
