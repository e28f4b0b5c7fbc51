"""The log of a benchmark run: JSON Lines that are only ever appended to, readable without this product.

The first line is the header, then comes one line a judged run and repeat as soon as it is known, and a line
with the results at the end of a pass. A later line for the same run and repeat replaces an earlier one, so a
run that failed can be tried again. ``docs/benchmark.md`` lists the fields.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import orjson
from pydantic import Field, ValidationError

from cockpithat.bench.errors import BenchError
from cockpithat.bench.samples import Target, _Record
from cockpithat.bench.scoring import Answer, Chance, Scores
from cockpithat.contract.reports import StepRange, TokenUsage

FORMAT: Literal["cockpithat-bench-log"] = "cockpithat-bench-log"


class DatasetInfo(_Record):
    """What was judged and how it was read."""

    format: str
    path: str
    digest: str
    samples: int
    groups: tuple[str, ...]
    index_base: str
    name_rule: str
    notes: tuple[str, ...] = ()


class Header(_Record):
    """First line of a log: everything needed to run it again and to know what it says."""

    type: Literal["header"] = "header"
    format: Literal["cockpithat-bench-log"] = FORMAT
    version: Literal[1] = 1
    created: str = Field(description="RFC 3339, UTC")
    product_version: str
    python: str
    dataset: DatasetInfo
    method: str
    analysts: str
    config_digest: str
    rules_version: str = ""
    models: dict[str, str] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    ground_truth_shown: bool = False
    cache: bool = False
    repeat: int = 1
    calibration: str | None = None

    def differs(self, other: Header) -> str | None:
        """What makes the runs of two headers incomparable, if anything does."""
        for name, mine, theirs in (
            ("the data", self.dataset.digest, other.dataset.digest),
            ("the method", (self.method, self.analysts), (other.method, other.analysts)),
            ("the configuration", self.config_digest, other.config_digest),
            ("whether the ground truth is shown", self.ground_truth_shown, other.ground_truth_shown),
            ("the models", self.models, other.models),
            ("the calibration", self.calibration, other.calibration),
        ):
            if mine != theirs:
                return name
        return None


class SampleRecord(_Record):
    """One run, judged once. ``epoch`` counts repeats from 1; ``error`` is set when the method failed."""

    type: Literal["sample"] = "sample"
    id: str
    epoch: int = Field(1, ge=1)
    group: str
    file: str
    trace_id: str
    steps: int
    tags: dict[str, str] = Field(default_factory=dict)
    target: Target
    second: Target | None = None
    output: Answer | None = None
    ranking: tuple[int, ...] = ()
    step_range: StepRange | None = None
    scores: Scores
    chance: Chance
    tokens: TokenUsage = TokenUsage()
    cost: float | None = None
    seconds: float = 0.0
    config_digest: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was read. ``records`` holds the newest line of each run and repeat, in the file's order."""

    path: Path
    header: Header
    records: tuple[SampleRecord, ...]
    end: int = field(default=0)  # bytes up to the last whole line

    def done(self) -> set[tuple[str, int]]:
        """Runs and repeats that have an answer."""
        return {(record.id, record.epoch) for record in self.records if record.error is None}


def read_log(path: Path) -> Log:
    """A log. A last line without its end, as an interruption leaves it, is passed over.

    Raises ``BenchError`` naming the line that cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BenchError(f"{path}: cannot be read ({error.strerror})") from None
    end = data.rfind(b"\n") + 1
    header: Header | None = None
    records: dict[tuple[str, int], SampleRecord] = {}
    for number, line in enumerate(data[:end].split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
            kind = value.get("type") if isinstance(value, dict) else None
            if header is None:
                header = Header.model_validate(value)
            elif kind == "sample":
                record = SampleRecord.model_validate(value)
                records[record.id, record.epoch] = record
        except (orjson.JSONDecodeError, ValidationError) as error:
            what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise BenchError(f"{path}, line {number}: no line of a benchmark log ({what})") from None
    if header is None:
        raise BenchError(f"{path}: holds no header of a benchmark log; it may have been cut off at its start")
    return Log(path, header, tuple(records.values()), end)


class LogWriter:
    """Appends lines, each on the disk before the next run is judged. Use as a context manager."""

    def __init__(self, path: Path, header: Header, *, after: Log | None = None) -> None:
        """A new file, which must not exist; or the one that was read as ``after``, cut to whole lines."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO
        if after is None:
            try:
                self._file = path.open("xb")
            except FileExistsError:
                raise BenchError(
                    f"{path}: exists; go on with --resume, or give another folder with --out"
                ) from None
            self.append(header)
        else:
            self._file = path.open("r+b")
            self._file.truncate(after.end)
            self._file.seek(after.end)

    def append(self, record: Header | SampleRecord) -> None:
        """One line, written through."""
        self.append_json(record.model_dump(mode="json", exclude_none=True))

    def append_json(self, value: dict[str, Any]) -> None:
        """One line, written through."""
        self._file.write(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def in_order(records: Sequence[SampleRecord], order: Sequence[str]) -> list[SampleRecord]:
    """Records by the data set's order, then by repeat."""
    place = {name: i for i, name in enumerate(order)}
    return sorted(records, key=lambda r: (place.get(r.id, len(place)), r.epoch))
