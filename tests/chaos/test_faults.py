"""Faults one by one: each ends as the design says, with a metric and a log line that name it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from cockpithat.contract.deadletter import DeadLetterHeaders
from stream.partitioning import murmur2_partition
from tests.stream.cockpit import ROOT, Cluster, RunningWorker, duplicates, record, session, worker
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.full, pytest.mark.timeout(300)]

FAST_GROUP = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 900}


def now() -> int:
    return time.time_ns() // 1_000_000


def vehicles_of(partition: int, count: int, partitions: int = 4) -> list[str]:
    """Names of vehicles whose records lie in ``partition``."""
    names: list[str] = []
    number = 0
    while len(names) < count:
        if murmur2_partition(f"v{number}".encode(), partitions) == partition:
            names.append(f"v{number}")
        number += 1
    return names


def reasons(messages: list[Any]) -> list[tuple[bytes, str]]:
    """Value and reason of dead letters, in their order."""
    return [
        (m.value() or b"", DeadLetterHeaders.from_kafka(m.headers() or []).reason.value)
        for m in sorted(messages, key=lambda m: (m.partition(), m.offset()))
    ]


def eventually(check: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether ``check`` becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


# The fault is planted in the process of the worker; the product knows no such thing.
RAISES = """
from cockpithat.session.state import OpenSession as S
take = S.take
def planted(self, event, source, size):
    if getattr(event, 'text', '') == 'raise': raise RuntimeError('what the driver said')
    return take(self, event, source, size)
S.take = planted
"""
KILLS = """
import os, signal
from cockpithat.session.state import OpenSession as S
take = S.take
def planted(self, event, source, size):
    if getattr(event, 'text', '') == 'kill': os.kill(os.getpid(), signal.SIGKILL)
    return take(self, event, source, size)
