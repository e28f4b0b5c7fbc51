"""Headless Chromium, to see pages as a person's browser does."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


@dataclass(frozen=True)
class Browser:
    """One run of the browser a call, each with an empty profile."""

    binary: str
    folder: Path

    def dom(self, page: str | Path, *, wait_ms: int = 2_000) -> str:
        """HTML of the page after its scripts ran for up to ``wait_ms`` of virtual time."""
        return self._run(page, f"--virtual-time-budget={wait_ms}", "--dump-dom")

    def screenshot(self, page: str | Path, *, size: tuple[int, int] = (1280, 900)) -> Path:
        """PNG of the page."""
        target = self.folder / "screenshot.png"
        self._run(page, f"--window-size={size[0]},{size[1]}", f"--screenshot={target}")
        assert target.is_file(), "the browser took no screenshot"
        return target

    def _run(self, page: str | Path, *arguments: str) -> str:
        url = page.resolve().as_uri() if isinstance(page, Path) else page
        profile = f"--user-data-dir={self.folder / 'profile'}"
        result = subprocess.run(
            [self.binary, *_FLAGS, profile, *arguments, url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-2_000:]
        return result.stdout


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """Chromium (Debian: package chromium)."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if binary is None:
        from tests.conftest import missing

        missing("no Chromium on the PATH (Debian: package chromium)")
    return Browser(binary, tmp_path)
