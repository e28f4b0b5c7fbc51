"""Templates of three languages, and the command."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cockpithat.simulator.command import simulate_command
from cockpithat.simulator.families import BY_NAME
from cockpithat.simulator.language import LANGUAGES, pack


def _slots(templates: list[str]) -> set[str]:
    return {name for t in templates for _, name, _, _ in string.Formatter().parse(t) if name}


def _acts() -> Iterator[str]:
    yield from pack("en").acts


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_act_and_every_family(language: str) -> None:
    english, other = pack("en"), pack(language)
    assert set(other.acts) == set(english.acts)
    assert set(other.families) == set(BY_NAME)
    for family, phrases in english.families.items():
        assert set(phrases) - {"goal"} == set(other.families[family]) - {"goal"}, family
    assert all(other.acts.values()) and all(all(f.values()) for f in other.families.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_templates_ask_only_for_slots_that_the_english_ones_have(language: str) -> None:
    common = {"ask", "alt", "good", "bad", "look", "driver", "other", "wrong", "right"}
    for act in _acts():
        assert _slots(pack(language).acts[act]) <= _slots(pack("en").acts[act]) | common, act


def test_what_is_said_has_several_wordings() -> None:
    spoken = [act for act in _acts() if act != "output"]
    for language in LANGUAGES:
        assert all(len(pack(language).acts[act]) >= 2 for act in spoken)


def test_the_command_writes_a_benchmark(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    result = CliRunner().invoke(
        simulate_command,
        ["--traces", "2", "--passed", "1", "--seed", "4", "--language", "zh", "--out", str(out)],
    )
    assert result.exit_code == 0, result.output
    assert "3 sessions" in result.output and "2 failed" in result.output
    assert len(list((out / "traces").glob("*.jsonl"))) == 3
    assert (out / "labels.jsonl").read_text().count("\n") == 3


def test_the_command_does_not_mix_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("x")
    result = CliRunner().invoke(simulate_command, ["--traces", "1", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "not empty" in result.output and "Traceback" not in result.output


def test_the_command_says_what_is_wrong_with_an_option(tmp_path: Path) -> None:
    result = CliRunner().invoke(simulate_command, ["--traces", "-1", "--out", str(tmp_path / "x")])
    assert result.exit_code == 2 and "--traces" in result.output
