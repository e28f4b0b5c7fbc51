"""A worker with an LLM panel, on Apache Kafka and an endpoint that speaks the OpenAI protocol.

The local report goes out at once; the panel's verdict follows under the same ids as the next revision.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.panel.refining import PRELIMINARY
from cockpithat.resources import resource
from tests.panel.support import good_answer
from tests.stream.cockpit import Cluster, RunningWorker, duplicates, session, worker
from tests.support.chat_server import ChatServer, Reply, Request, json_reply, serve
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

OUTAGE_S = 2.0
IDENTITY = {"reports": "report_id", "alerts": "alert_id", "reviews": "review_id", "sessions": "summary_id"}


def now() -> int:
    return time.time_ns() // 1_000_000


class Endpoint:
    """How the endpoint answers for now: well, not yet, or not at all."""

    def __init__(self) -> None:
        self.down = False
        self.open = threading.Event()  # closed, answers wait
        self.open.set()
        self.at_once = 10**9  # so many answers do not wait
        self.answered: Counter[str] = Counter()
        self._lock = threading.Lock()

    def wait_after(self, answers: int) -> None:
        """From now on, all but the next ``answers`` wait until ``open`` is set."""
        self.at_once = answers
        self.open.clear()

    def __call__(self, request: Request) -> Reply:
        if self.down:
            return Reply(status=503, raw=b"")
        with self._lock:
            self.at_once -= 1
            must_wait = self.at_once < 0
        if must_wait:
            self.open.wait(120)
        with self._lock:
            self.answered[request.prompt] += 1
        return json_reply(good_answer(request, confidence=0.9))


def panel_cluster(kafka: KafkaBroker, server: ChatServer, tmp_path: Path, **worker: Any) -> Cluster:
    llm = {
        "analyst": {"base_url": server.url, "model": "large", "input_price": 1.0, "output_price": 2.0},
        "trust_environment": False,
        "call_seconds": 100.0,
        "retry": {"attempts": 2, "base_seconds": 0.05},
        "breaker": {"failures": 5, "reset_seconds": 0.5},
        "cache": {"directory": str(tmp_path / "answers")},
    }
    base = {"commit_interval_ms": 300, "tick_interval_ms": 100, "pool_size": 1, "analysts": "llm"}
    return Cluster(
        kafka,
        partitions=2,
        overrides={"worker": {**base, **worker}, "attribution": {"panel": {"llm": llm}}},
    )


def traces(count: int) -> list[dict[str, Any]]:
    """Failed demo sessions as traces that ended just now, each of a vehicle of its own."""
    paths = sorted(resource("data/demo").glob("*.yaml"))
    demos = [trace for path in paths for trace in load(path) if trace.is_judged]
    made = []
    for number in range(count):
        trace: Trace = demos[number % len(demos)]
        changes = {
            "trace_id": f"{number:032x}",
            "vehicle_id": f"v{number}",
            "session_id": f"s{number}",
            "ended_ts": now(),
        }
        made.append(json.loads(trace.model_copy(update=changes).model_dump_json()))
    return made


def check_nothing_twice(cluster: Cluster) -> None:
    for role, identity in IDENTITY.items():
        assert duplicates(cluster.read(role), identity) == [], role


def held_traces(cluster: Cluster) -> int:
    """Traces at or behind the committed offsets: what a new owner would read again."""
    kafka = cluster.settings.kafka
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": kafka.group_id})
    try:
        asked = [TopicPartition(cluster.topic("traces"), p) for p in range(cluster.partitions)]
        committed = {tp.partition: tp.offset for tp in consumer.committed(asked, timeout=10)}
    finally:
        consumer.close()
    return sum((m.offset() or 0) >= committed[m.partition() or 0] for m in cluster.messages("traces"))


def session_of(message: Message) -> str:
    return str(json.loads(message.value() or b"")["session_id"])


def revisions(records: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Revisions by session, in the order written."""
    found: dict[str, list[int]] = {}
    for body in records:
        found.setdefault(body["session_id"], []).append(body["revision"])
    return found


