"""Annotation: records, consensus, re-annotation, audit, agreement, and scores against them."""

from __future__ import annotations

import math

import pytest

from cockpithat.contract.base import Asil, Category, Outcome
from cockpithat.contract.reports import Evidence, Provenance, Report
from cockpithat.simulator import (
    SimulatedSession,
    agreement,
    channel_attention,
    contested_recognition,
    fleiss_kappa,
)
from cockpithat.simulator.agreement import originals_of, with_tolerance
from cockpithat.simulator.annotators import AnnotatorSettings, TraceView, annotate, consensus
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.labels import AnnotatorLabel

Bench = list[SimulatedSession]
PLANNING, SAFETY = Category.PLANNING_FAILURE, Category.SAFETY_SAFEGUARD_FAILURE


def _label(role: str, agent: str, step: int = 3, category: Category = PLANNING, asil: Asil = Asil.A,
           confidence: float = 0.8) -> AnnotatorLabel:  # fmt: skip
    return AnnotatorLabel(
        role=role, agent=agent, step=step, ts=0, category=category, asil=asil, confidence=confidence
    )  # type: ignore[arg-type]


def test_fleiss_kappa_gives_the_value_of_the_textbook_example() -> None:
    """Fleiss (1971): ten subjects, fourteen raters, five categories; kappa 0.210."""
    counts = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    ratings = [[c for c, n in enumerate(row) for _ in range(n)] for row in counts]
    assert fleiss_kappa(ratings) == pytest.approx(0.210, abs=0.0005)


def test_kappa_is_one_on_full_agreement_and_refuses_uneven_rows() -> None:
    assert fleiss_kappa([["a", "a", "a"], ["b", "b", "b"]]) == 1.0
    assert fleiss_kappa([["a", "a"], ["a", "a"]]) == 1.0
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([["a", "a"], ["a"]])
    with pytest.raises(ValueError, match="no ratings"):
        fleiss_kappa([])


def test_steps_within_one_of_the_median_count_as_equal() -> None:
    assert with_tolerance([4, 5, 6]) == [5, 5, 5]
    assert with_tolerance([4, 5, 9]) == [5, 5, 9]


def test_equal_labels_are_adopted() -> None:
    result = consensus([_label(role, "Director") for role in ("dialogue", "vehicle", "safety")])
    assert result.method == "unanimous" and result.agent == "Director" and not result.contested


def test_a_majority_decides_and_the_most_severe_rating_stands() -> None:
    result = consensus(
        [
            _label("dialogue", "Director", 3, PLANNING, Asil.A),
            _label("vehicle", "Director", 3, SAFETY, Asil.B),
            _label("safety", "SafetyAgent", 5, SAFETY, Asil.D),
        ]
    )
    assert (result.agent, result.step, result.category) == ("Director", 3, SAFETY)
    assert result.asil == Asil.D and result.method == "majority"


def test_three_different_agents_make_a_contested_trace() -> None:
    labels = [_label("dialogue", "A", 1), _label("vehicle", "B", 2), _label("safety", "C", 3)]
    result = consensus(labels)
    assert result.contested and result.agent is None and result.step is None
    assert result.method == "contested"


def test_a_step_without_a_majority_goes_to_the_surest_who_named_the_agent() -> None:
    result = consensus(
        [
            _label("dialogue", "A", 1, confidence=0.6),
            _label("vehicle", "A", 2, confidence=0.9),
            _label("safety", "B", 7, confidence=0.95),
        ]
    )
    assert (result.agent, result.step) == ("A", 2)


def test_the_protocol_samples_as_described(bench: Bench) -> None:
    notes = [s.label.annotation for s in bench]
    assert all(note is not None and len(note.originals) == 3 for note in notes)
    assert sum(bool(note.reannotation) for note in notes if note) == 21  # 10 % of 212
    for note in notes:
        assert note is not None
        if note.consensus.asil in (Asil.C, Asil.D):
            assert note.audit is not None and note.audit.selected_as == "high_severity"
    low = [s for s in bench if s.label.gold and s.label.gold.asil in (Asil.A, Asil.B)]
    sampled = [
        s for s in low if s.label.annotation and s.label.annotation.audit
        and s.label.annotation.audit.selected_as == "sample"
    ]  # fmt: skip
    assert 0 < len(sampled) <= round(0.2 * len(low))


def test_agreement_is_computed_from_the_records(bench: Bench) -> None:
    """Substantial, not perfect: as the default settings make it; a setting and no finding."""
    result = agreement(s.label for s in bench)
    assert result.traces == 212
    for kappa in (result.agent, result.step, result.category):
        assert 0.6 < kappa < 0.85
    assert 0 < result.contested < 20
    assert all(share > 0.82 for share in result.stability.values())


def test_contested_traces_keep_their_originals(bench: Bench) -> None:
    contested = [s for s in bench if s.label.annotation and s.label.annotation.consensus.contested]
    assert contested
    for session in contested:
        assert len({record.agent for record in originals_of(session.label)}) == 3
        assert all(record.simulated for record in originals_of(session.label))


def test_error_free_annotators_agree_with_the_computed_label(bench: Bench) -> None:
    perfect = AnnotatorSettings(agent=1, step=1, category=1, asil=1, hard_share=0)
    session = bench[0]
    gold = session.label.gold
    assert gold is not None
    view = TraceView(
        agents=tuple(s.agent for s in session.steps),
        timestamps=tuple(s.ts for s in session.steps),
        driver="Driver",
    )
    record = annotate("safety", gold, session.label.markers, view, perfect, Dice("x"))
    assert (record.agent, record.step, record.category, record.asil) == (
        gold.agent, gold.step, gold.category, gold.asil,
    )  # fmt: skip


def _report(session: SimulatedSession, evidence: tuple[Evidence, ...], contested: bool = False) -> Report:
    return Report(
        report_id="r", trace_id="t", vehicle_id=session.start.vehicle_id, session_id=session.start.session_id,
        outcome=Outcome.FAILURE, method="m", analysts="local", evidence=evidence, contested=contested,
        provenance=Provenance(product_version="0", rules_id="r", rules_version="1"),
    )  # fmt: skip


def test_attention_to_the_right_channel_is_scored_from_cited_evidence(bench: Bench) -> None:
    embodied = next(s for s in bench if s.label.gold and s.label.gold.channel == "sigma")
    signal = next(m for m in embodied.label.markers if m.channel == "sigma").keys[0]
    looked = _report(embodied, (Evidence(kind="k", channel="sigma", paths=(signal,)),))
    read = _report(embodied, (Evidence(kind="k", channel="c", step=None),))
    assert channel_attention([(looked, embodied.label)]).decisive_channel == 1.0
    score = channel_attention([(looked, embodied.label), (read, embodied.label)])
    assert (score.n, score.decisive_channel, score.marked_evidence) == (2, 0.5, 0.5)
    assert math.isnan(channel_attention([]).decisive_channel)


def test_recognising_contested_traces_is_scored_by_precision_and_recall(bench: Bench) -> None:
    pairs = [(_report(s, (), contested=True), s.label) for s in bench]
    score = contested_recognition(pairs)
    assert score.recall == 1.0 and score.precision == score.contested / 212
