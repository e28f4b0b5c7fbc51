"""``cockpithat bench``: score methods on labelled runs, compare runs, tabulate and calibrate."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.bench.errors import BenchError
from cockpithat.calibration.conformal import Scale, Shape
from cockpithat.calibration.model import CalibrationError, read_calibration, write_calibration
from cockpithat.commands.options import METHOD_OPTION

F = TypeVar("F", bound=Callable[..., Any])
SettingsLoader = Callable[[Path | None], AttributionSettings]

_PATH = click.Path(path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Figures as JSON.")
_CONFIG = click.option("--config", type=_PATH, help="Settings file, as COCKPITHAT_CONFIG.")
_DATA_FORMAT = click.option(
    "--format",
    "format_name",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Data set: whowhen, agentrx or cockpitbench.",
)
_LABELS = click.option("--labels", type=_PATH, help="Label file, where it is not beside the runs (agentrx).")
_SECOND = click.option("--second", type=_PATH, help="Another team's labels (AgentRx's form), for agreement.")
_OUT = click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for logs.")
_RESUME = click.option("--resume", is_flag=True, help="Go on with the log in --out.")
_LIMIT = click.option("--limit", type=click.IntRange(1), help="Only the first so many runs.")
_JOBS = click.option("--jobs", type=click.IntRange(1, 64), help="Runs at a time; 4 for analysts 'llm'.")
_SHOW_TRUTH = click.option(
    "--show-ground-truth",
    is_flag=True,
    help="Show the task's right answer to the judge (never who failed or where).",
)
_CACHE = click.option(
    "--cache", is_flag=True, help="Use the answer cache: tokens then count only what was paid."
)
_COVERAGE = click.option(
    "--coverage",
    default=0.8,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Coverage of the ranges.",
)


class _RunByDefault(click.Group):
    """``bench PATH`` is ``bench run PATH``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _tell(line: str) -> None:
    click.echo("".join(c if c.isprintable() else " " for c in line), err=True)


def _in_one_line(function: F) -> F:
    """The harness's errors as the command line's own."""

    @functools.wraps(function)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (BenchError, CalibrationError) as error:
            raise click.ClickException(str(error)) from None

    return guarded  # type: ignore[return-value]


