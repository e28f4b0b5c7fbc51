"""Who&When, either split or a folder that holds both: 0-based steps, one run a file."""

from __future__ import annotations

from pathlib import Path

from cockpithat.bench.datasets import Dataset, Kind, Source, digest_of, first_records, json_files
from cockpithat.bench.errors import BenchError
from cockpithat.bench.loaders.second import second_labels
from cockpithat.bench.samples import Sample, Target
from cockpithat.formats import ReadOptions, load
from cockpithat.labels import GoldLabel, read_whowhen_labels

INDEX_BASE = "0-based: the label's step is the position in history"
NAME_RULE = (
    "history[].name, else history[].role without its suffix in brackets; compared blind to case, spaces and "
    "punctuation"
)


def recognises(path: Path) -> bool:
    """Runs with ``history`` and a label in them."""
    records = list(first_records(path))
    return bool(records) and all(
        isinstance(record, dict) and {"history", "mistake_step"} <= record.keys() for record in records
    )


def load_whowhen(source: Source) -> Dataset:
    """Groups are the names of the folders that the runs lie in."""
    if source.labels is not None:
        raise BenchError(
            "Who&When runs hold their labels; for another team's use --second, or --format agentrx --labels"
        )
    second = second_labels(source.second) if source.second else {}
    files = json_files(source.path)
    samples: list[Sample] = []
    for file in files:
        group = file.parent.resolve().name.casefold()
        traces = list(load(file, "whowhen", ReadOptions(warn=source.warn)))
        labels = read_whowhen_labels(file)
        if len(traces) != len(labels):
            raise BenchError(f"{file}: {len(labels)} labels but {len(traces)} sessions; split the file")
        for number, (trace, label) in enumerate(zip(traces, labels, strict=True)):
            name = file.stem if len(traces) == 1 else f"{file.stem}-{number}"
            samples.append(
                Sample(
                    id=f"{group}/{name}",
                    group=group,
                    file=file.name,
                    trace=trace,
                    target=target_of(label),
                    # The second team labelled hand-crafted runs; questions recur among the generated ones.
                    second=second.get(trace.session_id) if "hand-crafted" in trace.vehicle_id else None,
                    reference=label.answer,
                )
            )
    return Dataset("whowhen", tuple(samples), digest_of(files), INDEX_BASE, NAME_RULE)


def target_of(label: GoldLabel) -> Target:
    """A label as the scorer takes it."""
    return Target(
        agent=label.agent,
        step=label.step,
        agent_text=label.agent,
        step_text=label.step_text or str(label.step),
    )


KIND = Kind("whowhen", "Who&When runs, one split or both", recognises, load_whowhen)
