"""AgentRx: labels in a file of their own, 1-based (for tau runs the system prompt is step 1).

The label file is looked for beside the runs; ``--labels`` names it, also to score Who&When runs against
AgentRx's labels of them. Runs without a label are left out and counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from cockpithat.bench.datasets import Dataset, Kind, Source, digest_of, json_files
from cockpithat.bench.errors import BenchError
from cockpithat.bench.loaders.second import second_labels
from cockpithat.bench.samples import Sample
from cockpithat.formats import ReadOptions, load
from cockpithat.formats.errors import FormatError
from cockpithat.formats.reading import read_document
from cockpithat.formats.values import as_text

INDEX_BASE = "1-based: step 1 is the first message, for tau runs the system prompt; turned 0-based"
NAME_RULE = "message role, or the agent's name; compared blind to case, spaces and punctuation"
_IDENTITY = ("trajectory_id", "task_id", "question_ID")


def recognises(path: Path) -> bool:
    """Runs with an AgentRx label file beside them."""
    try:
        runs, labels = _parts(path, None)
    except BenchError:
        return False
    return bool(runs) and labels is not None


def load_agentrx(source: Source) -> Dataset:
    """The runs that have a label. A group is a file of runs, or a folder of such files."""
    runs, label_file = _parts(source.path, source.labels)
    if label_file is None:
        raise BenchError(f"{source.path}: no AgentRx labels beside the runs; name their file with --labels")
    targets = second_labels(label_file)
    second = second_labels(source.second) if source.second else {}
    samples: list[Sample] = []
    unlabelled = 0
    for file in runs:
        group = file.stem if len(runs) == 1 else file.parent.resolve().name.casefold()
        records = _records(file)
        traces = list(load(file, options=ReadOptions(warn=source.warn)))
        if len(records) != len(traces):
            raise BenchError(f"{file}: {len(records)} runs but {len(traces)} sessions; split the file")
        for record, trace in zip(records, traces, strict=True):
            identity = next((as_text(record[key]) for key in _IDENTITY if key in record), file.stem)
            if identity not in targets:
                unlabelled += 1
                continue
            samples.append(
                Sample(
                    id=f"{group}/{identity}",
                    group=group,
                    file=file.name,
                    trace=trace,
                    target=targets[identity],
                    second=second.get(identity),
                    reference=_reference(record),
                )
            )
    notes = (f"{unlabelled} runs have no label and are left out",) if unlabelled else ()
    return Dataset("agentrx", tuple(samples), digest_of([*runs, label_file]), INDEX_BASE, NAME_RULE, notes)


def _records(file: Path) -> list[dict[str, Any]]:
    """The runs of a file; a bare list of steps is one run."""
    records = [value for _, value in read_document(file).records()]
    if records and all(isinstance(r, dict) and "substeps" in r for r in records):
        return [{}]
    return [record if isinstance(record, dict) else {} for record in records]


def _reference(record: dict[str, Any]) -> str:
    """The right answer: Who&When's text, or a tau task's reference actions and outputs."""
    if "ground_truth" in record:
        return as_text(record["ground_truth"])
    info = record.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    if not isinstance(task, dict):
        return ""
    wanted = {key: task[key] for key in ("actions", "outputs") if task.get(key)}
    return orjson.dumps(wanted).decode() if wanted else ""


def _parts(path: Path, labels: Path | None) -> tuple[list[Path], Path | None]:
    """Run files, and the label file: the given one, or the one beside them that has the runs' name."""
    files = json_files(path)
    found = {file for file in files if _is_labels(file)} if path.is_dir() else set()
    runs = [file for file in files if file not in found]
    if labels is not None:
        return runs, labels
    beside = [f.with_name(f.name.replace("trajectories", "ground_truth")) for f in runs]
    named = [(run, file) for run, file in zip(runs, beside, strict=True) if file != run and file.is_file()]
    if len(named) == 1:
        return [named[0][0]], named[0][1]
    if len(named) > 1:
        raise BenchError(f"{path}: holds several label files; give one file of runs")
    return runs, next(iter(found)) if len(found) == 1 else None


def _is_labels(file: Path) -> bool:
    try:
        record = next(read_document(file).records(), None)
    except FormatError:
        return False
    return (
        record is not None and isinstance(record[1], dict) and {"failures", "root_cause"} <= record[1].keys()
    )


KIND = Kind("agentrx", "runs with an AgentRx label file (tau, Magentic-One)", recognises, load_agentrx)
