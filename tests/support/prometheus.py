"""A real Prometheus (Debian's package) that scrapes what a test serves, and ``promtool``."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka import free_ports


@dataclass
class Prometheus:
    """Started by :meth:`scrape`; ended by the fixture."""

    binary: str
    promtool: str
    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _url: str = ""

    def check(self, *arguments: str) -> str:
        """``promtool check ...``; its complaint fails the test."""
        command = [self.promtool, "check", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def lint_metrics(self, exposition: bytes) -> str:
        """What ``promtool check metrics`` has to say about an exposition; empty when it is happy."""
        result = subprocess.run(
            [self.promtool, "check", "metrics"],
            input=exposition,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return (result.stdout + result.stderr).decode()

    def test_rules(self, file: Path) -> str:
        """``promtool test rules``: alert rules against written series."""
        command = [self.promtool, "test", "rules", str(file)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def scrape(self, target: str, rules: Path | None = None) -> None:
        """Start, scraping ``host:port`` twice a second."""
        (port,) = free_ports(1)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [{"job_name": "cockpithat", "static_configs": [{"targets": [target]}]}],
        }
        file = self.folder / "prometheus.yml"
        file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        self._url = f"http://127.0.0.1:{port}"
        with (self.folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self.binary,
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def get(self, path: str) -> Any:
        """``data`` of an answer of the HTTP interface."""
        with urllib.request.urlopen(self._url + path, timeout=5) as answer:
            return json.load(answer)["data"]

    def wait_for(self, query: str, *, timeout: float = 30.0) -> float:
        """Value of the first series that ``query`` finds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = self.get(f"/api/v1/query?query={urllib.parse.quote(query)}")["result"]
                if found:
                    return float(found[0]["value"][1])
            except (urllib.error.URLError, ConnectionError):
                pass  # not listening yet
            if time.monotonic() > deadline:
                log = (self.folder / "prometheus.log").read_text(encoding="utf-8", errors="replace")
                raise AssertionError(f"no result for {query} in {timeout:.0f} s\n{log[-2_000:]}")
            time.sleep(0.2)

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout=10)
            self._process = None


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """Prometheus and promtool; what is started ends with the test."""
    binary, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if binary is None or promtool is None:
        from tests.conftest import missing

        missing("prometheus and promtool are not on the PATH (Debian: package prometheus)")
    server = Prometheus(binary, promtool, tmp_path)
    try:
        yield server
    finally:
        server.close()
