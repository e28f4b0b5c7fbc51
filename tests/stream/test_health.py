"""Probes: alive, ready, and what they say when not."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from stream.health import Health, HealthServer
from stream.metrics import Metrics
from stream.settings import ConfigurationError, HealthSettings

SETTINGS = HealthSettings(port=0, stalled_after_s=60)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(SETTINGS, Metrics(), busy_allowance_s=300, clock=clock)


@pytest.fixture
def server(health: Health) -> Iterator[HealthServer]:
    with HealthServer(SETTINGS, health, Metrics()) as server:
        yield server


def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_quiet_stream_is_alive_for_ever(health: Health, clock: Clock) -> None:
    clock.now += 1_000_000
    assert health.liveness() is None


def test_lag_without_progress_is_not_alive(health: Health, clock: Clock, server: HealthServer) -> None:
    clock.now += 1_000_000
    health.set_lag(5)  # records came just now
    assert health.liveness() is None
    clock.now += 61
    assert health.liveness() == "5 records wait and nothing moved for 61 s"
    assert get(server, "/healthz") == (
        503,
        json.dumps({"status": "fail", "reason": health.liveness()}) + "\n",
    )
    health.progress()
    assert get(server, "/healthz") == (200, '{"status": "ok"}\n')


def test_sessions_being_attributed_have_their_own_deadline(health: Health, clock: Clock) -> None:
    health.set_lag(5)
    health.set_in_flight(4)
    clock.now += 359
    assert health.liveness() is None
    clock.now += 2
    assert health.liveness() is not None


def test_a_process_that_cannot_recover_is_not_alive(health: Health) -> None:
    health.fail("fenced by a newer worker")
    assert health.liveness() == "fenced by a newer worker"


def test_readiness_names_every_failed_check(health: Health, server: HealthServer) -> None:
    assert get(server, "/readyz") == (200, '{"status": "ok", "failed": {}}\n')
    health.require("assignment", lambda: "no partition is assigned yet")
    health.require("topics", lambda: None)
    health.require("broken", lambda: str({}["anything"]))
    status, body = get(server, "/readyz")
    assert status == 503
    assert json.loads(body)["failed"] == {
        "assignment": "no partition is assigned yet",
        "broken": "the check itself failed: KeyError",
    }
    health.require("assignment", lambda: None)
    health.require("broken", lambda: None)
    assert get(server, "/readyz")[0] == 200


def test_metrics_and_unknown_paths(server: HealthServer) -> None:
    status, body = get(server, "/metrics")
    assert status == 200
    assert "cockpithat_build_info{" in body
    assert get(server, "/metrics?name=x")[0] == 200
    assert get(server, "/tables")[0] == 404
    assert get(server, "/metrics", "HEAD") == (200, "")
    assert get(server, "/metrics", "POST")[0] == 501


def test_a_client_that_says_nothing_blocks_no_other(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        started = time.monotonic()
        assert get(server, "/healthz")[0] == 200
        assert time.monotonic() - started < 2


def test_a_port_in_use_is_one_clear_line(server: HealthServer, health: Health) -> None:
    settings = SETTINGS.model_copy(update={"port": server.port})
    with pytest.raises(ConfigurationError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use"):
        HealthServer(settings, health, Metrics()).start()


def test_stopping_twice_frees_the_port(health: Health) -> None:
    server = HealthServer(SETTINGS, health, Metrics())
    server.start()
    port = server.port
    server.stop()
    server.stop()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))
