"""The second hold-out set: families of their own, labels by replay, and nothing else changed by it."""

from __future__ import annotations

import json
import string
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cockpithat.contract.base import Asil, Category
from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.vehicle import SNAPSHOT
from cockpithat.simulator import (
    SimulatedSession,
    SimulateSettings,
    held_out_families,
    read_labels,
    simulate,
    write,
)
from cockpithat.simulator.command import simulate_command
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import BY_NAME, FAMILIES, Family, Shape
from cockpithat.simulator.faults import VARIANTS
from cockpithat.simulator.language import LANGUAGES, pack
from cockpithat.simulator.run import decisive_step, run
from cockpithat.simulator.signals import signal_table
from cockpithat.simulator.situations import Situation, asil_from_classes, rate
from cockpithat.simulator.unseen_families import UNSEEN_BY_NAME, UNSEEN_FAMILIES
from cockpithat.simulator.world import SCENE_PREFIX, World
from tests.simulator.rules import all_rules
from tests.simulator.scenarios import with_fault

Bench = list[SimulatedSession]
SPEED = "Vehicle.Speed"


@pytest.fixture(scope="module")
def unseen() -> Bench:
    """The 212 failed sessions of seed 0, of unseen families."""
    return list(simulate(SimulateSettings(seed=0, families="unseen")))


@pytest.fixture(scope="module")
def unflagged_unseen() -> Bench:
    """Sessions without a failure flag: 16 that go well and 8 silent hazards."""
    settings = SimulateSettings(traces=0, passed=16, silent_hazards=8, seed=3, families="unseen")
    return list(simulate(settings))


# -- what stays as it was --------------------------------------------------------------------------


def test_the_sixteen_families_and_their_sessions_are_what_they_were() -> None:
    """Words, times and order of steps of a few sessions, pinned before the second set came."""
    assert len(FAMILIES) == 16 and not any(family.unseen for family in FAMILIES)
    settings = SimulateSettings(traces=6, passed=2, silent_hazards=2, seed=0)
    told = [
        (s.start.session_id, step.ts, step.agent, step.mode, step.text)
        for s in simulate(settings)
        for step in s.steps
    ]
    moved = [(v.ts, sorted(v.signals)) for s in simulate(settings) for v in s.snapshots]
    digest = sha256(json.dumps([told, moved], ensure_ascii=False).encode()).hexdigest()
    assert digest == "752b6c155b235320502e572868ae6091464fb702abb8e67a016126d577c9d05a"


def test_a_default_manifest_knows_nothing_of_the_second_set(tmp_path: Path) -> None:
    settings = SimulateSettings(traces=1, seed=2)
    manifest = write(simulate(settings), tmp_path, settings)
    assert "families" not in manifest["settings"] and "hold-out" not in manifest["notice"]


def test_names_and_dangers_are_new() -> None:
    assert not set(UNSEEN_BY_NAME) & set(BY_NAME)
    for text in ("goal", "hazardous_event", "safe_outcome"):
        assert not {getattr(f, text) for f in UNSEEN_FAMILIES} & {getattr(f, text) for f in FAMILIES}
    assert Counter(family.shape for family in UNSEEN_FAMILIES) == dict.fromkeys(Shape, 2)


# -- the families ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", UNSEEN_FAMILIES, ids=lambda family: family.name)
def test_a_fault_alone_makes_the_difference_and_replay_finds_its_step(family: Family) -> None:
    """With every variant that fits: unsafe with the fault, safe without, decisive by replay."""
    fitting = [variant for variant in VARIANTS if variant.fits(family)]
    assert {variant.category for variant in fitting} == set(Category)
    for variant in fitting:
        scenario = with_fault(family, variant, last_side="warmer")
        failed = run(scenario)
        assert not failed.safe, variant.name
        assert run(replace(scenario, fault=None)).safe, variant.name
        earliest, _ = decisive_step(scenario, failed)
        assert earliest == failed.fault_step, variant.name


@pytest.mark.parametrize("family", UNSEEN_FAMILIES, ids=lambda family: family.name)
def test_all_values_a_family_writes_are_values_of_their_signals(family: Any) -> None:
    for number in range(20):
        dice = Dice("values", family.name, number)
        case = family.build(family.situation(dice), dice)
        for path, value in [
            *case.start, *case.calm, *case.danger, *case.main, *case.alternative, *case.benign, *case.arrival,
        ]:  # fmt: skip
            if not path.startswith(SCENE_PREFIX):
                assert signal_table(extended=True)[path].problem(value) is None, (path, value)


