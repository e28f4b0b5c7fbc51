"""The labelled data sets: where traces and labels lie, index base, name rules.

Traces are read by the importers, which never touch a label; labels are read apart and joined by the
run's identity. A loader says in words which rules it applied, and the log keeps them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cockpithat.bench.errors import BenchError
from cockpithat.bench.samples import Sample

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Source:
    """What to load. ``labels`` replaces the labels beside the data, ``second`` is another team's."""

    path: Path
    labels: Path | None = None
    second: Path | None = None
    warn: Callable[[str], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Loaded runs, and how they were read."""

    format: str
    samples: tuple[Sample, ...]
    digest: str
    index_base: str
    name_rule: str
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the parts, in order of appearance."""
        return tuple(dict.fromkeys(sample.group for sample in self.samples))


Loader = Callable[[Source], Dataset]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of data set: ``recognises`` looks at names and first records only."""

    name: str
    summary: str
    recognises: Callable[[Path], bool]
    load: Loader


def load_dataset(source: Source, format: str = AUTO) -> Dataset:
    """The labelled runs at a path. Raises ``BenchError`` and ``FormatError``."""
    kinds = _kinds()
    if not source.path.exists():
        raise BenchError(f"{source.path}: no such file or folder; check the path")
    if format == AUTO:
        fitting = [kind for kind in kinds.values() if kind.recognises(source.path)]
        if len(fitting) != 1:
            raise BenchError(
                f"{source.path}: is no labelled data set that can be told by its content; "
                f"name it with --format: {', '.join(kinds)}"
            )
        (chosen,) = fitting
    elif format in kinds:
        chosen = kinds[format]
    else:
        raise BenchError(f"no data set format {format!r}; choose from auto, {', '.join(kinds)}")
    dataset = chosen.load(source)
    if not dataset.samples:
        raise BenchError(f"{source.path}: holds no labelled run for format {chosen.name}")
    return dataset


def formats() -> dict[str, str]:
    """Names of the known data sets with a line about each."""
    return {name: kind.summary for name, kind in _kinds().items()}


def _kinds() -> dict[str, Kind]:
    from cockpithat.bench.loaders import agentrx, cockpitbench, whowhen

    return {module.KIND.name: module.KIND for module in (whowhen, agentrx, cockpitbench)}


def json_files(path: Path) -> list[Path]:
    """The JSON files at a path, by folder and then by number where names are numbers."""
    return sorted(path.rglob("*.json"), key=_natural) if path.is_dir() else [path]


def digest_of(paths: Sequence[Path]) -> str:
    """SHA-256 (hex) over names and bytes of files."""
    state = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        state.update(f"{path.name}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()


def _natural(path: Path) -> tuple[str, int, str]:
    number = re.fullmatch(r"\d{1,9}", path.stem)
    return str(path.parent), int(number[0]) if number else -1, path.stem


def first_records(path: Path, limit: int = 3) -> Iterator[object]:
    """First records of up to ``limit`` files at a path, to tell kinds apart; skips what cannot be read."""
    from cockpithat.formats import FormatError
    from cockpithat.formats.reading import read_document

    for file in json_files(path)[:limit]:
        try:
            document = read_document(file)
        except FormatError:
            continue
        record = next(document.records(), None)
        if record is not None:
            yield record[1]
