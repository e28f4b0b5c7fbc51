"""The worker, as a process, from topics to verdicts on Apache Kafka."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.deadletter import DeadLetterHeaders
from tests.stream.cockpit import (
    IDENTITY,
    OUTPUTS,
    ROOT,
    Cluster,
    duplicates,
    event,
    record,
    session,
    worker,
)
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def cluster(kafka: KafkaBroker) -> Cluster:
    return Cluster(kafka)


def test_sessions_in_reports_and_summaries_out(cluster: Cluster, tmp_path: Path) -> None:
    start = now() - 10_000
    failed = [session(f"v{n % 5}", f"failed-{n}", start_ts=start) for n in range(10)]
    passed = [session(f"v{n % 5}", f"passed-{n}", start_ts=start, failed=False) for n in range(10)]
    cluster.send([body for events in failed + passed for body in events])
    with worker(cluster, tmp_path) as running:
        summaries = cluster.wait("sessions", 20)
        assert {body["session_id"]: body["status"] for body in summaries} == {
            **{f"failed-{n}": "attributed" for n in range(10)},
            **{f"passed-{n}": "passed" for n in range(10)},
        }
        reports = cluster.read("reports")
        assert {body["session_id"] for body in reports} == {f"failed-{n}" for n in range(10)}
        assert {body["report_id"] for body in reports} == {
            body["report_id"] for body in summaries if body["status"] == "attributed"
        }
        trace = next(body for body in cluster.read("traces") if body["session_id"] == "failed-3")
        assert [step["text"] for step in trace["steps"]] == [
            body["text"] for body in failed[3] if body["type"] == "step"
        ]
        keys = {message.key(): message.partition() for message in cluster.messages("session_events")}
        assert all(keys[m.key()] == m.partition() for m in cluster.messages("reports"))

        running.wait_ready()
        status, metrics = running.get("/metrics")
        assert status == 200
        assert "cockpithat_summaries_total 20.0" in metrics
        assert 'cockpithat_events_total{result="accepted"} 120.0' in metrics
        assert "failed-3" not in metrics
        assert running.get("/healthz")[0] == 200

        code, seconds = running.terminate()
        assert (code, seconds < 30) == (0, True)
        assert "step 2 of failed-3" not in running.log.read_text()
    # What was done is committed by the stop at the latest: another worker has nothing to do again.
    ends = {p: sum(m.partition() == p for m in cluster.messages("session_events")) for p in range(4)}
    assert {p: offset for p, offset in cluster.committed().items() if ends[p]} == {
        p: end for p, end in ends.items() if end
    }


def test_suspicions_beyond_the_limit_are_counted_and_named_in_the_summary(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Three cars drive on at night without light, as asked; one suspicion an hour may go out."""
    cluster = Cluster(kafka, partitions=1, overrides={"worker": {"suspicions_per_hour": 1}})
    start = now() - 10_000
    for number in range(3):
        name, vehicle = f"dark-{number}", f"v{number}"
        events = session(vehicle, name, start_ts=start, failed=False)
        events[2] |= {
            "text": "Switching the low beam off.",
            "intended": [{"path": "Vehicle.Body.Lights.Beam.Low.IsOn", "value": False}],
            "environment": {"light": "night", "speed_kmh": 96},
        }
        cluster.send(events)
    with worker(cluster, tmp_path) as running:
        summaries = cluster.wait("sessions", 3)
        running.wait_ready()
        metrics = running.get("/metrics")[1]
    assert [body["status"] for body in summaries] == ["passed"] * 3
    ratings = {body["suspicion"] for body in summaries}
    (suspicion,) = cluster.read("suspicions")
    assert ratings == {suspicion["asil"]}
    assert suspicion["session_id"] == "dark-0" and 0 < suspicion["score"] <= 1
    assert "cockpithat_suspicions_withheld_total 2.0" in metrics
    assert running.log.read_text().count("suspicion withheld") == 2


