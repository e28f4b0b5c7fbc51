"""A panel whose endpoint takes a minute for an answer, while the group rebalances three times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet, wait_ready
from tests.stream.cockpit import IDENTITY, Cluster, duplicates, session
from tests.support.chat_server import ChatServer, Reply, Request, serve
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.full, pytest.mark.timeout(420)]

_SLOW_S = 60.0
_SESSIONS = 200


def test_a_pool_stuck_on_a_slow_endpoint_drops_no_member_and_stops_no_intake(
    kafka: KafkaBroker, tmp_path: Path, figures: Callable[..., None]
) -> None:
    slow = threading.Event()
    slow.set()

    def endpoint(_: Request) -> Reply:
        if slow.is_set():
            time.sleep(_SLOW_S)
        return Reply(status=400, content="no")  # whoever gets an answer at last keeps the local report

    with serve(endpoint) as server:
        cluster = _cluster(kafka, server)
        fleet = Fleet(cluster, tmp_path)
        try:
            fleet.start()
            began = time.monotonic()
            start_ms = time.time_ns() // 1_000_000 - 9_000
            cluster.send([b for n in range(_SESSIONS) for b in session(f"v{n}", f"s{n}", start_ts=start_ms)])
            # The local reports do not wait for the panel.
            assert len(cluster.wait("sessions", _SESSIONS, timeout=90)) >= _SESSIONS
            local_seconds = time.monotonic() - began
            waiting = len(server.requests)
            assert waiting > 0, "nobody asked the endpoint"

            delays = []
            for number in range(3):
                if number % 2 == 0:
                    guest = fleet.add()
                    fleet.size += 1
                    wait_ready(guest)
                else:
                    fleet.size -= 1
                    assert fleet.leave(guest) == 0
                # Intake goes on in the middle of it: sessions come, and their local reports go out.
                sent = time.monotonic()
                names = {f"during-{number}-{n}" for n in range(20)}
                start_ms = time.time_ns() // 1_000_000 - 9_000
                cluster.send(
                    [
                        b
                        for n in range(20)
                        for b in session(f"v{n}", f"during-{number}-{n}", start_ts=start_ms)
                    ]
                )
                while not names <= {body["session_id"] for body in cluster.read("sessions")}:
                    assert time.monotonic() - sent < 60, "intake stands still"
                    assert all(running.process.poll() is None for running in fleet.workers)
                    time.sleep(0.3)
                delays.append(round(time.monotonic() - sent, 1))

            # Nobody was thrown out: each member took part in rebalances, none lost its session.
            for running in fleet.logs():
                text = running.log.read_text(errors="replace")
                for loss in (
                    "UnknownMemberId",
                    "session has expired",
                    "fenced by the partition",
                    "Traceback",
                ):
                    assert loss not in text, f"{running.log.name}: {loss}"
            assert fleet.restarts == 0
            seconds = time.monotonic() - began
            slow.clear()
            assert set(fleet.stop()) == {0}
        finally:
            slow.clear()
            fleet.close()
    expected = {f"s{n}" for n in range(_SESSIONS)} | {f"during-{r}-{n}" for r in range(3) for n in range(20)}
    for role, identity in IDENTITY.items():
        assert duplicates(cluster.read(role), identity) == [], role
    first = [body["session_id"] for body in cluster.read("reports") if body["revision"] == 1]
    assert Counter(first) == dict.fromkeys(expected, 1)
    assert cluster.messages("dlq:session_events") == cluster.messages("dlq:traces") == []
    figures(
        sessions=len(expected),
        answer_seconds=_SLOW_S,
        rebalances=3,
        requests_open=waiting,
        seconds_to_200_local_reports=round(local_seconds, 1),
        seconds_to_20_during_each_rebalance=delays,
        seconds=round(seconds),
    )


def _cluster(kafka: KafkaBroker, server: ChatServer) -> Cluster:
    llm = {
        "analyst": {"base_url": server.url, "model": "slow"},
        "call_seconds": 120.0,
        "trust_environment": False,
        "retry": {"attempts": 1},
    }
    return Cluster(
        kafka,
        overrides={
            "kafka": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_500},
            "worker": {
                "commit_interval_ms": 300,
                "tick_interval_ms": 100,
                "pool_size": 2,
                "panel_size": 8,
                "analysts": "llm",
            },
            "attribution": {"panel": {"llm": llm}},
        },
    )
