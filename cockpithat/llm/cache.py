"""Answers by content of the request: a re-run of a trace pays for nothing twice."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import orjson

from cockpithat.llm.settings import CacheSettings

_SUFFIX = ".json"


def request_key(url: str, body: dict[str, Any]) -> str:
    """Identity of a request: endpoint, model, parameters, messages and schema; 64 hex digits."""
    content = orjson.dumps({"url": url, "body": body}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()


class ResponseCache:
    """Answers (texts) in memory and, if a folder is set, on disk; both bounded in bytes, oldest use first.

    A folder that cannot be read or written costs hits, never an answer: such errors are passed over. Files
    are readable by their owner only, for they quote sessions.
    """

    def __init__(self, settings: CacheSettings) -> None:
        self._settings = settings
        self._memory: OrderedDict[str, str] = OrderedDict()
        self._memory_bytes = 0
        self._disk_bytes: int | None = None

    @property
    def memory_bytes(self) -> int:
        """Bytes of the answers held in memory."""
        return self._memory_bytes

    def get(self, key: str) -> str | None:
        """The answer to a request, or ``None``."""
        if not self._settings.enabled:
            return None
        if (answer := self._memory.get(key)) is not None:
            self._memory.move_to_end(key)
            return answer
        answer = self._read(key)
        if answer is not None:
            self._remember(key, answer)
        return answer

    def put(self, key: str, answer: str) -> None:
        """Keep an answer."""
        if not self._settings.enabled:
            return
        self._remember(key, answer)
        self._write(key, answer)

    def _remember(self, key: str, answer: str) -> None:
        size = len(answer.encode("utf-8", "surrogatepass"))
        if size > self._settings.memory_bytes:
            return
        if (old := self._memory.pop(key, None)) is not None:
            self._memory_bytes -= len(old.encode("utf-8", "surrogatepass"))
        self._memory[key] = answer
        self._memory_bytes += size
        while self._memory_bytes > self._settings.memory_bytes:
            _, dropped = self._memory.popitem(last=False)
            self._memory_bytes -= len(dropped.encode("utf-8", "surrogatepass"))

    def _path(self, key: str) -> Path | None:
        return None if self._settings.directory is None else self._settings.directory / (key + _SUFFIX)

    def _read(self, key: str) -> str | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            stored = orjson.loads(path.read_bytes())
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        answer = stored.get("answer") if isinstance(stored, dict) and stored.get("key") == key else None
        return answer if isinstance(answer, str) else None

    def _write(self, key: str, answer: str) -> None:
        path = self._path(key)
        if path is None:
            return
        try:
            content = orjson.dumps({"key": key, "answer": answer})
        except orjson.JSONEncodeError:  # lone surrogates have no UTF-8 form
            return
        if len(content) > self._settings.directory_bytes:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            before = path.stat().st_size if path.exists() else 0
            # A rename is atomic: a reader in another process sees the whole answer or none.
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
            if self._disk_bytes is None:
                self._disk_bytes = sum(size for _, size, _ in self._files())
            else:
                self._disk_bytes += len(content) - before
            if self._disk_bytes > self._settings.directory_bytes:
                self._shrink()
        except OSError:
            return

    def _files(self) -> list[tuple[float, int, Path]]:
        directory = self._settings.directory
        found: list[tuple[float, int, Path]] = []
        if directory is None:
            return found
        for path in directory.glob("*" + _SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _shrink(self) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._settings.directory_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
        self._disk_bytes = total
