"""The wheel works where there is no checkout, and deploy/ says what it means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpithat import __version__
from stream.health import Health, HealthServer
from stream.metrics import Metrics
from stream.settings import HealthSettings, load_settings

_ROOT = Path(__file__).resolve().parents[1]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a release would be."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    subprocess.run([*command, "-w", str(target), str(_ROOT)], check=True, timeout=240)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of a fresh environment that has the wheel and its dependencies, in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
    bin_folder = folder / "venv" / "bin"
    pip = [str(bin_folder / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "-c", str(_ROOT / "constraints.txt"), str(wheel)], check=True, timeout=240)
    empty = folder / "elsewhere"
    empty.mkdir()

    def run(program: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [str(bin_folder / program), *arguments],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def test_the_wheel_holds_what_the_product_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, inside in (
        ("schemas", "cockpithat/_resources/schemas"),
        ("prompts", "cockpithat/_resources/prompts"),
    ):
        for path in (_ROOT / folder).rglob("*"):
            if path.is_file():
                assert f"{inside}/{path.relative_to(_ROOT / folder).as_posix()}" in names
    for path in (_ROOT / "cockpithat" / "data").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(_ROOT).as_posix() in names
    assert {"cockpithat/py.typed", "stream/py.typed", "stream/cli.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "deploy/"))]


@pytest.mark.timeout(400)
def test_the_wheel_works_outside_the_checkout(installed: Run) -> None:
    version = installed("cockpithat", "--version")
    assert version.returncode == 0, version.stderr
    assert __version__ in version.stdout

    code = (
        "from pathlib import Path; import cockpithat, stream;"
        "from cockpithat.resources import read_resource, resource;"
        "assert read_resource('schemas/report.v1.json').startswith('{');"
        "assert 'site-packages' in str(resource('prompts')), resource('prompts');"
        "assert 'site-packages' in cockpithat.__file__;"
        "from cockpithat.analysis.rules import load_rules; assert load_rules(None);"
        "from stream.settings import load_settings; print(load_settings().topics.reports)"
    )
    result = installed("python", "-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "cockpit.attribution.reports.v1"


@pytest.mark.timeout(400)
def test_the_demo_runs_from_the_wheel(installed: Run) -> None:
    result = installed("cockpithat", "demo", timeout=180)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr[-2_000:]


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((_ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    return content


def test_the_settings_of_the_compose_file_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("topics", "worker"):
        for name, value in compose()["services"][service]["environment"].items():
            monkeypatch.setenv(name, value)
        assert load_settings().kafka.bootstrap_servers == "kafka:9092"


def test_the_compose_file_hangs_together() -> None:
    services = compose()["services"]
    for service in services.values():
        for other in service.get("depends_on", {}):
            assert other in services
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            exists = (
                (_ROOT / "deploy" / source).exists()
                if source.startswith(".")
                else source in compose()["volumes"]
            )
            assert exists, volume
    # What listens on this machine is not offered to the network.
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_is_built_from_what_is_sent_and_is_not_root() -> None:
    lines = (_ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in (_ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert copied == sent
    assert all((_ROOT / source).exists() for source in copied)
    assert "USER 10001:10001" in lines
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    assert sum(line.startswith("FROM ") for line in lines) == 2


def test_the_image_s_health_check_tells_alive_from_not() -> None:
    text = (_ROOT / "Dockerfile").read_text(encoding="utf-8")
    instruction = text[text.index("HEALTHCHECK ") :].split("\nSTOPSIGNAL")[0]
    command = json.loads(instruction[instruction.index("CMD ") + 4 :])
    assert command[0] == "python"

    metrics, settings = Metrics(), HealthSettings(port=0)
    health = Health(settings, metrics)
    with HealthServer(settings, health, metrics) as server:
        environment = {**os.environ, "COCKPITHAT_HEALTH__PORT": str(server.port)}

        def probe() -> int:
            run = [sys.executable, *command[1:]]
            return subprocess.run(
                run, env=environment, capture_output=True, timeout=20, check=False
            ).returncode

        assert probe() == 0
        health.fail("cannot recover")
        assert probe() != 0
    assert probe() != 0  # nothing listens
