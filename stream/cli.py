"""The command line ``cockpithat``. A command imports what it needs when it runs, so that start is quick."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from cockpithat import __version__
from cockpithat.commands.options import METHOD_OPTION

if TYPE_CHECKING:
    from cockpithat.attribution import AttributionSettings
    from stream.dlq import Selection
    from stream.settings import Settings

EXIT_FAILED = 1
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
_FORMAT = click.option(
    "--format", "format_name", default="auto", show_default=True, metavar="NAME", help="File format."
)
_STATE_MAP = click.option(
    "--state-map",
    type=click.Path(path_type=Path),
    help="JSON file that maps the source's state fields to VSS (openai_chat).",
)
_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="Settings file, as COCKPITHAT_CONFIG."
)
_SERVERS = click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka brokers.")


def tell(line: str) -> None:
    """One line on standard error, safe for a terminal whatever it quotes."""
    click.echo("".join(c if c.isprintable() else " " for c in line), err=True)


class _InterruptedError(Exception):
    """Ctrl-C; click would print an empty line for it."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cockpithat")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an unexpected error.")
@click.pass_context
def cli(context: click.Context, verbose: bool) -> None:
    """Says which agent of a car cockpit failed, at which step, how badly and on what evidence."""
    context.obj = {"verbose": verbose}


