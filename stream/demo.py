"""``cockpithat demo``: ten sessions through an embedded broker and a real worker, in one command.

The worker is the one of ``cockpithat worker``, in a process of its own; sessions are sent by the same code as
``cockpithat replay``; results are read back from their topics. Success means that what came out is
complete: a summary of every session, a report of every failed one with the verdict that
``cockpithat attribute`` gives on the same files, an alert of each report of ASIL C or D, the suspicions, and
nothing dead-lettered.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cockpithat.attribution import LocalAttribution
from cockpithat.commands.terminal import (
    console_for,
    counted,
    print_reports,
    print_suspicions,
    printable,
    table_of,
)
from cockpithat.contract.base import Asil
from cockpithat.contract.framing import unframed
from cockpithat.contract.reports import Alert, Report, SessionStatus, SessionSummary, Suspicion
from cockpithat.contract.trace import Trace
from cockpithat.formats import load_recordings
from cockpithat.formats.assembly import assemble
from cockpithat.formats.recording import Recording, moved, span_ms
from cockpithat.resources import resource
from stream.embedded import EmbeddedBroker
from stream.kafka_config import consumer_config
from stream.replay import replay
from stream.settings import CONFIG_VARIABLE, ENV_PREFIX, Settings, load_settings
from stream.topics import wanted

SESSIONS = "data/demo"
_READY_S = 45.0
_STOP_S = 10.0
_SETTLE_S = 0.5  # after the last expected record, for what must not come
_STAGGER_MS = 300
_PAGING = (Asil.C, Asil.D)
_LOG_TAIL = 5

Verdict = tuple[int | None, str | None, str | None, str]


@dataclass(slots=True)
class Expected:
    """What must come out, worked out from the same sessions by the library alone."""

    sessions: set[str] = field(default_factory=set)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    suspicions: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Results:
    """What came out, by session."""

    summaries: dict[str, SessionSummary] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    reviews: set[str] = field(default_factory=set)
    dead_letters: int = 0

    def missing(self, expected: Expected) -> list[str]:
        """What has not come yet, one line each; empty when everything is there."""
        lines = [f"{name}: no summary" for name in sorted(expected.sessions - self.summaries.keys())]
        lines += [f"{name}: no report" for name in sorted(expected.verdicts.keys() - self.reports.keys())]
        paging = {name for name, verdict in expected.verdicts.items() if verdict[3] in _PAGING}
        lines += [f"{name}: no alert" for name in sorted(paging - self.alerts.keys())]
        lines += [f"{name}: no suspicion" for name in sorted(expected.suspicions - self.suspicions.keys())]
        return lines

    def wrong(self, expected: Expected) -> list[str]:
        """What must not be: another verdict, an output too many, a dead letter."""
        lines = [
            f"{name}: the stream says {verdict_of(report)}, the library {expected.verdicts[name]}"
            for name, report in sorted(self.reports.items())
            if name in expected.verdicts and verdict_of(report) != expected.verdicts[name]
        ]
        lines += [
            f"{name}: a report that is not due" for name in sorted(self.reports.keys() - expected.verdicts)
        ]
        lines += [
            f"{name}: summary says {summary.status.value}"
            for name, summary in sorted(self.summaries.items())
            if (summary.status is SessionStatus.ATTRIBUTED) != (name in expected.verdicts)
        ]
        lines += [
            f"{name}: an alert that is not due"
            for name in sorted(self.alerts)
            if name not in expected.verdicts or expected.verdicts[name][3] not in _PAGING
        ]
        lines += [
            f"{name}: a suspicion that is not due"
            for name in sorted(self.suspicions.keys() - expected.suspicions)
        ]
        if self.dead_letters:
            lines.append(f"{self.dead_letters} records were dead-lettered")
        return lines


def verdict_of(report: Report) -> Verdict:
    """Step, agent, category and rating of a report."""
    return report.step, report.agent, report.category, report.asil.value


def run_demo(*, timeout_s: float = 90.0, tell: Callable[[str], None] = print) -> int:
    """Run the demo; 0 only if everything expected came out. ``tell`` hears progress and problems."""
    started = time.monotonic()
    files = sorted(resource(SESSIONS).glob("*.yaml"))
    recordings = [recording for path in files for recording in load_recordings(path)]
    expected = expect(recordings)
    with _own_environment(), EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
        settings = load_settings(kafka={"bootstrap_servers": broker.bootstrap_servers})
        broker.create(*(spec.name for spec in wanted(settings)))
        tell(f"embedded broker on {broker.bootstrap_servers}, starting a worker")
        log = Path(folder) / "worker.log"
        with log.open("wb") as sink, _worker(settings, sink, Path(folder)) as process:
            problem = _wait_until_ready(process)
            if problem is None:
                sent = replay(_just_ended(recordings), settings, speed=0)
                tell(
                    f"{len(sent.sessions)} sessions sent: {sent.events} events, "
                    f"{sent.snapshots} vehicle snapshots; waiting for their reports"
                )
                left = timeout_s - (time.monotonic() - started)
                results = _collect(settings, expected, left, lambda: process.poll() is None)
        if problem is not None:
            tell(f"cockpithat: the worker did not get ready: {problem}")
            _tell_log(log, tell)
            return 1
        problems = results.missing(expected) + results.wrong(expected)
        show(results, console_for(sys.stdout))
        for line in problems:
            tell(f"cockpithat: {line}")
        if problems:
            _tell_log(log, tell)
            return 1
    tell(f"everything expected arrived, in {time.monotonic() - started:.0f} s")
    return 0


def expect(recordings: list[Recording]) -> Expected:
    """Judge the recordings with the library alone."""
    local = LocalAttribution()
    expected = Expected()
    for recording in recordings:
        for trace in assemble(recording):
            expected.sessions.add(trace.session_id)
            _expect_session(local, trace, expected)
    return expected


def _expect_session(local: LocalAttribution, trace: Trace, expected: Expected) -> None:
    if trace.is_judged:
        expected.verdicts[trace.session_id] = verdict_of(local.judge(trace))
    elif local.screen(trace) is not None:
        expected.suspicions.add(trace.session_id)


def show(results: Results, console: Console) -> None:
    """Print reports, then alerts and suspicions as read back from their topics."""
    order = sorted(results.reports.values(), key=lambda report: (-report.asil.rank, report.session_id))
    print_reports(console, order, "Reports")
    alerts = table_of("Alerts, read back from their topic", ("session", "severity", "ASIL", "summary"))
    for alert in sorted(results.alerts.values(), key=lambda alert: -alert.asil.rank):
        severity, text = alert.labels.get("severity", ""), alert.annotations.get("summary", "")
        _add_row(alerts, alert.session_id, severity, alert.asil.value, text)
    console.print(alerts)
    print_suspicions(
        console, list(results.suspicions.values()), "Suspicions: sessions that passed and left a hazard"
    )
    passed = sum(summary.status is SessionStatus.PASSED for summary in results.summaries.values())
    console.print(
        f"{counted(len(results.summaries), 'session')}: {len(results.reports)} attributed, {passed} passed; "
        f"{counted(len(results.alerts), 'alert')}, {counted(len(results.suspicions), 'suspicion')}, "
        f"{counted(len(results.reviews), 'report')} to be reviewed by a person"
    )


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(printable(cell, 240)) for cell in cells))


def _just_ended(recordings: list[Recording]) -> list[Recording]:
    """Each session moved so that it ended a moment ago, one shortly after the other."""
    now = time.time_ns() // 1_000_000
    placed = []
    for number, recording in enumerate(reversed(recordings)):
        span = span_ms([recording])
        if span is not None:
            placed.append(moved(recording, now - number * _STAGGER_MS - span[1]))
    return placed


@contextmanager
def _own_environment() -> Iterator[None]:
    """The demo's settings are its own: variables meant for a real worker are set aside meanwhile."""
    kept = {name: value for name, value in os.environ.items() if name.upper().startswith(ENV_PREFIX)}
    assert CONFIG_VARIABLE.startswith(ENV_PREFIX)
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    port: int

    def poll(self) -> int | None:
        return self.popen.poll()