def test_a_killed_worker_loses_nothing_and_repeats_nothing(kafka: KafkaBroker, tmp_path: Path) -> None:
    """200 interleaved sessions; two SIGKILLs while traces and reports are on their way."""
    cluster = Cluster(kafka, overrides={"kafka": {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 900}})
    chance = random.Random(7)
    start = now() - 30_000
    sessions = [
        session(f"v{n % 40}", f"s{n}", start_ts=start, steps=8, failed=n % 2 == 0) for n in range(200)
    ]
    left = {n: list(events) for n, events in enumerate(sessions)}
    interleaved: list[dict[str, Any]] = []
    while left:
        chosen = chance.choice(list(left)[:60])
        interleaved.append(left[chosen].pop(0))
        if not left[chosen]:
            del left[chosen]

    def feed(part: list[dict[str, Any]]) -> None:
        for first in range(0, len(part), 50):
            cluster.send(part[first : first + 50])
            time.sleep(0.25)

    # Each worker has a part of its own: however long its start takes, there is work left to be killed at.
    third = len(interleaved) // 3
    parts = [interleaved[:third], interleaved[third : 2 * third], interleaved[2 * third :]]
    for part in parts[:2]:
        with worker(cluster, tmp_path) as running:
            running.wait_ready()
            done = len(cluster.read("sessions"))
            feeder = threading.Thread(target=feed, args=(part,))
            feeder.start()
            assert len(cluster.wait("sessions", done + 15)) >= done + 15
            time.sleep(chance.uniform(0, 0.5))
            running.kill()
            feeder.join()
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        assert len(cluster.read("sessions")) < 200
        feed(parts[2])
        cluster.wait("sessions", 200)
        code, _ = running.terminate()
        assert code == 0

    outputs = {role: cluster.read(role) for role in OUTPUTS}
    for role, records in outputs.items():
        assert duplicates(records, IDENTITY[role]) == [], role
    expected = {f"s{n}" for n in range(200)}
    assert {body["session_id"] for body in outputs["sessions"]} == expected
    assert {body["session_id"] for body in outputs["traces"]} == expected
    assert len(outputs["traces"]) == len(outputs["sessions"]) == 200
    assert {body["session_id"] for body in outputs["reports"]} == {f"s{n}" for n in range(0, 200, 2)}
    assert {len(body["steps"]) for body in outputs["traces"]} == {8}
    assert cluster.messages("dlq:session_events") == []


def test_garbage_is_dead_lettered_byte_for_byte_and_once(cluster: Cluster, tmp_path: Path) -> None:
    good = session("v1", "good", start_ts=now() - 10_000)
    whole = record(good[1])[1]
    garbage: list[tuple[bytes | None, bytes | None, str]] = [
        (b"v1", b"not json", "not_json"),
        (b"v1", whole[:-10], "not_json"),
        (b"v1", json.dumps({**good[1], "seq": "one"}).encode(), "schema"),
        (b"v1", b'{"type": "unheard of"}', "schema"),
        (b"v1", b"", "empty"),
        (b"v1", None, "empty"),
        (b"v2", whole, "wrong_key"),
        (None, whole, "wrong_key"),
        (b"v1", b'{"text": "\xff\xfe"}', "bad_encoding"),
        (b"v1", b"[" * 10_000 + b"]" * 10_000, "too_deep"),
        (b"v1", json.dumps({**good[1], "schema_version": "9.1"}).encode(), "unknown_version"),
    ]
    records: list[tuple[bytes | None, bytes | None]] = [
        record(good[0]),
        *((key, value) for key, value, _ in garbage),
        *(record(body) for body in good[1:]),
    ]
    cluster.broker.produce(cluster.topic("session_events"), records, headers=[("traceparent", b"00-ab")])
    snapshot = (b"v1", b'{"vehicle_id": "v1"', "not_json")
    cluster.broker.produce(cluster.topic("vehicle_snapshots"), [snapshot[:2]])
    for attempt in range(2):  # the second worker reads nothing of it again
        with worker(cluster, tmp_path, name=f"worker-{attempt}") as running:
            assert len(cluster.wait("sessions", 1)) == 1
            assert len(cluster.wait_messages("dlq:vehicle_snapshots", 1)) == 1
            assert len(cluster.wait_messages("dlq:session_events", len(garbage))) == len(garbage)
            running.wait_ready()
            running.terminate()
    letters = cluster.messages("dlq:session_events")
    found = [(m.key(), m.value(), _headers(m).reason.value) for m in letters]
    assert sorted(map(repr, found)) == sorted(map(repr, garbage))
    sources = {(m.source_partition, m.source_offset) for m in map(_headers, letters)}
    assert len(sources) == len(garbage)
    assert all(("traceparent", b"00-ab") in (m.headers() or []) for m in letters)
    snapshots = cluster.messages("dlq:vehicle_snapshots")
    assert [(m.key(), m.value(), _headers(m).reason.value) for m in snapshots] == [snapshot]
    assert len(cluster.read("traces")[0]["steps"]) == 4