@cli.command()
@_FILES
@_FORMAT
@_STATE_MAP
@click.option("--method", default="cockpithat", show_default=True, metavar="NAME", help="How to attribute.")
@click.option("--analysts", default="local", show_default=True, metavar="NAME", help="Who votes.")
@METHOD_OPTION
@_CONFIG
@click.option(
    "--jobs", type=click.IntRange(1, 64), help="Sessions at a time; 4 for analysts that wait for a network."
)
@click.option("--all", "everything", is_flag=True, help="Judge sessions that passed, too.")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="Give each report the range of steps that holds the decisive one (docs/benchmark.md).",
)
@click.option(
    "--coverage",
    default=0.8,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Coverage of that range.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON Lines, one report a line.")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
def attribute(
    files: tuple[Path, ...],
    format_name: str,
    state_map: Path | None,
    method: str,
    analysts: str,
    options: tuple[str, ...],
    config: Path | None,
    jobs: int | None,
    everything: bool,
    calibration: Path | None,
    coverage: float,
    as_json: bool,
    output: Path | None,
) -> None:
    """Attribute the failed sessions in FILES."""
    from cockpithat.analysis.watching import unknown_signals
    from cockpithat.commands.attribute import write_reports
    from cockpithat.commands.inputs import Inputs
    from cockpithat.methods.registry import create, read_options

    settings = _settings(config, None)
    chosen = create(method, analysts, settings.attribution, read_options(options))
    if settings.attribution.rules_file is not None:
        for warning in unknown_signals(settings.attribution.rules()):
            tell(f"{settings.attribution.rules_file}: {warning}")
    if calibration is not None:
        from cockpithat.calibration.method import Calibrated, RangePolicy
        from cockpithat.calibration.model import read_calibration

        chosen = Calibrated(chosen, read_calibration(calibration), RangePolicy(coverage=coverage))
    inputs = Inputs(files, format_name, state_map, tell, settings.engine, settings.graph)
    at_a_time = jobs or (1 if analysts == "local" else 4)
    with _text_output(output, as_json, *files, *([state_map] if state_map else [])) as out:
        counts = write_reports(inputs, chosen, out, as_json=as_json, everything=everything, jobs=at_a_time)
    if counts.failures:
        _fail(f"{counts.failures} of the inputs could not be used")


@cli.command()
@_FILES
@_FORMAT
@_STATE_MAP
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="JSON Lines, one suspicion a line.")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
def suspicions(
    files: tuple[Path, ...],
    format_name: str,
    state_map: Path | None,
    config: Path | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Screen the passed sessions in FILES for hazards that they left, as the worker does."""
    from cockpithat.attribution import LocalAttribution
    from cockpithat.commands.inputs import Inputs
    from cockpithat.commands.suspicions import write_suspicions

    settings = _settings(config, None)
    local = LocalAttribution(settings.attribution)
    inputs = Inputs(files, format_name, state_map, tell, settings.engine, settings.graph)
    with _text_output(output, as_json, *files, *([state_map] if state_map else [])) as out:
        counts = write_suspicions(inputs, local, out, as_json=as_json)
    if counts.failures:
        _fail(f"{counts.failures} of the inputs could not be used")


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "rendering",
    type=click.Choice(["json", "dot", "html"]),
    default="json",
    show_default=True,
    help="What to write.",
)
@click.option("--session", metavar="ID", help="Which session, if the file holds several.")
@click.option(
    "--input-format", default="auto", show_default=True, metavar="NAME", help="File format of FILE."
)
@_STATE_MAP
@_CONFIG
@click.option(
    "--verdict/--no-verdict",
    default=True,
    show_default=True,
    help="Mark the step that the local analysts decide on, if the session is one that they judge.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
def graph(
    file: Path,
    rendering: str,
    session: str | None,
    input_format: str,
    state_map: Path | None,
    config: Path | None,
    verdict: bool,
    output: Path | None,
) -> None:
    """Show the dependency graph of one session in FILE, with the local verdict marked."""
    from cockpithat.commands.graph import RENDERERS, choose_session
    from cockpithat.commands.inputs import Inputs
    from cockpithat.formats import load

    _spare_inputs(output, file)
    settings = _settings(config, None)
    inputs = Inputs((file,), input_format, state_map, tell, settings.engine, settings.graph)
    trace = choose_session(file, load(file, input_format, inputs.options()), session)
    report = None
    if verdict and trace.is_judged:
        from cockpithat.attribution import LocalAttribution

        report = LocalAttribution(settings.attribution).judge(trace)
    text = RENDERERS[rendering](trace, report)
    if output is None:
        click.echo(text.rstrip("\n"), file=_utf8_stdout())
    else:
        output.write_text(text, encoding="utf-8")


@cli.command()
@_FILES
@_FORMAT
@_STATE_MAP
@_SERVERS
@_CONFIG
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Times as fast as recorded; 0 sends without waiting.",
)
@click.option("--keep-time", is_flag=True, help="Keep the recorded timestamps instead of moving them to now.")
@click.option(
    "--rename", default="", metavar="SUFFIX", help="Add this to session ids, to replay the same file again."
)
def replay(
    files: tuple[Path, ...],
    format_name: str,
    state_map: Path | None,
    bootstrap_servers: str | None,
    config: Path | None,
    speed: float,
    keep_time: bool,
    rename: str,
) -> None:
    """Send the sessions in FILES to the input topics, keeping their relative timing."""
    from cockpithat.commands.inputs import Inputs
    from cockpithat.commands.progress import progress_bar
    from stream.replay import outlook, prepared, replay

    settings = _settings(config, bootstrap_servers)
    inputs = Inputs(files, format_name, state_map, tell)
    recordings = prepared(inputs.recordings(), speed=speed, keep_time=keep_time, rename=rename)
    tell(outlook(recordings, speed))
    records = sum(len(recording.events) + len(recording.snapshots) for recording in recordings)
    with progress_bar() as bar:
        task = bar.add_task("sending", total=records)
        sent = replay(recordings, settings, speed=speed, on_record=lambda: bar.advance(task))
    click.echo(
        f"{len(sent.sessions)} sessions: {sent.events} events and {sent.snapshots} snapshots sent, "
        f"{sent.delivered} delivered"
    )
    if sent.failed:
        _fail(f"{sent.failed} records were not delivered ({sent.first_error}); replay the files again")
    if inputs.failures:
        _fail(f"{inputs.failures} of the files could not be read")


@cli.command()
@_SERVERS
@_CONFIG
@click.option("--roles", metavar="ROLE,...", help="Roles of this worker, such as assemble,attribute.")
def worker(bootstrap_servers: str | None, config: Path | None, roles: str | None) -> None:
    """Run a worker until it is told to stop. All settings: docs/configuration.md."""
    settings = _settings(config, bootstrap_servers, worker={"roles": roles} if roles else None)
    from stream.app import run_worker
    from stream.logs import configure

    configure(settings.logs)
    run_worker(settings)


@cli.command()
@click.option("--timeout", type=click.FloatRange(min=1), default=90.0, show_default=True, help="Seconds.")
def demo(timeout: float) -> None:
    """Run ten sessions through an embedded broker and a real worker, and show what comes out."""
    from stream.demo import run_demo

    raise SystemExit(run_demo(timeout_s=timeout, tell=tell))


@cli.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Score methods on labelled runs; compare, tabulate, calibrate. See `cockpithat bench --help`."""
    from cockpithat.bench.command import bench as bench_group

    def attribution(config: Path | None) -> AttributionSettings:
        return _settings(config, None).attribution

    _pass_on(bench_group, arguments, obj=attribution)


@cli.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: tuple[str, ...]) -> None:
    """Simulate sessions with known failures (CockpitBench). See `cockpithat simulate --help`."""
    from stream.simulate import run

    code = run(list(arguments))
    if code:
        raise SystemExit(code)


@cli.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def train(arguments: tuple[str, ...]) -> None:
    """Train the ranker's weights on labelled runs. See `cockpithat train --help`."""
    from cockpithat.ranking.command import train_command

    _pass_on(train_command, arguments)


