"""The command line as a user meets it: quick help, one line for each error, non-zero exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cockpithat import __version__
from cockpithat.resources import read_resource, resource
from stream.cli import cli
from stream.dlq import Redriven

COMMAND = [sys.executable, "-m", "stream.cli"]
DEMO = resource("data/demo")
FIRST = DEMO / "01_low_beam_off_at_night.yaml"
NOBODY = "127.0.0.1:1"
IMPATIENT = {"COCKPITHAT_KAFKA__REQUEST_TIMEOUT_MS": "1000"}


def cockpithat(
    *arguments: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, without settings of the surrounding shell."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COCKPITHAT_")}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, **(environment or {})},
        check=False,
    )


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that must fail with one clear line."""
    assert result.returncode not in {0, None}
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


def test_version_and_help() -> None:
    assert __version__ in cockpithat("--version").stdout
    text = cockpithat("--help").stdout
    for command in ("attribute", "demo", "dlq", "graph", "replay", "topics", "worker"):
        assert command in text


def test_help_imports_neither_faust_nor_pydantic_and_attribute_no_kafka() -> None:
    """A quick start, and an `attribute` that works where no Kafka library does."""
    probe = (
        "import sys\n"
        "from stream.cli import main\n"
        "heavy = ('faust', 'confluent_kafka', 'aiokafka', 'pydantic')\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "finally: print(*(name for name in heavy if name in sys.modules), file=sys.stderr)\n"
    )

    def imported(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stderr.strip()

    assert imported("--help") == ""
    assert imported("attribute", str(DEMO / "09_warm_cabin_and_route.yaml")) == "pydantic"


def test_attribute_writes_json_lines_or_a_table(tmp_path: Path) -> None:
    done = cockpithat("attribute", FIRST, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["session_id"] == "low-beam-off-at-night"
    out = tmp_path / "table.txt"
    assert cockpithat("attribute", FIRST, "--output", out).returncode == 0
    assert "low-beam-off-at-night" in out.read_text(encoding="utf-8")


def test_suspicions_are_screened_from_files(tmp_path: Path) -> None:
    passed = DEMO / "10_wipers_stay_off.yaml"
    done = cockpithat("suspicions", passed, FIRST, "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert (line["session_id"], line["file"]) == ("wipers-stay-off", str(passed))
    out = tmp_path / "table.txt"
    assert cockpithat("suspicions", passed, "--output", out).returncode == 0
    assert "wipers-stay-off" in out.read_text(encoding="utf-8")
    bad = tmp_path / "bad.json"
    bad.write_text("{", encoding="utf-8")
    assert cockpithat("suspicions", bad, passed, "--json").returncode == 1


def test_attribute_is_the_same_in_every_process() -> None:
    outputs = set()
    for seed in ("1", "2", "3"):
        done = cockpithat("attribute", *DEMO.glob("0*.yaml"), "--json", environment={"PYTHONHASHSEED": seed})
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        outputs.add(json.dumps([{k: v for k, v in line.items() if k != "seconds"} for line in lines]))
    assert len(outputs) == 1


def test_a_bad_file_is_one_line_and_the_exit_is_not_zero(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{", encoding="utf-8")
    done = cockpithat("attribute", bad, FIRST, "--json")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    first, last = done.stderr.splitlines()
    assert str(bad) in first and "line 1" in first
    assert last == "cockpithat: 1 of the inputs could not be used"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["attribute"], "Missing argument"),
        (["attribute", "x", "--method", "magic"], "no method 'magic'"),
        (["attribute", "x", "--analysts", "llm"], "need an endpoint"),
        (["suspicions"], "Missing argument"),
        (["suspicions", str(FIRST), "--output", str(FIRST)], "would be overwritten"),
        (["graph", "/nowhere.json"], "no such file"),
        (["graph", "x", "--format", "png"], "'png'"),
        (
            ["attribute", str(FIRST), "--output", "/nowhere/out"],
            "No such file",
        ),
        (["dlq", "show", "--reason", "boredom"], "no reason 'boredom'"),
        (["worker", "--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["worker", "--roles", "juggle"], "juggle"),
        (["jump"], "No such command"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str) -> None:
    assert says in one_line(cockpithat(*arguments, environment=IMPATIENT))


def test_a_wrong_setting_is_named() -> None:
    done = cockpithat("topics", "check", environment={"COCKPITHAT_KAFKA__LINGER_MS": "soon"})
    assert "linger_ms" in one_line(done).lower()


def test_a_rule_that_watches_an_unknown_signal_is_told_in_one_line(tmp_path: Path) -> None:
    rules = tmp_path / "ours.yaml"
    shipped = read_resource("data/rules/hazards.yaml")
    rules.write_text(
        shipped.replace("Vehicle.Body.Lights.Beam.Low.", "Vehicle.Body.Light.Beam.Low."), "utf-8"
    )
    environment = {"COCKPITHAT_ATTRIBUTION__RULES_FILE": str(rules)}
    done = cockpithat("attribute", FIRST, environment=environment)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{rules}: rule")
    assert "Vehicle.Body.Light.Beam.Low.IsOn" in line


def test_a_graph_marks_the_local_verdict_unless_told_not_to() -> None:
    verdict = json.loads(cockpithat("attribute", FIRST, "--json").stdout)["step"]
    assert json.loads(cockpithat("graph", FIRST).stdout)["verdict"] == verdict
    marked = cockpithat("graph", FIRST, "--format", "dot").stdout
    assert f"s{verdict} [" in marked and marked.count("penwidth=3") == 1
    assert "Verdict (cockpithat, local)" in cockpithat("graph", FIRST, "--format", "html").stdout
    plain = cockpithat("graph", FIRST, "--format", "dot", "--no-verdict").stdout
    assert plain and "penwidth=3" not in plain


def test_a_graph_of_a_session_that_passed_has_no_verdict() -> None:
    done = cockpithat("graph", DEMO / "09_warm_cabin_and_route.yaml")
    assert json.loads(done.stdout)["verdict"] is None


def test_help_says_whose_partition_and_offset_a_redrive_means() -> None:
    text = " ".join(cockpithat("dlq", "redrive", "--help").stdout.split())
    assert text.count("in the dead-letter topic") + text.count("of the dead-letter topic") == 2
    assert "not source_offset" in text


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (Redriven(sent=0, foreign=0, before=2), "nothing sent: 2 selected and already sent back"),
        (Redriven(sent=0, foreign=0), "0 records sent back"),
        (Redriven(sent=3, foreign=0), "3 records sent back"),
    ],
)
def test_a_second_redrive_says_that_it_was_done_before(
    done: Redriven, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.dlq.redrive", lambda *_, **__: done)
    result = CliRunner().invoke(cli, ["dlq", "redrive", "--topic", "events"])
    assert result.exit_code == 0
    assert result.output.startswith(says)


def test_replay_to_brokers_that_do_not_answer_is_one_line() -> None:
    done = cockpithat("replay", FIRST, "--bootstrap-servers", NOBODY, environment=IMPATIENT)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{NOBODY}: cannot reach the brokers" in done.stderr.splitlines()[-1]


def test_a_reader_that_goes_away_is_no_error_to_shout_about(tmp_path: Path) -> None:
    many = tmp_path / "chats.json"
    chat = {"messages": [{"role": "user", "content": "hello " * 50}]}
    many.write_text(json.dumps([{**chat, "id": f"s{n}"} for n in range(300)]), encoding="utf-8")
    process = subprocess.Popen(
        [*COMMAND, "attribute", str(many), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 1


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    many = tmp_path / "chats.json"
    chat = {"messages": [{"role": "user", "content": "hello " * 200}] * 200}
    many.write_text(json.dumps([{**chat, "id": f"s{n}"} for n in range(400)]), encoding="utf-8")
    process = subprocess.Popen(
        [*COMMAND, "attribute", str(many), "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    time.sleep(2.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 130
    assert told.splitlines() == ["cockpithat: interrupted"]