@pytest.mark.parametrize("family", UNSEEN_FAMILIES, ids=lambda family: family.name)
def test_the_other_reading_is_what_the_check_would_say_on_a_clear_coast(family: Any) -> None:
    for number in range(20):
        dice = Dice("other", family.name, number)
        case = family.build(family.situation(dice), dice)
        assert set(case.reading) == set(case.other)


def test_the_added_signals_are_those_of_vss_4_0(shared_data: Path) -> None:
    leaves = json.loads((shared_data / "vss" / "vss_4.0_leaves.json").read_text())
    added = set(signal_table(extended=True)) - set(signal_table())
    assert len(added) >= 15
    for path in added:
        spec, leaf = signal_table(extended=True)[path], leaves[path]
        assert (spec.type, spec.datatype, spec.unit) == (leaf["type"], leaf["datatype"], leaf.get("unit"))
        assert (spec.min, spec.max) == (leaf.get("min"), leaf.get("max")), path
        assert list(spec.allowed) == leaf.get("allowed", []), path


def test_a_parking_brake_set_on_the_move_stops_the_car() -> None:
    world = World({SPEED: 60.0}, {"pace_kmh": 60.0}, hazard=lambda s, e: False, hold_ms=500)
    world.apply([("Vehicle.Chassis.ParkingBrake.IsEngaged", True)])
    world.advance(3000)
    assert 30 < float(world.signals[SPEED]) < 45  # type: ignore[arg-type]
    world.advance(12_000)
    assert world.signals[SPEED] == 0.0


def test_a_rare_situation_lowers_the_exposure_and_says_so() -> None:
    fast = Situation("motorway", "day", "clear", "alert")
    usual = rate(fast, {SPEED: 120.0}, base_controllability=2)
    rare = rate(fast, {SPEED: 120.0}, base_controllability=2, exposure_cap=2, exposure_note="a roof load")
    assert (usual.exposure, rare.exposure) == (4, 2) and "E2 for a roof load" in rare.rationale
    snow = rate(replace(fast, weather="snow"), {SPEED: 120.0}, base_controllability=2, exposure_cap=3)
    assert snow.exposure == 2 and "snow" in snow.rationale


# -- words -----------------------------------------------------------------------------------------