@cli.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def screening(arguments: tuple[str, ...]) -> None:
    """Calibrate the screening of passed sessions. See `cockpithat screening --help`."""
    from cockpithat.screening.command import screening_command

    _pass_on(screening_command, arguments)


@cli.group()
def topics() -> None:
    """Create or check the topics on a Kafka cluster."""


@topics.command("create")
@_SERVERS
@_CONFIG
def topics_create(bootstrap_servers: str | None, config: Path | None) -> None:
    """Create the topics that do not exist, and register schemas where a registry is set."""
    from stream.schema_registry import register_all
    from stream.topics import create

    settings = _settings(config, bootstrap_servers)
    for name, created in create(settings).items():
        click.echo(f"{name}: {'created' if created else 'exists, left as it is'}")
    if settings.schema_registry.url is not None:
        for subject, number in register_all(settings).items():
            click.echo(f"{subject}: schema {number}")


@topics.command("check")
@_SERVERS
@_CONFIG
def topics_check(bootstrap_servers: str | None, config: Path | None) -> None:
    """Compare the topics with what the worker needs; exit 1 where it must not start."""
    from stream.topics import check

    findings = check(_settings(config, bootstrap_servers))
    for finding in findings:
        click.echo(f"{'error' if finding.fatal else 'note'}: {finding}")
    fatal = sum(finding.fatal for finding in findings)
    if fatal:
        _fail(f"{fatal} findings keep the worker from starting")
    click.echo("the worker can start on these topics")


@cli.group()
def dlq() -> None:
    """Look at dead letters, and send them back."""


_DLQ_TOPIC = click.option("--topic", metavar="NAME", help="A dead-letter topic, or the input it belongs to.")
_DLQ_REASON = click.option("--reason", "reasons", multiple=True, metavar="REASON", help="Only these reasons.")
_DLQ_PARTITION = click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Only this partition of the dead-letter topic (dlq_partition in `dlq show`, not source_partition).",
)
_DLQ_OFFSET = click.option(
    "--offset",
    "offsets",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only these offsets in the dead-letter topic (dlq_offset in `dlq show`, not source_offset).",
)
_DLQ_AGAIN = click.option("--include-redriven", is_flag=True, help="Also those sent back before.")


@dlq.command("show")
@_SERVERS
@_CONFIG
@_DLQ_TOPIC
@_DLQ_REASON
@_DLQ_PARTITION
@_DLQ_OFFSET
@_DLQ_AGAIN
@click.option("--payload", is_flag=True, help="Show keys and values, too: they may hold private text.")
@click.option("--json", "as_json", is_flag=True, help="JSON Lines, one dead letter a line.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
def dlq_show(
    bootstrap_servers: str | None,
    config: Path | None,
    topic: str | None,
    reasons: tuple[str, ...],
    partition: int | None,
    offsets: tuple[int, ...],
    include_redriven: bool,
    payload: bool,
    as_json: bool,
    limit: int | None,
) -> None:
    """Show dead letters: what failed, where, and where the record came from."""
    import json
    from itertools import islice

    from stream.dlq import all_topics, read

    selection = _selection(reasons, partition, offsets, include_redriven)
    settings = _settings(config, bootstrap_servers)
    chosen = [_dlq_topic(settings, topic)] if topic else all_topics(settings)
    shown = 0
    for letter in islice(read(settings, chosen, selection), limit):
        shown += 1
        line = letter.to_json(payload=payload)
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False), file=_utf8_stdout())
        else:
            click.echo(_printable("  ".join(f"{name}={value}" for name, value in line.items())))
    if not as_json:
        click.echo(f"{shown} dead letters")


@dlq.command("redrive")
@_SERVERS
@_CONFIG
@click.option(
    "--topic", required=True, metavar="NAME", help="A dead-letter topic, or the input it belongs to."
)
@_DLQ_REASON
@_DLQ_PARTITION
@_DLQ_OFFSET
@_DLQ_AGAIN
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--value-file", type=click.Path(path_type=Path), help="Send this repaired value instead.")
@click.option("--key", help="Send it under this key instead.")
def dlq_redrive(
    bootstrap_servers: str | None,
    config: Path | None,
    topic: str,
    reasons: tuple[str, ...],
    partition: int | None,
    offsets: tuple[int, ...],
    include_redriven: bool,
    limit: int | None,
    value_file: Path | None,
    key: str | None,
) -> None:
    """Send dead letters back to the topic they came from, each once."""
    from stream.dlq import redrive

    settings = _settings(config, bootstrap_servers)
    try:
        done = redrive(
            settings,
            _dlq_topic(settings, topic),
            _selection(reasons, partition, offsets, include_redriven),
            limit=limit,
            value=value_file.read_bytes() if value_file else None,
            key=key.encode() if key is not None else None,
        )
    except ValueError as error:
        _fail(str(error))
    if done.before:
        click.echo(f"nothing sent: {done.before} selected and already sent back (see --include-redriven)")
    else:
        click.echo(f"{done.sent} records sent back")
    if done.foreign:
        _fail(f"{done.foreign} records carry no source of ours and were left; look with `dlq show`")