@click.group(cls=_RunByDefault, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def bench(context: click.Context) -> None:
    """Score methods on labelled runs: `bench PATH` judges every run there and prints the figures.

    A log in --out keeps each answer as it comes; `compare`, `table` and `calibrate` work from logs.
    """
    if context.obj is None:
        context.obj = lambda config: AttributionSettings()


@bench.command()
@click.argument("path", type=_PATH)
@_DATA_FORMAT
@click.option("--method", default="cockpithat", show_default=True, metavar="NAME", help="How to attribute.")
@click.option("--analysts", default="local", show_default=True, metavar="NAME", help="Who votes.")
@METHOD_OPTION
@_LABELS
@_SECOND
@_OUT
@_RESUME
@_SHOW_TRUTH
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Judge each run again.")
@_LIMIT
@_JOBS
@_CACHE
@click.option("--calibration", type=_PATH, help="Give each report its range, by this calibration.")
@_COVERAGE
@_CONFIG
@_JSON
@click.pass_obj
@_in_one_line
def run(
    load_settings: SettingsLoader,
    path: Path,
    format_name: str,
    method: str,
    analysts: str,
    options: tuple[str, ...],
    labels: Path | None,
    second: Path | None,
    out: Path | None,
    resume: bool,
    show_ground_truth: bool,
    repeat: int,
    limit: int | None,
    jobs: int | None,
    cache: bool,
    calibration: Path | None,
    coverage: float,
    config: Path | None,
    as_json: bool,
) -> None:
    """Judge the labelled runs at PATH by one method, and score it."""
    from cockpithat.bench.datasets import Source, load_dataset
    from cockpithat.bench.runner import Plan
    from cockpithat.bench.session import Choice
    from cockpithat.bench.session import bench as run_bench
    from cockpithat.bench.tables import show_results
    from cockpithat.calibration.method import RangePolicy

    choice = Choice(
        method=method,
        analysts=analysts,
        settings=load_settings(config),
        plan=Plan(repeat, jobs or (1 if analysts == "local" else 4), show_ground_truth),
        out=out,
        resume=resume,
        limit=limit,
        cache=cache,
        calibration=read_calibration(calibration) if calibration else None,
        policy=RangePolicy(coverage=coverage),
        options=options,
    )
    dataset = load_dataset(Source(path, labels, second, _tell), format_name)
    for note in dataset.notes:
        _tell(note)
    outcome = run_bench(dataset, path, choice, _tell)
    click.echo(json.dumps(outcome.figures, indent=1) if as_json else show_results(outcome.figures))
    if outcome.log is not None:
        _tell(f"log: {outcome.log}")
    if outcome.figures["errors"]:
        raise click.ClickException(
            f"{outcome.figures['errors']} answers failed and count as misses; --resume tries them again"
        )


@bench.command()
@click.argument("a", type=_PATH)
@click.argument("b", type=_PATH)
@_JSON
@_in_one_line
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Two logs side by side, with p-values."""
    from cockpithat.bench.compare import compare as compare_logs
    from cockpithat.bench.log import read_log
    from cockpithat.bench.tables import show_comparison

    comparison = compare_logs(read_log(a), read_log(b))
    click.echo(json.dumps(comparison, indent=1) if as_json else show_comparison(comparison))


@bench.command()
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option(
    "--analysts", multiple=True, default=("local",), show_default=True, metavar="NAME", help="Whose methods."
)
@_OUT
@_RESUME
@_SHOW_TRUTH
@_LIMIT
@_JOBS
@_CACHE
@_CONFIG
@_JSON
@click.pass_obj
@_in_one_line
def table(
    load_settings: SettingsLoader,
    paths: tuple[Path, ...],
    methods: tuple[str, ...],
    analysts: tuple[str, ...],
    out: Path | None,
    resume: bool,
    show_ground_truth: bool,
    limit: int | None,
    jobs: int | None,
    cache: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """All methods on all data in one table. PATHS are data sets, to be judged, or logs, to be read."""
    from cockpithat.bench.datasets import Source, load_dataset
    from cockpithat.bench.log import Header, SampleRecord, read_log
    from cockpithat.bench.overview import overview_rows
    from cockpithat.bench.runner import Plan
    from cockpithat.bench.session import Choice, pairs_with
    from cockpithat.bench.session import bench as run_bench
    from cockpithat.bench.tables import show_overview
    from cockpithat.methods.registry import names

    settings = load_settings(config)
    chosen = [pair for pair in pairs_with(names(), analysts) if not methods or pair[0] in methods]
    if not chosen and any(path.suffix != ".jsonl" for path in paths):
        known = ", ".join(sorted({f"{name} ({kind})" for name, kind in names()}))
        raise BenchError(f"no method fits; choose from: {known}")
    runs: list[tuple[Header, list[SampleRecord]]] = []
    for path in paths:
        if path.suffix == ".jsonl":
            log = read_log(path)
            runs.append((log.header, list(log.records)))
            continue
        dataset = load_dataset(Source(path, warn=_tell))
        for name, kind in chosen:
            plan = Plan(1, jobs or (1 if kind == "local" else 4), show_ground_truth)
            choice = Choice(name, kind, settings, plan, out, resume, limit, cache)
            outcome = run_bench(dataset, path, choice, _tell)
            runs.append((outcome.header, outcome.records))
    rows = overview_rows(runs)
    click.echo(json.dumps(rows, indent=1) if as_json else show_overview(rows))


@bench.command()
@click.argument("logs", nargs=-1, required=True, type=_PATH)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Calibration file to write.")
@click.option("--check", multiple=True, type=_PATH, help="Logs of unseen runs to check the coverage on.")
@click.option(
    "--split",
    "share",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Without --check: share of runs to calibrate on, chosen by hash; the rest is checked.",
)
@click.option(
    "--coverage",
    "levels",
    multiple=True,
    default=(0.5, 0.8, 0.9),
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Coverages to check.",
)
@click.option(
    "--scale",
    default=Scale.STEPS.value,
    show_default=True,
    type=click.Choice([scale.value for scale in Scale]),
    help="Places count in steps or in shares of the trace.",
)
@_JSON
@_in_one_line
def calibrate(
    logs: tuple[Path, ...],
    out: Path | None,
    check: tuple[Path, ...],
    share: float,
    levels: tuple[float, ...],
    scale: str,
    as_json: bool,
) -> None:
    """Ranges of steps that hold the decisive one with a chosen coverage, from LOGS of one method.

    The coverage is always checked on runs that were not calibrated on. What is written to --out is the very
    calibration that was checked.
    """
    from cockpithat.bench.calibrating import calibration_of, ranked, split
    from cockpithat.bench.log import read_log
    from cockpithat.bench.tables import show_coverage
    from cockpithat.calibration.coverage import check as check_coverage

    read = [read_log(path) for path in logs]
    records = [record for log in read for record in log.records]
    if check:
        part = records
        seen = {record.trace_id for record in records}
        unseen = [r for path in check for r in read_log(path).records if r.trace_id not in seen]
    else:
        part, unseen = split(records, share)
    if not ranked(unseen):
        raise BenchError("no unseen run is left to check the coverage on; give other logs with --check")
    made = calibration_of(read, part, Scale(scale))
    rows = [
        check_coverage(made, ranked(unseen), shape, level).model_dump(mode="json")
        for level in levels
        for shape in Shape
    ]
    if out is not None:
        write_calibration(made, out)
        _tell(f"calibration on {made.n} runs: {out}")
    click.echo(json.dumps(rows, indent=1) if as_json else show_coverage(made, rows))


@bench.command("official")
@click.argument("predictions", type=_PATH)
@click.argument("path", type=_PATH)
@_JSON
@_in_one_line
def official(predictions: Path, path: Path, as_json: bool) -> None:
    """Score a Who&When prediction log by that benchmark's own rules, on the labelled files at PATH."""
    from cockpithat.bench.datasets import Source, load_dataset
    from cockpithat.bench.official import accuracy, read_predictions

    try:
        text = predictions.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BenchError(f"{predictions}: cannot be read ({error.strerror})") from None
    samples = load_dataset(Source(path, warn=_tell), "whowhen").samples
    gold = {sample.file: (sample.target.agent_text, sample.target.step_text) for sample in samples}
    if len(gold) != len(samples):
        raise BenchError(f"{path}: file names repeat; give one split at a time")
    read = read_predictions(text)
    result = accuracy(read, gold)
    if as_json:
        parsed = sum(name in gold for name in read)
        click.echo(json.dumps({"n": len(gold), "parsed": parsed, "agent": result.agent, "step": result.step}))
    else:
        click.echo(f"Agent Accuracy: {100 * result.agent:.2f}%\nStep Accuracy:  {100 * result.step:.2f}%")
