"""The command line in odd surroundings: locales, narrow terminals, closed outputs, names of any bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "low_beam.jsonl"
COMMAND = [sys.executable, "-m", "stream.cli"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(
    *arguments: str | Path, environment: dict[str, str] | None = None, shell: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """The command with raw bytes out; ``shell`` is what a shell appends, such as a redirection."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COCKPITHAT_")}
    command: list[str] = [*COMMAND, *map(os.fspath, arguments)]
    if shell:
        command = ["sh", "-c", f'"$@" {shell}', "sh", *command]
    return subprocess.run(
        command, capture_output=True, timeout=120, env={**clean, **(environment or {})}, check=False
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The example with an agent and a session whose names no 8-bit encoding holds."""
    path = tmp_path / "foreign.jsonl"
    lines = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line["type"] != "vehicle_snapshot":
            line["session_id"] = "Störung-行车"
        if line.get("agent") == "VehicleAgent":
            line["agent"] = "Fahrzeug 车"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "environment",
    [ASCII, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "utf-16"}],
    ids=["C locale", "latin-1", "utf-16"],
)
def test_what_machines_read_is_utf_8_in_every_locale(foreign: Path, environment: dict[str, str]) -> None:
    result = run("attribute", "--json", foreign, environment=environment)
    assert (result.returncode, result.stderr) == (0, b"")
    report = json.loads(result.stdout.decode("utf-8"))
    assert (report["session_id"], report["agent"]) == ("Störung-行车", "Fahrzeug 车")
    graph = run("graph", foreign, environment=environment)
    assert json.loads(graph.stdout.decode("utf-8"))


def test_what_people_read_replaces_characters_that_the_locale_lacks(foreign: Path) -> None:
    result = run("attribute", foreign, environment=ASCII)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"Fahrzeug ?" in result.stdout


@pytest.mark.parametrize("columns", ["0", "1", "20", "40", "71"])
def test_a_narrow_terminal_loses_nothing(columns: str) -> None:
    result = run("attribute", EXAMPLE, environment={"COLUMNS": columns})
    text = "".join(result.stdout.decode().split())
    for part in ("s-1", "VehicleAgent,step1", "safetysafeguardfailure", "ASILD", "confidence0."):
        assert part in text


@pytest.mark.parametrize("command", [("attribute",), ("attribute", "--json"), ("graph",)], ids=" ".join)
def test_a_closed_or_full_output_is_one_line_and_a_failure(command: tuple[str, ...]) -> None:
    for shell, what in ((">&-", b"standard output: is closed"), (">/dev/full", b"No space left")):
        result = run(*command, EXAMPLE, shell=shell)
        assert result.returncode == 1
        assert what in result.stderr
        assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", [("attribute", "--json"), ("graph",)], ids=" ".join)
def test_an_input_is_never_written_over(command: tuple[str, ...], tmp_path: Path) -> None:
    path, link = tmp_path / "session.jsonl", tmp_path / "link"
    shutil.copy(EXAMPLE, path)
    link.symlink_to(path)
    for output in (path, link):
        result = run(*command, path, "--output", output)
        assert result.returncode == 2
        assert b"would be overwritten" in result.stderr
    assert path.read_bytes() == EXAMPLE.read_bytes()


def test_a_file_name_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"odd\xff\nname.jsonl")
    shutil.copy(EXAMPLE, path)
    result = run("attribute", "--json", path)
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout)["file"].endswith("odd�\nname.jsonl")
    missing = run("attribute", "--json", tmp_path / os.fsdecode(b"none\xff\n"))
    assert missing.returncode == 1
    assert missing.stderr.count(b"\n") == 2  # the file, and the sum


def test_a_file_with_snapshots_only_is_told(tmp_path: Path) -> None:
    """Sessions and snapshots are joined within a file: apart, the session would be rated without its car."""
    path = tmp_path / "snapshots.jsonl"
    path.write_text(EXAMPLE.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    result = run("attribute", "--json", path)
    assert b"holds vehicle snapshots and no session" in result.stderr
    assert b"no session" not in run("attribute", "--json", EXAMPLE).stderr


@pytest.mark.parametrize("command", [(), ("topics",), ("dlq",)], ids=["cockpithat", "topics", "dlq"])
def test_a_group_without_a_command_shows_its_help(command: tuple[str, ...]) -> None:
    result = run(*command)
    assert result.returncode == 2
    assert result.stderr.count(b"\n") > 5
    assert b"Commands:" in result.stderr
