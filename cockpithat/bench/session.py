"""One benchmark run from its options to its figures: data, method, log, progress."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.bench.datasets import Dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import Header, Log, LogWriter, SampleRecord, read_log
from cockpithat.bench.results import Json, results
from cockpithat.bench.runner import Plan, header_of, run
from cockpithat.calibration.method import Calibrated, RangePolicy
from cockpithat.calibration.model import Calibration
from cockpithat.commands.progress import progress_bar
from cockpithat.methods.registry import Method, create, read_options

_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run a data set with."""

    method: str
    analysts: str
    settings: AttributionSettings = field(default_factory=AttributionSettings)
    plan: Plan = field(default_factory=Plan)
    out: Path | None = None
    resume: bool = False
    limit: int | None = None
    cache: bool = False
    calibration: Calibration | None = None
    policy: RangePolicy = field(default_factory=RangePolicy)
    options: tuple[str, ...] = ()  # of the method, each NAME=VALUE


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run; ``log`` is where its log lies, if one was asked for."""

    header: Header
    records: list[SampleRecord]
    figures: Json
    log: Path | None


def bench(dataset: Dataset, path: Path, choice: Choice, tell: Callable[[str], None]) -> Outcome:
    """Run a method over a data set. Raises ``BenchError``, and what the method's settings raise."""
    method = _method(choice)
    calibration = choice.calibration.digest if choice.calibration else None
    header = header_of(dataset, path, method, choice.plan, cache=choice.cache, calibration=calibration)
    samples = dataset.samples[: choice.limit]
    log_path = choice.out / log_name(header, choice.options) if choice.out else None
    if choice.resume and log_path is None:
        raise BenchError("--resume needs the folder of the log; give it with --out")
    before = _before(log_path, header) if choice.resume and log_path is not None else None
    total = len(samples) * choice.plan.repeat
    already = len({(s.id, e) for s in samples for e in range(1, choice.plan.repeat + 1)} & _done(before))
    if already:
        tell(f"{already} of {total} answers are in {log_path}; going on with the rest")
    with Progress(f"{choice.method} ({choice.analysts})", total, already, tell) as progress:
        if log_path is None:
            records = run(samples, method, choice.plan, on_record=progress.advance)
            figures = results(header, records)
        else:
            with LogWriter(log_path, header, after=before) as log:
                records = run(
                    samples, method, choice.plan, log=log, before=before, on_record=progress.advance
                )
                figures = results(header, records)
                log.append_json({"type": "results", **figures})
    return Outcome(header, records, figures, log_path)


def log_name(header: Header, options: Sequence[str] = ()) -> str:
    """A file name that tells data, method, its options and whether the truth was shown."""
    chosen = "".join("-" + re.sub(r"[^\w.=]+", "_", option) for option in sorted(options))
    shown = "-truth-shown" if header.ground_truth_shown else ""
    data = f"{header.dataset.format}-{header.dataset.digest[:8]}"
    return f"{data}-{header.method}-{header.analysts}{chosen}{shown}.jsonl"


def _method(choice: Choice) -> Method:
    settings = _cached(choice.settings, choice.cache)
    method = create(choice.method, choice.analysts, settings, read_options(choice.options))
    if choice.calibration is None:
        return method
    return Calibrated(method, choice.calibration, choice.policy)


def _cached(settings: AttributionSettings, cache: bool) -> AttributionSettings:
    """Settings without the answer cache: a cached answer costs no tokens and repeats itself."""
    if cache or settings.panel is None:
        return settings
    llm = settings.panel.llm
    without = llm.model_copy(update={"cache": llm.cache.model_copy(update={"enabled": False})})
    return settings.model_copy(update={"panel": settings.panel.model_copy(update={"llm": without})})


def _before(path: Path, header: Header) -> Log | None:
    if not path.exists():
        return None
    log = read_log(path)
    if (what := header.differs(log.header)) is not None:
        raise BenchError(f"{path}: {what} changed since it was begun; give another folder with --out")
    return log


def _done(log: Log | None) -> set[tuple[str, int]]:
    return log.done() if log else set()


class Progress:
    """A bar for a person at a terminal, else a line on standard error every ten seconds."""

    def __init__(self, what: str, total: int, already: int, tell: Callable[[str], None]) -> None:
        self._what, self._total, self._done, self._tell = what, total, already, tell
        self._hits = self._seen = 0
        self._bar = progress_bar()
        self._lines = not sys.stderr.isatty()
        self._last = time.monotonic()
        self._task = self._bar.add_task(what, total=total, completed=already)

    def advance(self, record: SampleRecord) -> None:
        """One more answer."""
        self._done += 1
        self._seen += 1
        self._hits += record.scores.step
        self._bar.update(self._task, advance=1, description=f"{self._what}, {self._hits}/{self._seen} steps")
        if self._lines and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._tell(f"{self._what}: {self._done} of {self._total}")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._lines:
            self._tell(f"{self._what}: {self._done} of {self._total}")


def pairs_with(pairs: Sequence[tuple[str, str]], analysts: Sequence[str]) -> list[tuple[str, str]]:
    """The registered methods with these analysts, in order of registration."""
    return [pair for pair in pairs if pair[1] in analysts]