def _headers(message: Any) -> DeadLetterHeaders:
    return DeadLetterHeaders.from_kafka(message.headers() or [])


def test_a_partition_that_falls_silent_closes_its_sessions_and_commits(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, overrides={"engine": {"silence_ms": 2_000}})
    cluster.send(session("v1", "cut-off", start_ts=now() - 5_000, ended=False))
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        summaries = cluster.wait("sessions", 1)
        assert [(body["status"], body["outcome"], body["close_reason"]) for body in summaries] == [
            ("attributed", "unknown", "silence")
        ]
        deadline = time.monotonic() + 10
        while max(cluster.committed().values()) < 5 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert max(cluster.committed().values()) == 5


def test_an_open_session_holds_the_committed_offset(cluster: Cluster, tmp_path: Path) -> None:
    start = now() - 5_000
    waiting = session("v1", "open", start_ts=start, ended=False)
    others = [body for n in range(5) for body in session("v1", f"other-{n}", start_ts=start)]
    cluster.send(others + waiting)
    cluster.send([body for n in range(5, 10) for body in session("v1", f"other-{n}", start_ts=start)])
    with worker(cluster, tmp_path) as running:
        running.wait_ready()
        assert len(cluster.wait("sessions", 10)) == 10
        time.sleep(1)
        assert max(cluster.committed().values()) == len(others)
        _, metrics = running.get("/metrics")
        held = [line for line in metrics.splitlines() if line.startswith("cockpithat_hold_records")]
        assert any(line.endswith(f" {5 + 5 * 6}.0") for line in held), held
        running.kill()
    cluster.send([event("session_end", "v1", "open", 5, start + 6_000, outcome="failure", failed=True)])
    with worker(cluster, tmp_path, name="heir"):
        assert len(cluster.wait("sessions", 11)) == 11
    traces = [body for body in cluster.read("traces") if body["session_id"] == "open"]
    assert [len(body["steps"]) for body in traces] == [4]


def test_a_late_event_after_a_takeover_opens_no_fragment(cluster: Cluster, tmp_path: Path) -> None:
    start = now() - 5_000
    cluster.send(session("v1", "over", start_ts=start))
    with worker(cluster, tmp_path) as running:
        assert len(cluster.wait("sessions", 1)) == 1
        running.terminate()
    cluster.send([event("step", "v1", "over", 9, start + 9_000, agent="Planner", text="too late")])
    cluster.send(session("v1", "next", start_ts=start))
    with worker(cluster, tmp_path, name="heir"):
        assert len(cluster.wait("sessions", 2)) == 2
    assert sorted(body["session_id"] for body in cluster.read("traces")) == ["next", "over"]
    assert [_headers(m).reason.value for m in cluster.messages("dlq:session_events")] == ["late"]


