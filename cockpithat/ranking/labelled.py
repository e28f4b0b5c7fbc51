"""Labelled traces as features: what training reads. Labels stay apart from what features are made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.trace import Trace
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.registry import load
from cockpithat.labels import read_whowhen_labels
from cockpithat.ranking.features import step_features
from cockpithat.ranking.severity import severity_features
from cockpithat.ranking.training import Labelled
from cockpithat.simulator.benchmark import TRACES_FOLDER, read_labels
from cockpithat.simulator.labels import SessionLabel

TRAINING, HELD_OUT = "training", "held-out"


def examiner() -> LocalAttribution:
    """Examines without any weights, so that training starts from nothing that was trained."""
    return LocalAttribution(AttributionSettings(ranker=False))


def cockpitbench(
    folder: Path, families: str = TRAINING, *, failed: bool = True
) -> Iterator[tuple[Trace, SessionLabel]]:
    """Sessions of a simulated benchmark, of the training families or of the held-out ones only.

    ``failed``: those with a decisive step, else those without a failure flag: passed and silent hazards.
    """
    for label in read_labels(folder):
        if (label.kind == "failed") != failed or label.scenario.held_out != (families == HELD_OUT):
            continue
        file = folder / TRACES_FOLDER / f"{label.session_id}.jsonl"
        traces = list(load(file, "cockpit", ReadOptions(warn=lambda _: None)))
        if [trace.session_id for trace in traces] != [label.session_id]:
            raise ValueError(
                f"{file}: holds other sessions than the one it is named for; write the folder again"
            )
        (trace,) = traces
        yield trace, label


def from_cockpitbench(folder: Path, families: str = TRAINING) -> Iterator[Labelled]:
    """Rows of a simulated benchmark, grouped by family."""
    local = examiner()
    for trace, label in cockpitbench(folder, families):
        gold = label.gold
        assert gold is not None
        examination = local.examine(trace)
        yield Labelled(
            id=label.session_id,
            group=label.scenario.family,
            features=step_features(examination),
            step=gold.step,
            agent=agent_key(gold.agent),
            category=gold.category.value,
            situation=severity_features(examination),
            classes=(gold.severity, gold.exposure, gold.controllability),
        )


def from_whowhen(folder: Path) -> Iterator[Labelled]:
    """Rows of the Who&When files of a folder, grouped by question."""
    local = examiner()
    for path in sorted(folder.glob("*.json")):
        for trace, label in zip(load(path), read_whowhen_labels(path), strict=True):
            yield Labelled(
                id=f"{folder.name}/{path.stem}",
                group=label.session_id,
                features=step_features(local.examine(trace)),
                step=label.step,
                agent=agent_key(label.agent),
            )