def until(true: Callable[[], bool], running: RunningWorker, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not true():
        assert running.process.poll() is None and time.monotonic() < deadline, running.log.read_text()[-3000:]
        time.sleep(0.1)


def test_page_first_refine_later(kafka: KafkaBroker, tmp_path: Path) -> None:
    """A slow endpoint holds up neither the local reports nor each other; then the verdicts follow."""
    endpoint = Endpoint()
    endpoint.wait_after(0)
    with serve(endpoint) as server:
        cluster = panel_cluster(kafka, server, tmp_path)
        with worker(cluster, tmp_path) as running:
            running.wait_ready()
            cluster.send(session("v", "failed", start_ts=now() - 9_000))
            cluster.send(session("v", "passed", start_ts=now() - 9_000, failed=False))
            cluster.send(traces(10), "traces")
            cluster.wait("sessions", 12)
            firsts = cluster.messages("reports")
            bodies = [json.loads(message.value() or b"") for message in firsts]
            assert [body["revision"] for body in bodies] == [1] * 11
            assert all(body["degraded"] == PRELIMINARY for body in bodies)
            alerted = {body["session_id"] for body in cluster.read("alerts")}
            assert alerted == {body["session_id"] for body in bodies if body["asil"] in ("C", "D")} != set()
            # The time from a trace's record to its report's, by the broker's clock.
            came = {
                json.loads(m.value() or b"")["session_id"]: m.timestamp()[1]
                for m in cluster.messages("traces")
            }
            took = sorted(
                m.timestamp()[1] - came[body["session_id"]] for m, body in zip(firsts, bodies, strict=True)
            )
            assert took[0] < 1_000, f"a local report waits for nothing: {took} ms"

            endpoint.open.set()
            cluster.wait("sessions", 23)
            reports = cluster.read("reports")
            assert revisions(reports) == {body["session_id"]: [1, 2] for body in bodies}
            for body in reports:
                first = next(b for b in bodies if b["session_id"] == body["session_id"])
                assert body["report_id"] == first["report_id"]
                if body["revision"] == 2:
                    assert (body["degraded"], body["decided_by"], body["analysts"]) == (None, "panel", "llm")
                    assert body["tokens"]["input"] > 0 and len(body["hypotheses"]) == 4
            assert revisions(cluster.read("alerts")) == {name: [1, 2] for name in alerted}
            summaries = cluster.read("sessions")
            assert {b["session_id"]: b["final"] for b in summaries} == dict.fromkeys(
                (*revisions(bodies), "passed"), True
            )
            assert [b["revision"] for b in summaries if b["session_id"] == "passed"] == [1]
            assert [b["final"] for b in summaries if b["session_id"] == "failed"] == [False, True]
            check_nothing_twice(cluster)
            until(lambda: held_traces(cluster) == 0, running)

            _, metrics = running.get("/metrics")
            assert 'cockpithat_panels_total{result="verdict"} 11.0' in metrics
            assert (
                f'cockpithat_llm_calls_total{{outcome="ok",role="analyst"}} {len(server.requests)}.0'
                in metrics
            )
            spent = sum(body["tokens"]["input"] for body in reports)
            assert f'cockpithat_llm_tokens_total{{direction="input",role="analyst"}} {spent}.0' in metrics
            assert "step 2 of failed" not in running.log.read_text()


def test_an_outage_leaves_marked_local_reports_and_the_verdicts_follow_it(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Then a worker is killed in the middle of panels: nothing comes twice, no answer is paid twice."""
    endpoint = Endpoint()
    endpoint.down = True
    with serve(endpoint) as server:
        cluster = panel_cluster(kafka, server, tmp_path, roles=["attribute"])
        with worker(cluster, tmp_path) as running:
            running.wait_ready()
            cluster.send(traces(4), "traces")
            firsts = cluster.wait("reports", 4)
            assert all(body["degraded"] and body["revision"] == 1 for body in firsts)
            time.sleep(OUTAGE_S)
            _, metrics = running.get("/metrics")
            assert 'cockpithat_llm_circuit_open{role="analyst"} 1.0' in metrics
            assert "cockpithat_panel_backlog 0.0" not in metrics or "cockpithat_panels_active 1.0" in metrics
            assert held_traces(cluster) == 4, "what waits for its panel is held"
            assert len(cluster.read("reports")) == 4

            # The endpoint is back, for twelve answers; the worker is killed with the panels half answered.
            endpoint.wait_after(12)
            endpoint.down = False
            until(lambda: sum(endpoint.answered.values()) >= 12, running)
            time.sleep(0.5)  # let the answers reach the cache
            running.kill()
        before = dict(endpoint.answered)
        endpoint.open.set()
        time.sleep(0.3)  # what was waiting is answered to nobody
        unheard = endpoint.answered - Counter(before)
        with worker(cluster, tmp_path, name="next") as running:
            cluster.wait("reports", 8)
            assert revisions(cluster.read("reports")) == {f"s{number}": [1, 2] for number in range(4)}
            assert all(b["degraded"] is None for b in cluster.read("reports") if b["revision"] == 2)
            check_nothing_twice(cluster)
            until(lambda: held_traces(cluster) == 0, running)
        twice = {prompt for prompt, count in (endpoint.answered - unheard).items() if count > 1}
        assert not twice, "an answer that had come was asked for again"
        assert sum(endpoint.answered.values()) > sum(before.values())


def test_a_rebalance_moves_panels_and_publishes_each_verdict_once(kafka: KafkaBroker, tmp_path: Path) -> None:
    endpoint = Endpoint()
    endpoint.wait_after(0)
    with serve(endpoint) as server:
        cluster = panel_cluster(kafka, server, tmp_path, roles=["attribute"])
        with worker(cluster, tmp_path) as first:
            first.wait_ready()
            cluster.send(traces(8), "traces")
            cluster.wait("reports", 8)
            with worker(cluster, tmp_path, name="second") as second:
                second.wait_for_event("partitions assigned", timeout=60)
                until(
                    lambda: 'cockpithat_panels_total{result="cancelled"} 0.0' not in first.get("/metrics")[1],
                    first,
                )
                assert len(cluster.read("reports")) == 8, "panels that were cancelled published nothing"
                endpoint.open.set()
                cluster.wait("reports", 16)
                assert revisions(cluster.read("reports")) == {f"s{number}": [1, 2] for number in range(8)}
                check_nothing_twice(cluster)
                second.terminate()
            first.terminate()
