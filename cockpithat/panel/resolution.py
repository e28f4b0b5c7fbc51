"""Calibrated disagreement resolution (section 3.4): defend by citation, then the mechanical tie-break."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence

from cockpithat.channels.tags import Salience
from cockpithat.consensus import Resolver, mechanical_resolution
from cockpithat.contract.reports import Hypothesis
from cockpithat.llm import LlmError, Message, Role
from cockpithat.panel.answers import DEFENCE, Answer, UnusableAnswerError
from cockpithat.panel.asking import Line, ask
from cockpithat.panel.envelope import agents_line, enclose
from cockpithat.panel.prompts import prompt
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.marks import SALIENT, single_line
from cockpithat.slicing.render import StepText

DEFENCE_TOKENS = 500  # context of a defence: the steps in question only


def _steps_in_question(hypotheses: Sequence[Hypothesis]) -> list[int]:
    """Steps that somebody blamed or quoted, those blamed first."""
    blamed = [h.step for h in hypotheses if h.answered and h.step is not None]
    quoted = [e.step for h in hypotheses if h.answered for e in h.evidence if e.step is not None]
    return list(dict.fromkeys([*blamed, *quoted]))


def _excerpt(steps: Sequence[int], facts: TraceFacts, salience: Mapping[int, Salience]) -> str:
    share = max(40, DEFENCE_TOKENS // max(len(steps), 1))
    lines: list[str] = [agents_line(facts.trace)]
    left = DEFENCE_TOKENS
    kept: dict[int, str] = {}
    for index in steps:
        text = StepText(facts.trace.steps[index])
        rendering = text.verbatim if text.verbatim.tokens <= share else text.key(share)
        if rendering.tokens > left:
            break
        left -= rendering.tokens
        mark = f" {SALIENT}{salience[index].tag}]" if index in salience else ""
        kind = f" ~{rendering.kind}" if rendering.kind else ""
        kept[index] = f"== {single_line(text.step.agent)}\n@{index}{mark}{kind}\n{rendering.text}"
    lines.extend(kept[index] for index in sorted(kept))
    return "\n".join(lines)


def _value(hypothesis: Hypothesis) -> str:
    """A hypothesis as plain values. Its rationale stays out: free text may carry a trace's orders."""
    return json.dumps(
        {
            "step": hypothesis.step,
            "agent": hypothesis.agent,
            "category": hypothesis.category.value if hypothesis.category else None,
        },
        ensure_ascii=False,
    )


async def _defend(
    line: Line, own: Hypothesis, hypotheses: Sequence[Hypothesis], excerpt: str, facts: TraceFacts
) -> Hypothesis:
    envelope = enclose(excerpt)
    others = Counter(_value(h) for h in hypotheses if h.answered and h is not own)
    question = prompt("defend").fill(
        own=_value(own),
        others="; ".join(f"{count}: {value}" for value, count in sorted(others.items())) or "none",
    )
    messages: list[Message] = [
        {"role": "system", "content": prompt("common").fill(nonce=envelope.nonce)},
        {"role": "user", "content": f"{envelope.text}\n\n{prompt(own.analyst).text}\n\n{question}"},
    ]
    try:
        answer: Answer = await ask(
            line,
            Role.ANALYST,
            messages,
            DEFENCE.schema(facts),
            lambda data: DEFENCE.read(data, own.analyst, facts),
            f"{own.analyst}/{DEFENCE.name}",
        )
    except (LlmError, UnusableAnswerError):
        return own  # it stands by what it said, with the evidence it gave
    return own.model_copy(
        update={
            "step": answer.step,
            "agent": answer.agent,
            "category": answer.category,
            "confidence": answer.confidence,
            "rationale": answer.rationale,
            # A new answer stands on its own citations; an upheld one keeps the earlier ones as well.
            "evidence": answer.evidence
            if (answer.step, answer.agent) != (own.step, own.agent)
            else tuple({(e.step, e.text): e for e in (*own.evidence, *answer.evidence)}.values()),
        }
    )


async def defend(
    line: Line,
    hypotheses: Sequence[Hypothesis],
    facts: TraceFacts,
    salience: Mapping[int, Salience] | None = None,
) -> list[Hypothesis]:
    """One round: every analyst that answered defends or changes its answer. Severity is not up for debate."""
    excerpt = _excerpt(_steps_in_question(hypotheses), facts, salience or {})
    return list(
        await asyncio.gather(
            *(_defend(line, h, hypotheses, excerpt, facts) if h.answered else _same(h) for h in hypotheses)
        )
    )


async def _same(hypothesis: Hypothesis) -> Hypothesis:
    return hypothesis


def resolver(defended: Sequence[Hypothesis]) -> Resolver:
    """The consensus's hook: defended hypotheses; one without a citation that checks out loses its vote."""
    return lambda _hypotheses, decision, supports: mechanical_resolution(defended, decision, supports)
