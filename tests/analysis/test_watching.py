"""A rules file that watches a signal which nothing knows is told about, with the rule and the path."""

from __future__ import annotations

from pathlib import Path

from cockpithat.analysis.rules import RuleSet, load_rules
from cockpithat.analysis.watching import unknown_signals
from cockpithat.resources import read_resource


def rules_with(folder: Path, before: str, after: str) -> RuleSet:
    """The shipped rules with one text replaced."""
    text = read_resource("data/rules/hazards.yaml")
    assert before in text
    path = folder / "rules.yaml"
    path.write_text(text.replace(before, after), encoding="utf-8")
    return load_rules(path)


def test_the_shipped_rules_watch_known_signals_only() -> None:
    assert unknown_signals(load_rules()) == []


def test_a_slip_is_told_with_its_rules_and_what_may_be_meant(tmp_path: Path) -> None:
    path = "Vehicle.Body.Lights.Beam.Low.IsOn"
    rules = rules_with(tmp_path, path, "Vehicle.Body.Light.Beam.Low.IsOn")
    (line,) = unknown_signals(rules)
    assert "Vehicle.Body.Light.Beam.Low.IsOn" in line
    assert f"did you mean {path}?" in line
    watching = [r.id for r in rules.rules if any("Beam.Low" in p for p in rules.paths_of(r.state))]
    assert watching and watching[0] in line
    assert len(line.splitlines()) == 1


def test_a_signal_unlike_any_other_is_told_without_a_guess(tmp_path: Path) -> None:
    rules = rules_with(tmp_path, "Vehicle.Body.Lights.Beam.Low.IsOn", "Vehicle.Xylophone")
    (line,) = unknown_signals(rules)
    assert "Vehicle.Xylophone" in line and "check its spelling" in line


def test_a_path_that_many_rules_watch_is_one_line(tmp_path: Path) -> None:
    rules = rules_with(tmp_path, "[Vehicle.Speed]", "[Vehicle.Sped]")
    (line,) = unknown_signals(rules)
    assert "more watch Vehicle.Sped" in line and "did you mean Vehicle.Speed?" in line