def test_a_late_flag_reopens_a_session_whose_trace_is_only_in_its_topic(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """With no room for closed sessions the worker's own are fetched as those of an earlier owner are."""
    cluster = Cluster(kafka, overrides={"engine": {"remember_closed_bytes": 0}})
    start = now() - 9_000
    passed, failed = (session("v1", name, start_ts=start, failed=name == "bad") for name in ("calm", "bad"))
    cluster.send([*passed, *failed])
    flags = [
        event("session_end", "v1", name, 6, start + 8_000, outcome="failure", failed=True)
        for name in ("calm", "bad")
    ]
    with worker(cluster, tmp_path):
        assert len(cluster.wait("sessions", 2)) == 2
        cluster.send(flags)
        summaries = cluster.wait("sessions", 3)
        assert [(body["session_id"], body["revision"]) for body in summaries[2:]] == [("calm", 2)]
        letters = cluster.wait_messages("dlq:session_events", 1)
    first, second = (body for body in cluster.read("traces") if body["session_id"] == "calm")
    assert (second["revision"], second["outcome"], second["steps"]) == (2, "failure", first["steps"])
    assert {body["session_id"] for body in cluster.read("reports")} == {"calm", "bad"}
    (letter,) = letters
    assert (letter.value(), _headers(letter).reason.value) == (record(flags[1])[1], "late")


def test_two_workers_share_the_partitions_and_one_takes_over(kafka: KafkaBroker, tmp_path: Path) -> None:
    cluster = Cluster(kafka, overrides={"kafka": {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 900}})
    start = now() - 10_000
    with (
        worker(cluster, tmp_path, name="first") as first,
        worker(cluster, tmp_path, name="second") as second,
    ):
        first.wait_ready()
        second.wait_ready()
        cluster.send([b for n in range(40) for b in session(f"v{n}", f"a{n}", start_ts=start)])
        assert len(cluster.wait("sessions", 40)) == 40
        second.kill()
        cluster.send([b for n in range(40) for b in session(f"v{n}", f"b{n}", start_ts=start)])
        assert len(cluster.wait("sessions", 80)) == 80
        first.terminate()
    for role in ("traces", "reports", "sessions"):
        assert duplicates(cluster.read(role), IDENTITY[role]) == []
    assert len(cluster.read("reports")) == 80


def test_a_worker_that_cannot_reach_its_brokers_says_so_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    cluster.settings = cluster.settings.model_copy(
        update={"kafka": cluster.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})}
    )
    with worker(cluster, tmp_path) as running:
        assert running.process.wait(60) != 0
        text = running.log.read_text()
        assert "Traceback" not in text
        assert "127.0.0.1:1" in text


def test_a_record_that_ends_the_process_again_and_again_is_put_aside(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """The fault is planted: the engine of these workers cannot take one session's step."""
    cluster = Cluster(kafka, overrides={"worker": {"crash_limit": 2}})
    poison = session("v1", "poison", start_ts=now() - 5_000)
    cluster.send(poison + session("v1", "good", start_ts=now() - 5_000))
    plant = (
        "from cockpithat.session.engine import SessionEngine as E; take = E.apply\n"
        "def apply(self, event, source, **more):\n"
        "    if event.event_id == 'poison-2': raise MemoryError('planted')\n"
        "    return take(self, event, source, **more)\n"
        "E.apply = apply\n"
    )
    for attempt in range(2):
        with worker(cluster, tmp_path, name=f"crash-{attempt}", plant=plant) as running:
            assert running.process.wait(60) == 1
            assert "planted" not in running.log.read_text()
        assert cluster.messages("dlq:session_events") == []
        assert max(cluster.committed().values()) <= 2  # never past the record
    with worker(cluster, tmp_path, name="heir", plant=plant):
        assert len(cluster.wait("sessions", 1)) >= 1
        letters = cluster.wait_messages("dlq:session_events", 1)
    assert [(m.value(), _headers(m).reason.value) for m in letters] == [(record(poison[2])[1], "crashed")]
    assert "good" in {body["session_id"] for body in cluster.read("traces")}


def test_a_worker_with_nothing_to_do_has_no_lag_and_stays_alive(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Traces are written in transactions: the marker at a partition's end is no record that waits."""
    cluster = Cluster(kafka, overrides={"health": {"port": 0, "stalled_after_s": 2.0}})
    cluster.send(session("v1", "only", start_ts=now() - 10_000))
    with worker(cluster, tmp_path) as running:
        cluster.wait("sessions", 1)
        time.sleep(6)
        assert running.get("/healthz")[0] == 200
        assert not list(ROOT.glob(f"{cluster.settings.kafka.group_id}*"))  # Faust's data folder
        lags = [line for line in running.get("/metrics")[1].splitlines() if "lag_records{" in line]
        assert len(lags) >= 2
        assert {line.rsplit(" ", 1)[1] for line in lags} == {"0.0"}
