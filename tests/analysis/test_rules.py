"""Hazard rules: the table, the file, and clear words when a file is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cockpithat.analysis.asil import classify
from cockpithat.analysis.conditions import Condition
from cockpithat.analysis.rules import RulesError, load_rules, watched_signals
from cockpithat.contract.base import Asil
from cockpithat.resources import resource

MINIMAL = """
format: 1
id: own_rules
version: 2.0.1
readings:
  speed: {signals: [Vehicle.Speed]}
  trunk: {signals: [Vehicle.Body.Trunk.Rear.IsOpen]}
facts:
  moving: {reading: speed, gt: 5}
rules:
  - id: trunk_open
    hazardous_event: The tailgate opens
    situation: Driving
    severity: {class: 2, why: Load can fall out.}
    exposure: {class: 4, why: Driving is normal.}
    controllability: {class: 2, why: Others can brake.}
    when: {fact: moving}
    state: {reading: trunk, is: true}
"""


def test_the_sum_rule_gives_every_cell_of_the_table(shared_data: Path) -> None:
    table = json.loads((shared_data / "asil_table.json").read_text())
    cells = 0
    for s in range(4):
        for e in range(5):
            for c in range(4):
                cell = table.get(f"S{s}", {}).get(f"E{e}", {}).get(f"C{c}", "QM")
                cells += f"S{s}" in table and e > 0 and c > 0
                assert classify(s, e, c) is Asil(cell), (s, e, c)
    assert cells == 36


@pytest.mark.parametrize("classes", [(4, 1, 1), (1, 5, 1), (1, 1, 4), (-1, 1, 1)])
def test_classes_that_do_not_exist_are_refused(classes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        classify(*classes)


def test_every_rule_names_event_situation_and_reasons_and_has_a_rating() -> None:
    rules = load_rules()
    assert len(rules.rules) >= 30
    for rule in rules.rules:
        assert rule.asil is classify(rule.severity.value, rule.exposure.value, rule.controllability.value)
        assert all(
            part.why in rule.rationale for part in (rule.severity, rule.exposure, rule.controllability)
        )
    assert {rule.asil for rule in rules.rules} >= {Asil.A, Asil.B, Asil.C, Asil.D}


def test_every_watched_signal_exists_in_vss(shared_data: Path) -> None:
    known: set[str] = set()
    for version in ("4.0", "6.0"):
        known |= json.loads((shared_data / "vss" / f"vss_{version}_leaves.json").read_text()).keys()
    watched = watched_signals(load_rules())
    assert "Vehicle.Speed" in watched
    assert watched <= known


def test_no_reading_or_fact_lies_idle() -> None:
    rules = load_rules()
    used = {name for r in rules.rules for c in rules.conditions_of(r) for name in rules.readings_of(c)}
    assert used == set(rules.readings)
    assert {name for rule in rules.rules for name in rule.modifiers} == set(rules.modifiers)
    pending = [c for r in rules.rules for c in rules.conditions_of(r)]
    facts: set[str] = set()
    while pending:
        for node in pending.pop().walk():
            if node.fact is not None and node.fact not in facts:
                facts.add(node.fact)
                pending.append(rules.facts[node.fact])
    assert facts == set(rules.facts)


def test_an_operators_file_replaces_the_products(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(MINIMAL)
    rules = load_rules(path)
    assert (rules.id, rules.version, rules.rules[0].asil) == ("own_rules", "2.0.1", Asil.B)
    assert watched_signals(rules) == {"Vehicle.Speed", "Vehicle.Body.Trunk.Rear.IsOpen"}


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ("class: 4", "class: 5", "rules.trunk_open.exposure.class", "less than or equal to 4"),
        ("reading: trunk, is", "reading: boot, is", "", "'boot', which is not defined"),
        ("fact: moving}", "fact: rolling}", "", "'rolling', which is not defined"),
        ("{reading: speed, gt: 5}", "{fact: moving}", "", "circle: moving"),
        ("gt: 5", "over: 5", "facts.moving.over", "Extra inputs"),
        ("is: true", "is: true, fact: moving", "rules.trunk_open.state", "exactly one"),
        ("is: true", "above: {reading: slope, by: 2}", "", "'slope', which is not defined"),
        ("    when: {fact", "    modifiers: [fog]\n    when: {fact", "", "'fog', which is not defined"),
        (
            "rules:",
            "modifiers: {fog: {when: {fact: moving}, why: Fog is rare}}\nrules:",
            "modifiers.fog",
            "change",
        ),
        (
            "rules:",
            "modifiers: {fog: {when: {fact: moving}, exposure: {}, why: Fog is rare}}\nrules:",
            "modifiers.fog.exposure",
            "by, at_most or at_least",
        ),
        ("version: 2.0.1", "version: new", "version", "pattern"),
        ("format: 1", "format: 9", "", "format 9 is not supported"),
        ("id: trunk_open", "id: [", "line", "not valid YAML"),
    ],
)
def test_a_wrong_file_says_where_and_what(tmp_path: Path, old: str, new: str, place: str, what: str) -> None:
    assert old in MINIMAL
    path = tmp_path / "own.yaml"
    path.write_text(MINIMAL.replace(old, new))
    with pytest.raises(RulesError) as caught:
        load_rules(path)
    message = str(caught.value)
    assert str(path) in message
    assert place in message
    assert what in message
    assert "\n" not in message


def test_the_example_in_the_documentation_loads(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    path = tmp_path / "example.yaml"
    path.write_text(text.split("```yaml")[1].split("```")[0], encoding="utf-8")
    rules = load_rules(path)
    assert (rules.id, rules.rules[0].asil) == ("my_hazards", Asil.D)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="check the path"):
        load_rules(tmp_path / "none.yaml")


def test_yaml_tags_are_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(RulesError, match="not valid YAML"):
        load_rules(path)


def test_the_shipped_file_is_the_documented_one() -> None:
    raw = yaml.safe_load(resource("data/rules/hazards.yaml").read_text(encoding="utf-8"))
    assert raw["version"] == load_rules().version


@pytest.mark.parametrize(
    ("condition", "value", "truth"),
    [
        ({"gt": 60}, 96, True),
        ({"gt": 60}, "45 mph", True),
        ({"gt": 60}, "fast", None),
        ({"gt": 60}, True, None),
        ({"is": False}, "OFF", True),
        ({"is": True}, "closed", False),
        ({"is": True}, 7, None),
        ({"in": ["OFF", "N"]}, "off", True),
        ({"words": ["fog"]}, "dense Fog ahead", True),
        ({"words": ["ice"]}, "device", None),
        ({"words": ["ice"]}, "no ice", False),
        ({"words": ["heavy rain"]}, "Heavy_Rain", True),
        ({"words": ["暴雨"]}, "今晚有暴雨", True),
        ({"words": ["暴雨"]}, "没有暴雨", False),
        ({"words": ["fog"]}, "not much", None),
        ({"gt": 60}, 10**400, None),
        ({"words": ["fog"]}, ["clear", "fog"], True),
        ({"between": ["21:30", "05:30"]}, "2026-03-02T22:41:00+01:00", True),
        ({"between": ["21:30", "05:30"]}, "12:00", False),
        ({"between": ["21:30", "05:30"]}, "later", None),
    ],
)
def test_comparisons_are_true_false_or_unknown(
    condition: dict[str, object], value: object, truth: bool | None
) -> None:
    assert Condition.model_validate({"reading": "x", **condition}).compare(value) is truth
