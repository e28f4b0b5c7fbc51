"""``cockpithat bench`` from the command line, as a person or a script meets it."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cockpithat.bench.log import read_log
from stream.cli import main

pytestmark = pytest.mark.data
KEYS = {"n", "agent", "step", "joint", "step_within", "official", "ci95", "tokens", "seconds"}


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


def bench(*arguments: str | Path, code: int = 0) -> Done:
    return command("bench", *arguments, code=code)


def command(*arguments: str | Path, code: int = 0) -> Done:
    """A command in this process, through the command line's own entry point."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    assert (stop.value.code or 0) == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


def figures(*arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench(*arguments, "--json").stdout)
    return found


@pytest.fixture(scope="module")
def data(shared_data: Path) -> Path:
    return shared_data / "whowhen"


@pytest.fixture(scope="module")
def logs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    found = {}
    for method in ("longest-step", "random"):
        bench(data / "hand-crafted", "--format", "whowhen", "--method", method, "--out", folder)
        (found[method],) = folder.glob(f"*-{method}-local.jsonl")
    return found


def test_json_has_the_agreed_fields(data: Path) -> None:
    found = figures(data / "hand-crafted", "--method", "longest-step", "--analysts", "local")
    assert found.keys() >= KEYS
    assert (found["n"], round(found["agent"], 3), round(found["step"], 3)) == (39, 0.564, 0.205)
    assert set(found["step_within"]) == {"1", "2", "3", "4", "5"}
    assert set(found["official"]) == {"agent", "step"}
    assert {"agent", "step", "joint"} <= found["ci95"].keys()
    assert found["tokens"] == 0 and found["seconds"] > 0


def test_limit_and_repeat(data: Path) -> None:
    found = figures(data, "--method", "random", "--limit", "5", "--repeat", "2")
    assert (found["n"], found["repeats"]) == (5, 2)
    assert found["stability"]["same_joint"] == 1.0  # the random method is seeded by the trace


def test_tables_for_people(data: Path, shared_data: Path, logs: dict[str, Path]) -> None:
    second = shared_data / "agentrx" / "magentic_ground_truth.json"
    shown = bench(data / "hand-crafted", "--method", "longest-step", "--second", second).stdout
    assert "| step ±5" in shown and "script's rule" in shown and "the two annotators agree" in shown
    compared = bench("compare", logs["random"], logs["longest-step"]).stdout
    assert "p (McNemar)" in compared and "p (chi2)" in compared
    table = bench("table", *logs.values(), shared_data / "agentrx", "--method", "longest-step").stdout
    assert table.count("hand-crafted") == 3 and table.count("tau_trajectories") == 2  # with chance each


def test_calibrate_writes_what_it_checked_and_bench_uses_it(
    data: Path, logs: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "c.json"
    rows = json.loads(bench("calibrate", logs["longest-step"], "--out", out, "--json").stdout)
    assert {(row["shape"], row["level"]) for row in rows} == {
        (shape, level) for shape in ("range", "set") for level in (0.5, 0.8, 0.9)
    }
    assert all(row["n"] + row["calibrated_on"] == 39 for row in rows)
    ranged = figures(data / "hand-crafted", "--method", "longest-step", "--calibration", out)
    assert ranged["range"]["n"] == 39 and ranged["range"]["coverage"] == 0.8
    assert ranged["step"] == figures(data / "hand-crafted", "--method", "longest-step")["step"]
    wrong = bench(data, "--method", "random", "--calibration", out, code=1)
    assert "not for random" in wrong.stderr


def test_attribute_takes_a_calibration(data: Path, logs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    bench("calibrate", logs["longest-step"], "--out", out)
    file = min((data / "hand-crafted").glob("*.json"))
    options = ["--method", "longest-step", "--calibration", out, "--coverage", "0.9", "--json"]
    (line,) = command("attribute", file, *options).stdout.splitlines()
    held = json.loads(line)["step_range"]
    assert held["coverage"] == 0.9 and held["first"] <= json.loads(line)["step"] <= held["last"]
    wrong = command("attribute", file, "--calibration", out, code=1)
    assert "not for cockpithat" in wrong.stderr and wrong.stderr.count("\n") == 1
    absent = command("attribute", file, "--calibration", tmp_path / "absent", code=1)
    assert "cannot be read" in absent.stderr


def test_the_scripts_scorer_reads_a_prediction_log(data: Path, tmp_path: Path) -> None:
    files = sorted((data / "hand-crafted").glob("*.json"))
    text = ""
    for file in files[:10]:
        run = json.loads(file.read_text(encoding="utf-8"))
        answer = f"Agent Name: {run['mistake_agent']}\nStep Number: {run['mistake_step']}9\n"
        text += f"Prediction for {file.name}:\n{answer}\n{'=' * 50}\n"
    predictions = tmp_path / "all_at_once.txt"
    predictions.write_text(text, encoding="utf-8")
    found = json.loads(bench("official", predictions, data / "hand-crafted", "--json").stdout)
    assert found == {"n": 39, "parsed": 10, "agent": 10 / 39, "step": 10 / 39}  # 9 more digits match, too


def test_a_run_is_interrupted_and_resumed(data: Path, tmp_path: Path) -> None:
    arguments = [data, "--method", "cockpithat", "--out", tmp_path]
    running = subprocess.Popen(
        [sys.executable, "-m", "stream.cli", "bench", *map(str, arguments), "--repeat", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and running.poll() is None:
        found = list(tmp_path.glob("*.jsonl"))
        if found and found[0].read_bytes().count(b"\n") > 20:
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130 and "Traceback" not in errors, errors
    (path,) = tmp_path.glob("*.jsonl")
    judged = len(read_log(path).records)
    assert 20 <= judged < 20 * 123
    refused = bench(*arguments, "--repeat", "20", code=1)
    assert "--resume" in refused.stderr
    resumed = bench(*arguments, "--resume", "--json")
    assert f"{min(judged, 123)} of 123 answers are in" in resumed.stderr
    again = json.loads(resumed.stdout)
    assert again["n"] == 123
    assert again["step"] == figures(data, "--method", "cockpithat")["step"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["compare", "a.jsonl", "b.jsonl"], "a.jsonl: cannot be read"),
        (["calibrate", "a.jsonl"], "a.jsonl: cannot be read"),
        (
            [".", "--method", "longest-step", "--resume", "--format", "nothing"],
            "no data set format 'nothing'",
        ),
    ],
)
def test_errors_are_one_line_with_a_remedy(arguments: list[str], what: str) -> None:
    done = bench(*arguments, code=1)
    assert what in done.stderr and done.stderr.count("\n") == 1


def test_an_unknown_method_names_the_known_ones(data: Path) -> None:
    done = bench(data / "hand-crafted", "--method", "oracle", code=1)
    assert "longest-step (local)" in done.stderr and done.stderr.count("\n") == 1


def test_help_names_every_part() -> None:
    shown = bench("--help").stdout
    for word in ("run", "compare", "table", "calibrate", "official"):
        assert f"  {word} " in shown
