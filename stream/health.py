"""Probes and metrics over HTTP, on a thread and a port of their own.

Up before the first partition is assigned, and answering while the event loop is busy: that is when they
matter. ``/healthz`` asks "should this process be restarted?", ``/readyz`` "does it do its work, and if not,
what is missing?".
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from stream.logs import describe
from stream.metrics import Metrics
from stream.settings import ConfigurationError, HealthSettings

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""A readiness check: ``None`` if all is well, else one line that says what is wrong."""


class Health:
    """What the probes answer. Written by the worker, read by the HTTP threads."""

    def __init__(
        self,
        settings: HealthSettings,
        metrics: Metrics,
        *,
        busy_allowance_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``busy_allowance_s``: how much longer no progress is fine while sessions are being attributed."""
        self._stalled_after_s = settings.stalled_after_s
        self._busy_allowance_s = busy_allowance_s
        self._metrics = metrics
        self._clock = clock
        self._checks: dict[str, Check] = {}
        self._last_progress = clock()
        self._lag = 0
        self._in_flight = 0
        self._fatal: str | None = None

    def require(self, name: str, check: Check) -> None:
        """Add a readiness check, or replace the one of that name. It runs on an HTTP thread."""
        self._checks = {**self._checks, name: check}

    def progress(self) -> None:
        """A record was taken, or an output delivered."""
        self._last_progress = self._clock()
        self._metrics.last_progress.set_to_current_time()

    def set_lag(self, records: int) -> None:
        """Records that wait to be read. From none to some starts the stall clock anew."""
        if self._lag == 0 and records > 0:
            self._last_progress = self._clock()
        self._lag = records

    def set_in_flight(self, sessions: int) -> None:
        """Sessions being attributed: their deadlines, not the stall clock, bound them."""
        self._in_flight = sessions

    def fail(self, why: str) -> None:
        """The process cannot recover and waits to be restarted."""
        self._fatal = why

    def liveness(self) -> str | None:
        """``None`` if the process lives, else why it should be restarted."""
        if self._fatal is not None:
            return self._fatal
        if self._lag <= 0:
            return None
        allowed = self._stalled_after_s + (self._busy_allowance_s if self._in_flight else 0.0)
        idle = self._clock() - self._last_progress
        if idle > allowed:
            return f"{self._lag} records wait and nothing moved for {idle:.0f} s"
        return None

    def readiness(self) -> dict[str, str]:
        """Failed checks by name; empty when ready."""
        failed = {}
        for name, check in self._checks.items():
            try:
                problem = check()
            except Exception as error:
                problem = f"the check itself failed: {describe(error)}"
            if problem is not None:
                failed[name] = problem
        return failed


class HealthServer:
    """Serves :class:`Health` and the metrics. Use as a context manager, or ``start`` and ``stop``."""

    def __init__(self, settings: HealthSettings, health: Health, metrics: Metrics) -> None:
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on (the free one that was found, for 0)."""
        if self._server is None:
            raise RuntimeError("the health server is not started")
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Listen. Raises :class:`ConfigurationError` if the address cannot be had."""
        settings = self._settings
        try:
            server = _server_class(settings.host)(
                (settings.host, settings.port), _handler(self._health, self._metrics)
            )
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"health.host, health.port: cannot listen on {settings.host}:{settings.port}: "
                f"{getattr(error, 'strerror', None) or 'no such address'}; "
                "set COCKPITHAT_HEALTH__PORT to a free port"
            ) from None
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="health", daemon=True
        )
        self._thread.start()
        log.info("health server listens", extra={"host": settings.host, "port": self.port})

    def stop(self) -> None:
        """Stop listening. May be called more than once."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away in the middle is no event worth a traceback."""

    return Server


def _handler(health: Health, metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # a client that sends nothing does not keep its thread
        server_version = "cockpithat"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                body, content_type = metrics.render(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, body, content_type)
            elif path == "/healthz":
                why = health.liveness()
                self._json(
                    why is None, {"status": "ok"} if why is None else {"status": "fail", "reason": why}
                )
            elif path == "/readyz":
                failed = health.readiness()
                self._json(not failed, {"status": "fail" if failed else "ok", "failed": failed})
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"see /metrics, /healthz, /readyz\n", "text/plain")

        do_HEAD = do_GET  # noqa: N815

        def _json(self, good: bool, content: dict[str, Any]) -> None:
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, json.dumps(content).encode() + b"\n", "application/json")

        def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every few seconds: not logged."""

    return Handler
