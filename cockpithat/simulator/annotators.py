"""Simulated annotators and the annotation protocol of appendix A.1.3.

Nobody annotated these traces: three programs with settable error rates stand in for the dialogue
specialist, the vehicle engineer and the safety analyst, so that the protocol, the contested marker and
the agreement statistics can be exercised. Their agreement is what the settings make it, not a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.contract.base import Asil, Category
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.labels import (
    Annotation,
    AnnotatorLabel,
    AuditRecord,
    ConsensusLabel,
    Gold,
    Marker,
)

ROLES: tuple[Literal["dialogue", "vehicle", "safety"], ...] = ("dialogue", "vehicle", "safety")
_LEVELS = (Asil.A, Asil.B, Asil.C, Asil.D)
_EMBODIED = tuple(Category)[4:]
_TEXTUAL = tuple(Category)[:4]
_CHANNELS = {"dialogue": ("c", "m"), "vehicle": ("sigma", "e"), "safety": ("sigma", "e", "c")}

T = TypeVar("T", bound=Hashable)


class AnnotatorSettings(BaseModel):
    """How often a simulated annotator is right, and how the protocol samples."""

    model_config = ConfigDict(frozen=True)

    agent: float = Field(0.91, ge=0, le=1, description="share of right agents on an ordinary trace")
    step: float = Field(0.87, ge=0, le=1, description="share of right steps where the agent is right")
    category: float = Field(0.94, ge=0, le=1, description="share of right categories outside the own field")
    own_field: float = Field(0.05, ge=0, le=1, description="added to `category` inside the own field")
    asil: float = Field(0.92, ge=0, le=1, description="share of right ASIL")
    hard_share: float = Field(0.16, ge=0, le=1, description="share of ambiguous traces")
    hard_factor: float = Field(0.32, ge=0, le=1, description="factor on all shares on an ambiguous trace")
    stability: float = Field(0.90, ge=0, le=1, description="share of re-annotations that repeat the first")
    reannotated: float = Field(0.10, ge=0, le=1, description="share of traces annotated again")
    audited_rest: float = Field(0.20, ge=0, le=1, description="share of A and B traces audited")
    audit_agreement: float = Field(0.964, ge=0, le=1, description="share of audits that confirm the rating")


class TraceView(BaseModel):
    """What an annotator needs of a trace: who acted at which step and when."""

    model_config = ConfigDict(frozen=True)

    agents: tuple[str, ...]
    timestamps: tuple[int, ...]
    driver: str


def annotate(
    role: Literal["dialogue", "vehicle", "safety"],
    gold: Gold,
    markers: Sequence[Marker],
    view: TraceView,
    settings: AnnotatorSettings,
    dice: Dice,
) -> AnnotatorLabel:
    """One simulated annotator's record of one trace."""
    hard = dice.chance(settings.hard_share, "hard")
    factor = settings.hard_factor if hard else 1.0

    def right(share: float, what: str) -> bool:
        return dice.chance(min(1.0, share) * factor, role, what)

    agent, step = gold.agent, gold.step
    if not right(settings.agent, "agent"):
        later = [a for a in view.agents[gold.step :] if a not in (gold.agent, view.driver)]
        others = later or [a for a in view.agents if a != gold.agent]
        if others:
            agent = dice.choice(others, role, "other agent")
            own = [i for i, a in enumerate(view.agents) if a == agent]
            step = min(own, key=lambda i: (abs(i - gold.step), i))
    elif not right(settings.step, "step"):
        own = [i for i, a in enumerate(view.agents) if a == agent and i != gold.step]
        near = sorted(own, key=lambda i: (abs(i - gold.step), i))[:3]
        if near:
            step = dice.choice(near, role, "other step")
    field = _TEXTUAL if role == "dialogue" else _EMBODIED
    category = gold.category
    if not right(settings.category + (settings.own_field if category in field else 0.0), "category"):
        category = dice.choice([c for c in Category if c != gold.category], role, "other category")
    asil = gold.asil
    if not right(settings.asil, "asil"):
        at = _LEVELS.index(gold.asil)
        asil = dice.choice([level for i, level in enumerate(_LEVELS) if abs(i - at) == 1], role, "other asil")
    base = 0.5 if hard else 0.78
    return AnnotatorLabel(
        role=role,
        agent=agent,
        step=step,
        ts=view.timestamps[step],
        category=category,
        asil=asil,
        confidence=round(min(0.99, base + dice.uniform(-0.12, 0.2, role, "confidence")), 2),
        evidence=tuple(m for m in markers if m.channel in _CHANNELS[role])[:3],
    )


def consensus(labels: Sequence[AnnotatorLabel]) -> ConsensusLabel:
    """The rules: equal labels are adopted, else the majority; ASIL is the most severe of all.

    Three different agents make a trace contested. A dimension without a majority stays open, unless the
    agent has one: then the step of the most confident annotator who named that agent is taken.
    """
    agent = _majority([label.agent for label in labels])
    step = _majority([label.step for label in labels])
    category = _majority([label.category for label in labels])
    asil = max((label.asil for label in labels), key=lambda level: level.rank)
    contested = agent is None
    unanimous = len({(label.agent, label.step, label.category, label.asil) for label in labels}) == 1
    if not contested:
        sure = max((label for label in labels if label.agent == agent), key=lambda label: label.confidence)
        step = sure.step if step is None else step
        category = sure.category if category is None else category
    return ConsensusLabel(
        agent=agent,
        step=None if contested else step,
        category=category,
        asil=asil,
        unanimous=unanimous,
        contested=contested,
        method="contested" if contested else "unanimous" if unanimous else "majority",
    )


def _majority(values: Sequence[T]) -> T | None:
    value, count = Counter(values).most_common(1)[0]
    return value if count * 2 > len(values) else None


def annotation(
    gold: Gold,
    markers: Sequence[Marker],
    view: TraceView,
    settings: AnnotatorSettings,
    dice: Dice,
    *,
    again: bool,
    sampled: bool,
) -> Annotation:
    """The whole protocol on one trace: three records, consensus, perhaps a second round, perhaps an audit."""
    originals = tuple(annotate(role, gold, markers, view, settings, dice) for role in ROLES)
    agreed = consensus(originals)
    second: tuple[AnnotatorLabel, ...] = ()
    if again:
        fresh = Dice(dice.unit("second round"))
        second = tuple(
            first
            if fresh.chance(settings.stability, first.role)
            else annotate(first.role, gold, markers, view, settings, fresh)
            for first in originals
        )
    audit = None
    high = agreed.asil in (Asil.C, Asil.D)
    if high or sampled:
        confirms = dice.chance(settings.audit_agreement, "audit")
        own = agreed.asil if confirms else gold.asil
        audit = AuditRecord(
            selected_as="high_severity" if high else "sample",
            asil=own,
            agrees=own == agreed.asil,
            corrected_to=None if own == agreed.asil else own,
        )
    return Annotation(originals=originals, consensus=agreed, reannotation=second, audit=audit)


def draw_sample(count: int, share: float, dice: Dice, name: str) -> frozenset[int]:
    """Indices of a random ``share`` of ``count`` traces, exactly that many."""
    return frozenset(dice.shuffled(range(count), name)[: round(share * count)])
