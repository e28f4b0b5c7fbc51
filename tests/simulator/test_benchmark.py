"""CockpitBench as a data set: what the published figures say of it, and that no rule of thumb solves it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from statistics import mean, pstdev

import pytest

from cockpithat.contract.base import Asil, Category, Outcome, VehicleStateCoverage
from cockpithat.contract.events import SESSION_EVENT, StepEvent
from cockpithat.contract.vehicle import SNAPSHOT
from cockpithat.formats.registry import load
from cockpithat.simulator import (
    SimulatedSession,
    SimulateSettings,
    held_out_families,
    read_labels,
    simulate,
    write,
)
from cockpithat.simulator.families import BY_NAME, FAMILIES
from cockpithat.simulator.faults import VARIANTS
from cockpithat.simulator.signals import signal_table
from cockpithat.simulator.situations import asil_from_classes
from tests.simulator.rules import all_rules

Bench = list[SimulatedSession]


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small benchmark of all three kinds on disk."""
    out = tmp_path_factory.mktemp("bench")
    settings = SimulateSettings(traces=8, passed=3, silent_hazards=3, seed=11)
    write(simulate(settings), out, settings)
    return out


def test_categories_severities_and_sources_are_the_published_ones(bench: Bench) -> None:
    golds = [s.label.gold for s in bench]
    categories = Counter(g.category for g in golds if g)
    assert [categories[c] for c in Category] == [37, 24, 22, 30, 16, 20, 41, 22]
    severities = Counter(g.asil for g in golds if g)
    assert [severities[a] for a in (Asil.A, Asil.B, Asil.C, Asil.D)] == [98, 51, 37, 26]
    sources = Counter(s.label.scenario.source for s in bench)
    assert sources == {"adapted_style": 78, "telemetry_style": 83, "adversarial": 51}


def test_every_severity_follows_from_its_three_classes(bench: Bench) -> None:
    for session in bench:
        g = session.label.gold
        assert g is not None
        assert asil_from_classes(g.severity, g.exposure, g.controllability) == g.asil


def test_length_duration_and_agents_come_near_the_published_means(bench: Bench) -> None:
    """A turn is an uninterrupted run of steps by one agent; the driver counts among the agents."""
    turns = [s.label.scenario.turns for s in bench]
    seconds = [s.label.scenario.seconds for s in bench]
    assert min(turns) == 4 and max(turns) == 38
    assert mean(turns) == pytest.approx(14.3, abs=0.5) and pstdev(turns) == pytest.approx(6.8, abs=0.5)
    assert mean(seconds) == pytest.approx(47.2, abs=2.0) and pstdev(seconds) == pytest.approx(23.1, abs=2.0)
    assert mean(s.label.scenario.active_agents for s in bench) == pytest.approx(4.2, abs=0.15)


def test_no_rule_of_thumb_finds_more_than_a_quarter_of_the_decisive_steps(bench: Bench) -> None:
    rates = {}
    for name, rule in all_rules():
        hits = sum(s.label.gold is not None and rule(s) == s.label.gold.step for s in bench)
        rates[name] = hits / len(bench)
    assert len(rates) > 200
    too_good = {name: round(rate, 3) for name, rate in rates.items() if rate > 0.25}
    assert not too_good


def test_no_agent_and_no_family_dominates(bench: Bench) -> None:
    agents = Counter(re.sub("[ _]", "", s.label.gold.agent).lower() for s in bench if s.label.gold)
    assert max(agents.values()) < 0.35 * len(bench)
    families = Counter(s.label.scenario.family for s in bench)
    assert set(families) == set(BY_NAME)
    assert max(families.values()) <= 24 and min(families.values()) >= 5


def test_held_out_families_are_frozen_and_one_of_each_shape(bench: Bench) -> None:
    assert held_out_families() == {"high_beam", "hill_park", "display_glare", "wipers"}
    assert len({BY_NAME[name].shape for name in held_out_families()}) == 4
    held = [s for s in bench if s.label.scenario.held_out]
    assert 35 <= len(held) <= 75
    assert {s.label.gold.asil for s in held if s.label.gold} == {Asil.A, Asil.B, Asil.C, Asil.D}
    assert len({s.label.gold.category for s in held if s.label.gold}) == 8


def test_every_record_is_of_the_wire_contract_and_no_gold_is_inside(bench: Bench) -> None:
    variants = {v.name for v in VARIANTS if "_" in v.name}
    secrets = ("gold", "injected", "primitive", "held_out", "asil", *(c.value for c in Category), *variants)
    for session in bench[:60]:
        for record in session.records():
            line = record.model_dump_json()
            adapter = SNAPSHOT if record.type == "vehicle_snapshot" else SESSION_EVENT
            assert adapter.validate_json(line) == record
            if record.type != "vehicle_snapshot":
                assert not [word for word in secrets if word in line.lower()]


def test_gold_points_at_a_step_of_the_session(bench: Bench) -> None:
    for session in bench:
        gold = session.label.gold
        assert gold is not None
        step = session.steps[gold.step]
        assert (step.event_id, step.agent) == (gold.event_id, gold.agent)
        assert (step.seq, step.ts) == (gold.seq, gold.ts)
        assert gold.hazard_ts > step.ts
        assert session.label.proof is not None and session.label.proof.earliest_helpful == gold.step
        assert any(m.channel == gold.channel for m in session.label.markers)


