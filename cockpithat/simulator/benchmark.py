"""CockpitBench as a whole: settings in, sessions out, files written. The same seed gives the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from cockpithat._version import __version__
from cockpithat.simulator.annotators import AnnotatorSettings, draw_sample
from cockpithat.simulator.builder import Builder, Wish, scenario_key, wishes
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import FAMILIES
from cockpithat.simulator.labels import SessionLabel
from cockpithat.simulator.marginals import published
from cockpithat.simulator.session import Sampling, SimulatedSession, to_session
from cockpithat.simulator.unseen_families import UNSEEN_FAMILIES

LABELS_FILE = "labels.jsonl"
TRACES_FOLDER = "traces"
MANIFEST_FILE = "manifest.json"
NOTICE = (
    "Simulated sessions: no part is real telemetry, the source kinds name styles, the annotators are "
    "programs and their agreement is a setting. Labels are computed by replay."
)

UNSEEN_NOTICE = (
    "Families of the second hold-out set: written without sight of any rule of an analyst, for measuring "
    "only, never for training."
)


class SimulateSettings(BaseModel):
    """What to simulate."""

    model_config = ConfigDict(frozen=True)

    traces: int = Field(default_factory=lambda: published().traces, ge=0, description="failed sessions")
    passed: int = Field(0, ge=0, description="sessions that go well, near-misses among them")
    silent_hazards: int = Field(0, ge=0, description="sessions that leave a hazard and report success")
    seed: int = Field(0, ge=0, description="everything follows from it")
    language: str | None = Field(None, description="one language for all: en, de or zh")
    families: Literal["published", "unseen"] = Field(
        "published", description="the sixteen families, or the second hold-out set (`unseen_families`)"
    )
    annotators: AnnotatorSettings = Field(default_factory=AnnotatorSettings)


def simulate(settings: SimulateSettings) -> Iterator[SimulatedSession]:
    """The sessions, one after the other, in the order of their numbers.

    Kinds follow each other (failed, silent hazards, passed); within a kind the order says nothing.
    Raises ``NoScenarioError`` when a wish cannot be met.
    """
    unseen = settings.families == "unseen"
    key = scenario_key(settings.seed, unseen)
    plan = wishes(key, settings.traces, settings.passed, settings.silent_hazards)
    builder = Builder(key, settings.language, UNSEEN_FAMILIES if unseen else FAMILIES)
    failed = [wish.number for wish in plan if wish.category is not None and not wish.silent]
    dice = Dice(key, "protocol")
    again = draw_sample(len(failed), settings.annotators.reannotated, dice, "again")
    # The rest of whom a share is audited are the A and B traces; C and D are audited anyway.
    low = [i for i in range(len(failed)) if _is_low(plan[i])]
    audited = {low[i] for i in draw_sample(len(low), settings.annotators.audited_rest, dice, "audit")}
    for wish in plan:
        sampling = None
        if wish.category is not None and not wish.silent:
            sampling = Sampling(again=wish.number in again, audited=wish.number in audited)
        yield to_session(builder.build(wish), settings.seed, settings.annotators, sampling)


def _is_low(wish: Wish) -> bool:
    return wish.asil is not None and wish.asil.value in ("A", "B")


def write(sessions: Iterable[SimulatedSession], out: Path, settings: SimulateSettings) -> dict[str, Any]:
    """Writes ``traces/<session>.jsonl``, ``labels.jsonl`` and ``manifest.json``; returns the manifest.

    A trace file holds the session's events and snapshots by time, nothing else.
    """
    traces = out / TRACES_FOLDER
    traces.mkdir(parents=True, exist_ok=True)
    labels: list[SessionLabel] = []
    with (out / LABELS_FILE).open("wb") as label_file:
        for session in sessions:
            with (traces / f"{session.start.session_id}.jsonl").open("wb") as trace_file:
                for record in session.records():
                    line = record.model_dump(mode="json", exclude_defaults=False, exclude_none=True)
                    trace_file.write(orjson.dumps(line) + b"\n")
            label_file.write(orjson.dumps(session.label.model_dump(mode="json", exclude_none=True)) + b"\n")
            labels.append(session.label)
    unseen = settings.families == "unseen"
    manifest = {
        "benchmark": "CockpitBench",
        "version": __version__,
        "notice": f"{NOTICE} {UNSEEN_NOTICE}" if unseen else NOTICE,
        "settings": settings.model_dump(mode="json", exclude=None if unseen else {"families"}),
        "counts": count(labels),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    (out / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")
    return manifest


def count(labels: Iterable[SessionLabel]) -> dict[str, dict[str, int]]:
    """How many sessions of each kind, category, ASIL, source, family and language."""
    tables: dict[str, Counter[str]] = {
        name: Counter() for name in ("kind", "category", "asil", "source", "family", "language")
    }
    for label in labels:
        tables["kind"][label.kind] += 1
        tables["source"][label.scenario.source] += 1
        tables["family"][label.scenario.family] += 1
        tables["language"][label.scenario.language] += 1
        if label.gold is not None:
            tables["category"][label.gold.category.value] += 1
            tables["asil"][label.gold.asil.value] += 1
    return {name: dict(sorted(table.items())) for name, table in tables.items()}


def read_labels(path: Path) -> list[SessionLabel]:
    """Labels of a written benchmark: the file, or the folder it lies in.

    Raises ``ValueError`` naming file and line where one cannot be read.
    """
    file = path / LABELS_FILE if path.is_dir() else path
    labels: list[SessionLabel] = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            labels.append(SessionLabel.model_validate_json(line))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not a label of CockpitBench: {error}") from error
    return labels
