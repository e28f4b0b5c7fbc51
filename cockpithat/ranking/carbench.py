"""Step labels for CAR-bench runs, which come without: the labels' side, never seen by a feature.

The gold step of a failed run is its first state-changing call that deviates from the reference actions (equal
name and arguments, in any order); where no call deviates and a part was
removed from the assistant's tools or data, the first answer that asserts the removed part. Runs whose failure
is an omission have no such step and are left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_READS = ("get_", "search_", "find_", "list_", "calculate_", "think", "plan", "read_", "query_")
_WORD = re.compile(r"[a-z]{4,}")
_ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class RunLabel:
    """One run. ``step`` counts messages from 0, as the importer does; ``None`` where no step can be named."""

    run: int  # position in the file
    failed: bool
    step: int | None
    why: str  # deviates, asserts, or none


def read_carbench_labels(path: Path) -> list[RunLabel]:
    """Labels of all runs of a CAR-bench file, in file order. Raises ``ValueError`` if it is none."""
    runs = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(runs, list):
        raise ValueError(f"{path}: not a list of CAR-bench runs")
    return [_label(number, run) for number, run in enumerate(runs)]


def _label(number: int, run: dict[str, Any]) -> RunLabel:
    failed = float(run.get("reward", 0)) < 1
    if not failed:
        return RunLabel(number, False, None, "none")
    task = run["info"]["task"]
    for step, name, arguments in _calls(run["traj"]):
        if not name.startswith(_READS) and not _is_reference(task.get("actions") or [], name, arguments):
            return RunLabel(number, True, step, "deviates")
    removed = {w for part in task.get("removed_part") or [] for w in _WORD.findall(str(part).lower())}
    if removed:
        for step, message in enumerate(run["traj"]):
            text = message.get("content")
            if message.get("role") != _ASSISTANT or not isinstance(text, str) or "?" in text:
                continue
            if len(removed & set(_WORD.findall(text.lower()))) >= min(2, len(removed)):
                return RunLabel(number, True, step, "asserts")
    return RunLabel(number, True, None, "none")


def _calls(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for step, message in enumerate(messages):
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            try:
                arguments = json.loads(function.get("arguments") or "{}")
            except ValueError:
                arguments = {}
            yield step, str(function.get("name")), arguments


def _is_reference(reference: list[dict[str, Any]], name: str, arguments: dict[str, Any]) -> bool:
    return any(a.get("name") == name and (a.get("kwargs") or {}) == arguments for a in reference)