def _slots(templates: list[str]) -> set[str]:
    return {name for t in templates for _, name, _, _ in string.Formatter().parse(t) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_family_in_several_wordings(language: str) -> None:
    english, other = pack("en", True), pack(language, True)
    assert set(other.families) == set(UNSEEN_BY_NAME) and set(other.acts) == set(english.acts)
    for family, phrases in english.families.items():
        theirs = other.families[family]
        assert set(phrases) == set(theirs) - {"goal"}, family
        assert all(len(theirs[kind]) >= 2 for kind in phrases), family
        assert ("withdraw" in phrases) is UNSEEN_BY_NAME[family].withdrawable
        assert ("benign" in phrases) is (UNSEEN_BY_NAME[family].shape is not Shape.EVENT)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_cockpits_have_wordings_of_their_own(language: str) -> None:
    """Hardly a line is one of the sixteen families' cockpits, and slots are the usual ones."""
    common, own = pack(language), pack(language, True)
    for act in set(common.acts) - {"output"}:
        shared = set(common.acts[act]) & set(own.acts[act])
        assert not {line for line in shared if line not in ("{ask}", "{alt}")}, act
        assert len(own.acts[act]) >= 2, act
        known = _slots(pack("en").acts[act]) | {"ask", "alt", "good", "bad", "look", "driver", "other"}
        assert _slots(own.acts[act]) <= known, act
    assert not set(common.names) & set(own.names)


# -- the data set ----------------------------------------------------------------------------------


def test_the_published_marginals_are_met_by_these_families_too(unseen: Bench) -> None:
    golds = [s.label.gold for s in unseen]
    categories = Counter(g.category for g in golds if g)
    assert [categories[c] for c in Category] == [37, 24, 22, 30, 16, 20, 41, 22]
    severities = Counter(g.asil for g in golds if g)
    assert [severities[a] for a in (Asil.A, Asil.B, Asil.C, Asil.D)] == [98, 51, 37, 26]
    for gold in golds:
        assert gold is not None
        assert asil_from_classes(gold.severity, gold.exposure, gold.controllability) == gold.asil


def test_every_session_is_held_out_and_every_family_is_there(unseen: Bench, unflagged_unseen: Bench) -> None:
    assert all(s.label.scenario.held_out for s in [*unseen, *unflagged_unseen])
    families = Counter(s.label.scenario.family for s in unseen)
    assert set(families) == set(UNSEEN_BY_NAME)
    assert min(families.values()) >= 12 and max(families.values()) <= 48
    assert held_out_families() == {"high_beam", "hill_park", "display_glare", "wipers"}


def test_no_rule_of_thumb_finds_more_than_a_quarter_of_the_decisive_steps(unseen: Bench) -> None:
    rates = {
        name: sum(s.label.gold is not None and rule(s) == s.label.gold.step for s in unseen) / len(unseen)
        for name, rule in all_rules()
    }
    assert not {name: round(rate, 3) for name, rate in rates.items() if rate > 0.25}


def test_labels_are_those_of_replay_and_carry_evidence(unseen: Bench) -> None:
    for session in unseen:
        gold, label = session.label.gold, session.label
        assert gold is not None and label.proof is not None
        assert label.proof.earliest_helpful == gold.step and label.proof.uninjected_run_is_safe
        assert session.steps[gold.step].event_id == gold.event_id
        assert gold.hazard_ts > session.steps[gold.step].ts
        assert any(marker.channel == gold.channel for marker in label.markers)
        assert gold.hazardous_event == UNSEEN_BY_NAME[label.scenario.family].hazardous_event


def test_nothing_of_a_label_is_in_a_record(unseen: Bench) -> None:
    variants = {v.name for v in VARIANTS if "_" in v.name}
    secrets = (
        "gold",
        "injected",
        "primitive",
        "held_out",
        "unseen",
        "asil",
        *(c.value for c in Category),
        *variants,
    )
    for session in unseen[:60]:
        for record in session.records():
            adapter = SNAPSHOT if record.type == "vehicle_snapshot" else SESSION_EVENT
            line = record.model_dump_json()
            assert adapter.validate_json(line) == record
            assert not [word for word in secrets if word in line.lower()]


def test_snapshots_hold_values_of_vss_on_the_grid(unseen: Bench) -> None:
    table = signal_table(extended=True)
    for session in unseen[:40]:
        first = session.snapshots[0]
        assert first.kind == "full" and set(first.signals) == set(table)
        for snapshot in session.snapshots:
            assert snapshot.ts % 100 == 0
            for path, value in snapshot.signals.items():
                assert table[path].problem(value) is None, (path, value)


def test_the_same_thing_is_said_and_done_in_many_ways(unseen: Bench) -> None:
    languages = Counter(s.label.scenario.language for s in unseen)
    assert set(languages) == {"en", "de", "zh"} and min(languages.values()) >= 40
    assert len({step.text for s in unseen for step in s.steps if step.text}) > 1500
    tools = {c.name for s in unseen for step in s.steps for c in step.tool_calls}
    assert len(tools) > 50 and "write_state" in tools and "vss.set" in tools


def test_ids_are_not_those_of_the_sixteen_families(unseen: Bench) -> None:
    theirs = {s.start.session_id for s in simulate(SimulateSettings(traces=3, seed=0))}
    assert not theirs & {s.start.session_id for s in unseen}


def test_good_sessions_are_safe_and_silent_hazards_are_not(unflagged_unseen: Bench) -> None:
    assert Counter(s.label.kind for s in unflagged_unseen) == {"passed": 16, "silent_hazard": 8}
    for session in unflagged_unseen:
        assert session.end.failed is False
        assert (session.label.gold is None) is (session.label.kind == "passed")


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_the_second_set_and_says_what_it_is_for(tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("one", "two")]
    for out in outs:
        result = CliRunner().invoke(
            simulate_command,
            ["--families", "unseen", "--traces", "3", "--passed", "1", "--seed", "4", "--out", str(out)],
        )
        assert result.exit_code == 0, result.output
        assert "4 sessions" in result.output and "never for training" in result.output
    manifest = json.loads((outs[0] / "manifest.json").read_text())
    assert manifest["settings"]["families"] == "unseen" and "never for training" in manifest["notice"]
    assert all(label.scenario.held_out for label in read_labels(outs[0]))
    files = [sorted(p for p in out.rglob("*") if p.is_file()) for out in outs]
    assert [p.read_bytes() for p in files[0]] == [p.read_bytes() for p in files[1]]
