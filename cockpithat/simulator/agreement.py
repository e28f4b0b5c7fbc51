"""Agreement among annotators, and scores of a method against what the protocol recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from cockpithat.contract.reports import Report
from cockpithat.simulator.labels import AnnotatorLabel, SessionLabel


def fleiss_kappa(ratings: Sequence[Sequence[Hashable]]) -> float:
    """Fleiss' kappa of nominal ratings: one row a subject, the same number of ratings in each.

    1.0 when everybody always says the same. Raises ``ValueError`` on no rows or rows of unequal length.
    """
    if not ratings:
        raise ValueError("no ratings: kappa needs at least one subject")
    raters = len(ratings[0])
    if raters < 2 or any(len(row) != raters for row in ratings):
        raise ValueError("every subject needs the same number of ratings, at least two")
    totals: Counter[Hashable] = Counter()
    observed = 0.0
    for row in ratings:
        counts = Counter(row)
        totals.update(counts)
        observed += (sum(n * n for n in counts.values()) - raters) / (raters * (raters - 1))
    observed /= len(ratings)
    everything = raters * len(ratings)
    expected = sum((n / everything) ** 2 for n in totals.values())
    return 1.0 if expected == 1.0 else (observed - expected) / (1 - expected)


def with_tolerance(steps: Sequence[int], tolerance: int = 1) -> list[int]:
    """Steps of one trace, those within ``tolerance`` of their median made equal to it."""
    middle = sorted(steps)[len(steps) // 2]
    return [middle if abs(step - middle) <= tolerance else step for step in steps]


@dataclass(frozen=True)
class Agreement:
    """Agreement computed from annotation records; kappas by dimension, and how stable annotators were."""

    traces: int
    agent: float
    step: float  # with a tolerance of one step
    category: float
    asil: float
    contested: int
    audited: int
    audit_agreement: float
    reannotated: int
    stability: dict[str, float]


def agreement(labels: Iterable[SessionLabel]) -> Agreement:
    """Agreement over all annotated sessions. Raises ``ValueError`` when there is none."""
    annotated = [label.annotation for label in labels if label.annotation is not None]
    records = [note.originals for note in annotated]
    audits = [note.audit for note in annotated if note.audit is not None]
    pairs = [
        pair
        for note in annotated
        if note.reannotation
        for pair in zip(note.originals, note.reannotation, strict=True)
    ]
    return Agreement(
        traces=len(annotated),
        agent=fleiss_kappa([[r.agent for r in row] for row in records]),
        step=fleiss_kappa([with_tolerance([r.step for r in row]) for row in records]),
        category=fleiss_kappa([[r.category for r in row] for row in records]),
        asil=fleiss_kappa([[r.asil for r in row] for row in records]),
        contested=sum(note.consensus.contested for note in annotated),
        audited=len(audits),
        audit_agreement=_share(a.agrees for a in audits),
        reannotated=sum(bool(note.reannotation) for note in annotated),
        stability={
            "agent": _share(a.agent == b.agent for a, b in pairs),
            "step": _share(a.step == b.step for a, b in pairs),
            "category": _share(a.category == b.category for a, b in pairs),
            "asil": _share(a.asil == b.asil for a, b in pairs),
        },
    )


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else float("nan")


@dataclass(frozen=True)
class ChannelScore:
    """Whether a method looked where the evidence is: shares over failed sessions with a label."""

    n: int
    decisive_channel: float  # cites the channel that decides
    marked_evidence: float  # cites a marked step or signal


def channel_attention(reports: Iterable[tuple[Report, SessionLabel]]) -> ChannelScore:
    """Attention to the right channel (DP1), from the evidence that reports cite."""
    pairs = [(report, label) for report, label in reports if label.gold is not None]
    right = marked = 0
    for report, label in pairs:
        assert label.gold is not None
        right += any(e.channel == label.gold.channel for e in report.evidence)
        places = {(m.channel, m.step) for m in label.markers if m.step is not None}
        signals = {key for m in label.markers if m.channel == "sigma" for key in m.keys}
        marked += any(
            (e.channel, e.step) in places or any(path in signals for path in e.paths) for e in report.evidence
        )
    n = len(pairs)
    return ChannelScore(n, right / n if n else float("nan"), marked / n if n else float("nan"))


@dataclass(frozen=True)
class ContestedScore:
    """How well a method recognises contested traces (DP3)."""

    n: int
    contested: int
    precision: float
    recall: float


def contested_recognition(reports: Iterable[tuple[Report, SessionLabel]]) -> ContestedScore:
    """Precision and recall of ``Report.contested`` against the annotators' contested marker."""
    pairs = [(r.contested, label.annotation.consensus.contested) for r, label in reports if label.annotation]
    hits = sum(1 for said, true in pairs if said and true)
    said, true = sum(s for s, _ in pairs), sum(t for _, t in pairs)
    return ContestedScore(
        n=len(pairs),
        contested=true,
        precision=hits / said if said else float("nan"),
        recall=hits / true if true else float("nan"),
    )


def originals_of(label: SessionLabel) -> tuple[AnnotatorLabel, ...]:
    """The untouched first records of a trace; empty for sessions nobody annotated."""
    return label.annotation.originals if label.annotation else ()
