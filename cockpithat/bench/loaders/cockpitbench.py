"""CockpitBench as ``cockpithat simulate`` writes it: ``traces/*.jsonl`` and ``labels.jsonl``.

Scored are the failed sessions, against the label computed by replay. The simulated annotators' consensus is
the second label, where it settled on an agent and a step.
"""

from __future__ import annotations

from pathlib import Path

from cockpithat.bench.datasets import Dataset, Kind, Source, digest_of
from cockpithat.bench.errors import BenchError
from cockpithat.bench.samples import Sample, Target
from cockpithat.formats import ReadOptions, load
from cockpithat.simulator.benchmark import LABELS_FILE, TRACES_FOLDER, read_labels
from cockpithat.simulator.labels import SessionLabel

INDEX_BASE = "0-based: the label's step is the position among the session's steps"
NAME_RULE = "the event's agent; compared blind to case, spaces and punctuation"


def recognises(path: Path) -> bool:
    """A folder that ``simulate`` wrote."""
    return path.is_dir() and (path / LABELS_FILE).is_file() and (path / TRACES_FOLDER).is_dir()


def load_cockpitbench(source: Source) -> Dataset:
    """The failed sessions of the folder; passed ones and silent hazards are left out and counted."""
    if source.second is not None:
        raise BenchError("CockpitBench brings its second labels along: the annotators' consensus")
    label_file = source.labels or source.path / LABELS_FILE
    try:
        labels = read_labels(label_file)
    except (OSError, ValueError) as error:
        raise BenchError(str(error)) from None
    samples: list[Sample] = []
    files: list[Path] = []
    for label in labels:
        if label.kind != "failed" or label.gold is None:
            continue
        file = source.path / TRACES_FOLDER / f"{label.session_id}.jsonl"
        (trace, *more) = load(file, "cockpit", ReadOptions(warn=source.warn))
        if more or trace.session_id != label.session_id:
            raise BenchError(f"{file}: holds another session than its name says; simulate anew")
        files.append(file)
        samples.append(
            Sample(
                id=label.session_id,
                group="cockpitbench",
                file=file.name,
                trace=trace,
                target=_target(label),
                second=_consensus(label),
                reference=label.scenario.safe_outcome,
                tags={"language": label.scenario.language, "source": label.scenario.source},
            )
        )
    left = len(labels) - len(samples)
    notes = (f"{left} sessions did not fail and are left out",) if left else ()
    return Dataset(
        "cockpitbench", tuple(samples), digest_of([label_file, *files]), INDEX_BASE, NAME_RULE, notes
    )


def _target(label: SessionLabel) -> Target:
    gold = label.gold
    assert gold is not None
    return Target(
        agent=gold.agent,
        step=gold.step,
        agent_text=gold.agent,
        step_text=str(gold.step),
        category=gold.category,
        category_text=gold.category.value,
        asil=gold.asil,
    )


def _consensus(label: SessionLabel) -> Target | None:
    agreed = label.annotation.consensus if label.annotation else None
    if agreed is None or agreed.agent is None or agreed.step is None:
        return None
    return Target(
        agent=agreed.agent,
        step=agreed.step,
        agent_text=agreed.agent,
        step_text=str(agreed.step),
        category=agreed.category,
        category_text=agreed.category.value if agreed.category else "",
        asil=agreed.asil,
    )


KIND = Kind("cockpitbench", "a folder written by `cockpithat simulate`", recognises, load_cockpitbench)