def _pass_on(command: click.Command, arguments: tuple[str, ...], **context: Any) -> None:
    """Run a command that parses its arguments itself, so that it costs nothing when others start."""
    code = command.main(
        list(arguments), prog_name=f"cockpithat {command.name}", standalone_mode=False, **context
    )
    if code:
        raise SystemExit(code)


def _settings(config: Path | None, servers: str | None, **sections: dict[str, Any] | None) -> Settings:
    """Settings from options, environment and file."""
    from stream.settings import CONFIG_VARIABLE, load_settings

    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)
    overrides = {name: values for name, values in sections.items() if values}
    if servers:
        overrides["kafka"] = {"bootstrap_servers": servers}
    return load_settings(**overrides)


def _spare_inputs(output: Path | None, *inputs: Path) -> None:
    """Refuse to write over a file that is still to be read."""
    if output is None or not output.is_file():
        return
    for path in inputs:
        if path.exists() and output.samefile(path):
            raise click.UsageError(f"{output} is read as input and would be overwritten; name another output")


@contextlib.contextmanager
def _text_output(output: Path | None, for_machines: bool, *inputs: Path) -> Iterator[TextIO]:
    """The file ``output``, or standard output. Raises ``UsageError`` where it is one of ``inputs``."""
    _spare_inputs(output, *inputs)
    if output is None:
        yield _utf8_stdout() if for_machines else sys.stdout
        return
    with output.open("w", encoding="utf-8") as out:
        yield out


def _utf8_stdout() -> TextIO:
    """Standard output for machines: UTF-8 whatever the locale is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


class _ClosedOutput(io.TextIOBase):
    """Stands for a standard output that the caller has closed, so that using it is an error as any other."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "is closed; leave it open, or use --output", "standard output")


def _prepare_output() -> None:
    """Characters that the locale's encoding lacks are replaced, for a person; a closed output is told."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()


def _selection(
    reasons: tuple[str, ...], partition: int | None, offsets: tuple[int, ...], again: bool
) -> Selection:
    from cockpithat.contract.deadletter import DeadLetterReason
    from stream.dlq import Selection

    known = [reason.value for reason in DeadLetterReason]
    for reason in reasons:
        if reason not in known:
            raise click.BadParameter(f"no reason {reason!r}; choose from {', '.join(known)}")
    return Selection(frozenset(map(DeadLetterReason, reasons)), partition, frozenset(offsets), again)


def _dlq_topic(settings: Settings, topic: str) -> str:
    suffix = settings.topics.dlq_suffix
    return topic if topic.endswith(suffix) else settings.topics.dlq(topic)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _fail(line: str) -> NoReturn:
    tell(f"cockpithat: {line}")
    raise SystemExit(EXIT_FAILED)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point: every failure is one line on standard error and a non-zero exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    code: int | str | None
    _prepare_output()
    try:
        code = cli.main(arguments, prog_name="cockpithat", standalone_mode=False)
    except SystemExit as stop:
        code = stop.code
    except (_InterruptedError, KeyboardInterrupt, click.exceptions.Abort):
        tell("cockpithat: interrupted")
        code = EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:  # a command without its sub-command
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        tell(f"cockpithat: {error.format_message()}")
        code = error.exit_code
    except BrokenPipeError:
        # The reader has gone, as in `| head`. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    except Exception as error:
        if {"-v", "--verbose"} & set(arguments[:1]):
            raise
        code = _explain(error)
    raise SystemExit(code)


def _explain(error: Exception) -> int:
    """One line for an error; those whose message is made for people are shown as they are."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        tell(f"cockpithat: {where}{error.strerror}")
        return EXIT_FAILED
    if type(error).__name__ in _FOR_PEOPLE:
        tell(f"cockpithat: {error}")
        return EXIT_FAILED
    tell(f"cockpithat: internal error ({type(error).__name__}); run `cockpithat -v ...` to see where")
    return EXIT_INTERNAL


# By name, so that no module is imported for an error that it did not raise.
_FOR_PEOPLE = {
    "BrokerError",
    "CalibrationError",
    "ConfigurationError",
    "FormatError",
    "PanelNotConfiguredError",
    "RulesError",
    "ScreeningError",
    "UnknownMethodError",
    "WorkerError",
}


if __name__ == "__main__":
    main()