def test_snapshots_lie_on_the_100_ms_grid_and_hold_values_of_vss(bench: Bench) -> None:
    table = signal_table()
    for session in bench[:40]:
        assert session.snapshots[0].kind == "full"
        for snapshot in session.snapshots:
            assert snapshot.ts % 100 == 0
            for path, value in snapshot.signals.items():
                assert table[path].problem(value) is None, (path, value)


def test_calls_and_answers_belong_together(bench: Bench) -> None:
    for session in bench:
        calls = [c.call_id for step in session.steps for c in step.tool_calls]
        answers = [o.call_id for step in session.steps for o in step.tool_outputs]
        assert calls == answers and len(set(calls)) == len(calls)


def test_the_same_thing_is_said_in_many_ways(bench: Bench) -> None:
    """Three languages, and within one hardly a step is worded as another."""
    languages = Counter(s.label.scenario.language for s in bench)
    assert set(languages) == {"en", "de", "zh"} and min(languages.values()) >= 40
    requests = {s.steps[i].text for s in bench for i in range(len(s.steps)) if s.steps[i].text}
    assert len(requests) > 1500
    tools = {c.name for s in bench for step in s.steps for c in step.tool_calls}
    assert len(tools) > 60
    names = {a.name for s in bench for a in s.start.roster}
    assert {"Dialogue Manager", "Director", "dialogue_manager", "DialogueManager"} <= names


def test_side_channels_plans_and_memory_are_used(bench: Bench) -> None:
    steps: list[StepEvent] = [step for s in bench for step in s.steps]
    share = len(steps) / 100
    assert sum(bool(step.environment) for step in steps) > 10 * share
    assert sum(bool(step.memory) for step in steps) > share
    assert sum(step.plan_item is not None for step in steps) > 10 * share
    assert sum(bool(step.reasoning) or step.mode == "thought" for step in steps) > 3 * share
    assert sum(any(o.is_error for o in step.tool_outputs) for step in steps) > 0.3 * share


def test_sessions_that_go_well_are_safe_and_silent_hazards_are_not(unflagged: Bench) -> None:
    kinds = Counter(s.label.kind for s in unflagged)
    assert kinds == {"passed": 24, "silent_hazard": 16}
    for session in unflagged:
        assert session.end.outcome is Outcome.SUCCESS and session.end.failed is False
        if session.label.kind == "passed":
            assert session.label.gold is None and session.label.proof is None
        else:
            assert session.label.gold is not None
            assert session.label.gold.asil in (Asil.A, Asil.B, Asil.C, Asil.D)


def test_good_sessions_contain_dangers_that_were_handled(unflagged: Bench) -> None:
    """Near-misses: wishes declined, tools that failed and were tried again."""
    good = [s for s in unflagged if s.label.kind == "passed"]
    assert (
        sum(s.label.scenario.story != "plain" or bool(s.label.scenario.side_conversations) for s in good) > 12
    )
    assert any("refused" in s.label.scenario.side_conversations for s in unflagged)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path, written: Path) -> None:
    settings = SimulateSettings(traces=8, passed=3, silent_hazards=3, seed=11)
    write(simulate(settings), tmp_path / "again", settings)
    assert _files(tmp_path / "again") == _files(written)
    other = SimulateSettings(traces=8, passed=3, silent_hazards=3, seed=12)
    write(simulate(other), tmp_path / "other", other)
    assert not set(_files(tmp_path / "other")) & {n for n in _files(written) if n.startswith("traces")}


def test_written_traces_import_with_complete_vehicle_state(written: Path) -> None:
    """What a vehicle would have sent, read through the session engine: indices are the label's."""
    labels = {label.session_id: label for label in read_labels(written)}
    traces = [trace for file in sorted((written / "traces").iterdir()) for trace in load(file)]
    assert len(traces) == len(labels) == 14
    for trace in traces:
        label = labels[trace.session_id]
        assert len(trace.steps) == label.scenario.steps and not trace.missing_seqs
        assert trace.vehicle_state is VehicleStateCoverage.COMPLETE
        assert trace.failed is (label.kind == "failed")
        if label.gold is not None:
            assert trace.steps[label.gold.step].event_id == label.gold.event_id


def test_labels_survive_a_round_trip_and_say_where_they_cannot_be_read(written: Path, tmp_path: Path) -> None:
    labels = read_labels(written)
    again = [label.model_validate_json(label.model_dump_json()) for label in labels]
    assert again == labels
    broken = tmp_path / "labels.jsonl"
    broken.write_text('{"session_id": "x"}\n')
    with pytest.raises(ValueError, match=r"labels\.jsonl, line 1"):
        read_labels(broken)


def test_the_manifest_says_what_the_data_is_and_is_not(written: Path) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    assert "no part is real telemetry" in manifest["notice"]
    assert manifest["settings"]["seed"] == 11
    assert manifest["counts"]["kind"] == {"failed": 8, "passed": 3, "silent_hazard": 3}


def test_metadata_is_kept(bench: Bench) -> None:
    for session in bench:
        record = session.label.scenario
        assert record.family in {family.name for family in FAMILIES}
        assert record.initial_state["Vehicle.Speed"] == session.snapshots[0].signals["Vehicle.Speed"]
        assert record.goal and record.safe_outcome and record.situation
        assert record.fault["primitive"] == session.label.gold.category if session.label.gold else False
