"""``cockpithat simulate``: CockpitBench into a folder, or played into Kafka at any rate."""

from __future__ import annotations

import time

import click

from cockpithat.formats.recording import Recording
from cockpithat.simulator.benchmark import SimulateSettings, simulate
from cockpithat.simulator.builder import NoScenarioError
from cockpithat.simulator.command import simulate_command as to_folder
from cockpithat.simulator.command import simulated
from cockpithat.simulator.session import SimulatedSession
from stream.replay import Replayed, prepared, replay
from stream.settings import Settings, load_settings


def recording_of(session: SimulatedSession) -> Recording:
    """A simulated session as a recording. Its label stays behind: nothing of it is sent."""
    return Recording(
        name=session.start.session_id,
        events=(session.start, *session.steps, session.end),
        snapshots=session.snapshots,
    )


def stream_sessions(
    sessions: list[SimulatedSession], settings: Settings, *, rate: float, suffix: str
) -> Replayed:
    """Sends sessions one after the other, ``rate`` records a second on average; 0 sends without waiting.

    Each call is another set of sessions to the receiver, told apart by ``suffix``. Raises ``BrokerError``.
    """
    recordings = [recording_of(session) for session in sessions]
    records = sum(len(r.events) + len(r.snapshots) for r in recordings)
    times = [record.ts for r in recordings for record in (*r.events, *r.snapshots)]
    span_s = (max(times) - min(times)) / 1000 if times else 0.0
    speed = span_s * rate / records if rate and records else 0.0
    return replay(prepared(recordings, speed=speed, rename=suffix), settings, speed=speed)


def _stream_command(arguments: list[str]) -> int:
    result = _stream.main(arguments, prog_name="cockpithat simulate", standalone_mode=False)
    return int(result or 0)


@click.command("simulate")
@click.option("--stream", is_flag=True, required=True, help="Play the sessions into Kafka.")
@simulated
@click.option(
    "--rate", default=1000.0, show_default=True, type=click.FloatRange(min=0),
    help="Records a second; 0 sends without waiting.",
)  # fmt: skip
@click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka brokers.")
def _stream(wanted: SimulateSettings, stream: bool, rate: float, bootstrap_servers: str | None) -> int:
    """Play simulated sessions into the input topics; labels are not sent."""
    settings = (
        load_settings(kafka={"bootstrap_servers": bootstrap_servers})
        if bootstrap_servers
        else load_settings()
    )
    try:
        sessions = list(simulate(wanted))
    except NoScenarioError as error:
        raise click.ClickException(str(error)) from error
    sent = stream_sessions(sessions, settings, rate=rate, suffix=f"-{time.time_ns() // 1_000_000:x}")
    click.echo(
        f"{len(sent.sessions)} sessions: {sent.events} events and {sent.snapshots} snapshots sent, "
        f"{sent.delivered} delivered"
    )
    if sent.failed:
        raise click.ClickException(f"{sent.failed} records were not delivered ({sent.first_error})")
    return 0


def run(arguments: list[str]) -> int:
    """Into Kafka with ``--stream``, else into the folder of ``--out``. Returns the exit code."""
    if "--stream" in arguments:
        return _stream_command(arguments)
    if "--help" in arguments or "-h" in arguments:
        click.echo("With --stream in place of --out the sessions go to Kafka: --stream --help.\n")
    result = to_folder.main(arguments, prog_name="cockpithat simulate", standalone_mode=False)
    return int(result or 0)