@contextmanager
def _worker(settings: Settings, log: IO[bytes], folder: Path) -> Iterator[_Process]:
    """A worker process, stopped at the end as an operator would stop it; what it leaves is in ``folder``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {
        **os.environ,
        f"{ENV_PREFIX}KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        f"{ENV_PREFIX}KAFKA__GROUP_ID": "cockpithat-demo",
        f"{ENV_PREFIX}KAFKA__CHECK_CRCS": "false",
        f"{ENV_PREFIX}HEALTH__PORT": str(port),
        f"{ENV_PREFIX}LOGS__FORMAT": "text",
        f"{ENV_PREFIX}WORKER__POOL_SIZE": "1",
    }
    popen = subprocess.Popen(
        [sys.executable, "-m", "stream.cli", "worker"],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    try:
        yield _Process(popen, port)
    finally:
        if popen.poll() is None:
            popen.send_signal(signal.SIGTERM)
            try:
                popen.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()


def _wait_until_ready(process: _Process) -> str | None:
    """``None`` once the worker says that it is ready, else why it is not."""
    deadline = time.monotonic() + _READY_S
    reason = "no answer from its health port"
    while time.monotonic() < deadline:
        if (code := process.poll()) is not None:
            return f"it ended with exit code {code}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/readyz", timeout=2):
                return None
        except urllib.error.HTTPError as error:
            reason = printable(error.read(500).decode("utf-8", "replace"))
        except OSError:
            pass
        time.sleep(0.1)
    return f"{reason} for {_READY_S:.0f} s"


def _collect(settings: Settings, expected: Expected, timeout_s: float, alive: Callable[[], bool]) -> Results:
    """Read the output topics until everything expected is there, time is up, or the worker has died."""
    topics = settings.topics
    consumer = Consumer(consumer_config(settings.kafka, group_id="cockpithat-demo-reader"))
    names = [*topics.outputs, *(topics.dlq(name) for name in topics.dead_lettered)]
    results = Results()
    deadline = time.monotonic() + timeout_s
    settled: float | None = None
    try:
        consumer.assign(
            [
                TopicPartition(name, partition, 0)
                for name in names
                for partition in consumer.list_topics(name, timeout=10).topics[name].partitions
            ]
        )
        while time.monotonic() < deadline:
            for message in consumer.consume(200, timeout=0.1):
                _take(message, settings, results)
            if results.missing(expected):
                settled = None
                if not alive():
                    break
            elif settled is None:
                settled = time.monotonic()
            elif time.monotonic() - settled > _SETTLE_S:
                break
    finally:
        consumer.close()
    return results


def _take(message: Message, settings: Settings, results: Results) -> None:
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise OSError(f"reading the results: {error.str()}")
        return
    topics = settings.topics
    topic, value = message.topic(), message.value()
    if topic is not None and topic.endswith(topics.dlq_suffix):
        results.dead_letters += 1
        return
    record: dict[str, Any] = orjson.loads(unframed(value) or b"{}")
    session = str(record.get("session_id"))
    if topic == topics.sessions:
        results.summaries[session] = SessionSummary.model_validate(record)
    elif topic == topics.reports:
        results.reports[session] = Report.model_validate(record)
    elif topic == topics.alerts:
        results.alerts[session] = Alert.model_validate(record)
    elif topic == topics.suspicions:
        results.suspicions[session] = Suspicion.model_validate(record)
    elif topic == topics.reviews:
        results.reviews.add(session)


def _tell_log(log: Path, tell: Callable[[str], None]) -> None:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines[-_LOG_TAIL:]:
        tell(f"worker: {printable(line, 400)}")