S.take = planted
"""


def test_a_session_that_makes_the_engine_fail_is_put_aside_alone(kafka: KafkaBroker, tmp_path: Path) -> None:
    cluster = Cluster(kafka)
    poison = session("v1", "poison", start_ts=now() - 9_000)
    poison[3]["text"] = "raise"
    others = [body for n in range(20) for body in session(f"v{n}", f"good-{n}", start_ts=now() - 9_000)]
    cluster.send([*poison[:2], *others, *poison[2:]])
    with worker(cluster, tmp_path, plant=RAISES) as running:
        summaries = {body["session_id"]: body for body in cluster.wait("sessions", 21)}
        letters = cluster.wait_messages("dlq:session_events", len(poison))
        assert running.metric("cockpithat_sessions_quarantined_total") == 1
        assert running.wait_for_event("session quarantined; its events are dead letters")
        assert "what the driver said" not in running.log.read_text()
        assert running.terminate()[0] == 0
    assert summaries["poison"]["status"] == "quarantined"
    assert {summaries[f"good-{n}"]["status"] for n in range(20)} == {"attributed"}
    # Those before the fault are read again from their topic, so they follow those behind it.
    assert sorted(reasons(letters)) == sorted((record(body)[1], "quarantined") for body in poison)


def test_a_record_that_kills_the_process_is_found_and_put_aside(
    kafka: KafkaBroker, tmp_path: Path, figures: Callable[..., None]
) -> None:
    """SIGKILL from inside, as the kernel does it for memory: nothing can be counted while it ends."""
    limit = 3
    cluster = Cluster(kafka, overrides={"kafka": FAST_GROUP, "worker": {"crash_limit": limit}})
    poison = session("v1", "poison", start_ts=now() - 9_000)
    poison[3]["text"] = "kill"
    # Many records before and behind it in the same partition, so that it has to be looked for.
    names = vehicles_of(murmur2_partition(b"v1", 4), 40)
    before, behind = (
        [
            body
            for n, name in enumerate(names)
            for body in session(name, f"{kind}-{n}", start_ts=now() - 9_000)
        ]
        for kind in ("before", "behind")
    )
    cluster.send([*poison[:2], *before, *poison[2:], *behind])
    deaths = 0
    began = time.monotonic()
    while True:
        with worker(cluster, tmp_path, name=f"worker-{deaths}", plant=KILLS) as running:
            ended = eventually(
                lambda: running.process.poll() is not None or len(cluster.messages("sessions")) >= 81, 60
            )
            assert ended, running.log.read_text()[-3_000:]
            if running.process.poll() is None:
                letters = cluster.wait_messages("dlq:session_events", 1)
                topic = cluster.topic("session_events")
                series = f'cockpithat_dead_letters_total{{reason="crashed",topic="{topic}"}}'
                assert running.metric(series) == 1
                told = running.wait_for_event("record dead-lettered")
                running.terminate()
                break
        deaths += 1
        assert deaths <= limit + 2, "the record was not found"
    assert reasons(letters) == [(record(poison[3])[1], "crashed")]
    headers = DeadLetterHeaders.from_kafka(letters[0].headers() or [])
    assert [(line["offset"], line["reason"]) for line in told] == [(headers.source_offset, "crashed")]
    summaries = cluster.read("sessions")
    assert duplicates(summaries, "summary_id") == []
    assert len(summaries) == 81
    assert {body["session_id"]: body["missing_events"] for body in summaries}["poison"] == 1
    figures(
        deaths=deaths,
        crash_limit=limit,
        records=len(before) + len(behind) + 6,
        seconds=round(time.monotonic() - began),
    )


def test_a_trace_of_20_mb_is_cut_and_says_so(
    kafka: KafkaBroker, tmp_path: Path, figures: Callable[..., None]
) -> None:
    cluster = Cluster(kafka)
    events = session("v1", "large", start_ts=now() - 60_000, steps=40)
    for body in events[1:-1]:
        body["text"] = body["text"] + " x" * 256_000
    sent = sum(len(record(body)[1]) for body in events)
    assert sent > 20_000_000
    cluster.send(events)
    cluster.send(session("v2", "small", start_ts=now() - 9_000))
    with worker(cluster, tmp_path) as running:
        summaries = {body["session_id"]: body for body in cluster.wait("sessions", 2, timeout=90)}
        cut = running.wait_for_event("trace cut to fit a record")
        assert running.get("/healthz")[0] == 200
        assert running.metric("cockpithat_traces_cut_total") == 1
    assert summaries["large"]["status"] == "attributed"
    assert summaries["large"]["truncated"] is True
    assert summaries["small"]["truncated"] is False
    (trace,) = (body for body in cluster.read("traces") if body["session_id"] == "large")
    assert trace["truncated"] is True
    assert len(trace["steps"]) == 40
    # What was cut can be found: each step names its record and its digest.
    assert all(
        step["source"]["digest"] and step["text"].endswith("[cut; see the step's source]")
        for step in trace["steps"]
    )
    assert [body["truncated"] for body in cluster.read("reports") if body["session_id"] == "large"] == [True]
    assert cluster.messages("dlq:session_events") == cluster.messages("dlq:traces") == []
    figures(sent_bytes=sent, record_bytes=cut[0]["bytes"])


def test_a_partition_whose_vehicles_fall_silent_closes_and_commits(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, overrides={"engine": {"silence_ms": 4_000}})
    silent = vehicles_of(1, 10)
    others = vehicles_of(2, 10)
    cut_off = [
        body for name in silent for body in session(name, f"cut-{name}", start_ts=now() - 9_000, ended=False)
    ]
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        cluster.send(cut_off)
        for number in range(12):  # the other partitions go on all the time
            cluster.send(
                [b for name in others for b in session(name, f"{name}-{number}", start_ts=now() - 9_000)]
            )
            time.sleep(0.5)
        summaries = {body["session_id"]: body for body in cluster.wait("sessions", 10 + 120)}
        assert {
            (summaries[f"cut-{name}"]["status"], summaries[f"cut-{name}"]["close_reason"]) for name in silent
        } == {("attributed", "silence")}
        assert eventually(lambda: cluster.committed()[1] == len(cut_off), 10), cluster.committed()
        assert running.metric('cockpithat_sessions_closed_total{reason="silence"}') == 10
        topic = cluster.topic("session_events")
        assert running.metric(f'cockpithat_hold_age_seconds{{partition="1",topic="{topic}"}}') == 0


def test_a_silence_of_the_broker_is_not_the_vehicles(chaos_kafka: KafkaBroker, tmp_path: Path) -> None:
    """The broker is away for longer than the silence that closes a session; no session is cut by it."""
    cluster = Cluster(chaos_kafka, overrides={"kafka": FAST_GROUP, "engine": {"silence_ms": 4_000}})
    sessions = [session(f"v{n}", f"s{n}", start_ts=now() - 9_000, steps=6) for n in range(20)]
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        cluster.send([body for events in sessions for body in events[:4]])
        assert eventually(lambda: running.metric("cockpithat_open_sessions") == 20)
        chaos_kafka.kill()
        time.sleep(8)
        chaos_kafka.resume()
        time.sleep(2)
        cluster.send([body for events in sessions for body in events[4:]])
        summaries = cluster.wait("sessions", 20)
        assert [(body["outcome"], body["steps"]) for body in summaries] == [("failure", 6)] * 20
    assert cluster.messages("dlq:session_events") == []


def test_partitions_added_while_running_are_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    cluster = Cluster(kafka)
    topic = cluster.topic("session_events")
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        admin = kafka.admin
        for future in admin.create_partitions([NewPartitions(topic, 6)]).values():
            future.result(30)
        assert eventually(lambda: running.get("/readyz")[0] == 503, 60)
        _, body = running.get("/readyz")
        assert f"{topic} from 4 to 6" in body
        assert running.metric(f'cockpithat_partitions_added{{topic="{topic}"}}') == 2
        told = running.wait_for_event("topics are not as they must be")
        assert topic in told[0]["detail"]
        # It goes on meanwhile, in the partitions it knows.
        kafka.produce(
            topic, [record(body) for body in session("v1", "s", start_ts=now() - 9_000)], partition=1
        )
        assert len(cluster.wait("sessions", 1)) == 1
        # The others catch up with the first topic: still said, since keys have moved under open sessions.
        others = [NewPartitions(cluster.topic(role), 6) for role in ("vehicle_snapshots", "traces")]
        for future in admin.create_partitions(others).values():
            future.result(30)
        traces = cluster.topic("traces")
        assert eventually(lambda: f"{traces} from 4 to 6" in running.get("/readyz")[1], 60)


def test_keys_partitioned_by_crc32_are_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    """What a plain librdkafka producer does unless told otherwise."""
    cluster = Cluster(kafka)
    events = [body for n in range(30) for body in session(f"v{n}", f"s{n}", start_ts=now() - 9_000)]
    snapshots = [
        {
            "type": "vehicle_snapshot",
            "vehicle_id": f"v{n}",
            "ts": now() - 9_000,
            "kind": "full",
            "signals": {"Vehicle.Speed": 1.0},
        }
        for n in range(30)
    ]
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "consistent_random"})
    for role, bodies in (("session_events", events), ("vehicle_snapshots", snapshots)):
        for body in bodies:
            key, value = record(body)
            plain.produce(cluster.topic(role), value, key)
    assert plain.flush(30) == 0
    with worker(cluster, tmp_path) as running:
        assert len(cluster.wait("sessions", 30)) == 30
        assert eventually(lambda: running.get("/readyz")[0] == 503, 20)
        for role in ("session_events", "vehicle_snapshots"):
            topic = cluster.topic(role)
            assert running.metric(f'cockpithat_misplaced_keys_total{{topic="{topic}"}}') > 10
            assert topic in {line.get("topic") for line in _misplaced(running)}
        assert "murmur2" in running.get("/readyz")[1]


def _misplaced(running: RunningWorker) -> list[dict[str, Any]]:
    return [line for line in running.events() if "than murmur2 gives it" in str(line.get("event"))]


def test_a_repaired_dead_letter_ends_in_the_right_report(kafka: KafkaBroker, tmp_path: Path) -> None:
    cluster = Cluster(kafka)
    broken, whole = (session("v1", name, start_ts=now() - 9_000) for name in ("broken", "whole"))
    end = broken[-1]
    repaired = record(end)[1]
    cluster.send([*whole, *broken[:-1]])
    cluster.broker.produce(cluster.topic("session_events"), [(b"v1", repaired[:-4])])
    with worker(cluster, tmp_path) as running:
        (letter,) = cluster.wait_messages("dlq:session_events", 1)
        file = tmp_path / "repaired.json"
        file.write_bytes(repaired)
        config = next(tmp_path.glob("*.yaml"))
        arguments = [
            "--config",
            str(config),
            "--topic",
            cluster.topic("session_events"),
            "--value-file",
            str(file),
        ]
        arguments += ["--partition", str(letter.partition()), "--offset", str(letter.offset())]
        command = [sys.executable, "-c", "from stream.cli import main; main()", "dlq", "redrive", *arguments]
        done, again = (
            subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            for _ in range(2)
        )
        assert done.returncode == 0, done.stderr
        assert again.returncode != 0  # it is sent back once
        assert "already sent back" in again.stderr
        assert len(cluster.wait("sessions", 2)) == 2
        running.terminate()
    reports = {body["session_id"]: body for body in cluster.read("reports")}
    assert [body["steps"] for body in cluster.read("sessions")] == [4, 4]
    for name in ("step", "agent", "category", "asil", "outcome"):
        assert reports["broken"][name] == reports["whole"][name], name
    assert len(cluster.messages("dlq:session_events")) <= 2  # the letter, and the mark that it was sent back
