"""A chat endpoint on a local port that speaks the OpenAI protocol and misbehaves on request.

``answer`` is called with the decoded request and returns what to do: a :class:`Reply`. It runs in threads, so
that a slow answer holds up nobody else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server does with a request. ``content`` is the message's text."""

    content: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    finish: str = "stop"
    refusal: str | None = None
    raw: bytes | None = None  # the body as it stands, in place of a completion
    close: bool = False  # close the connection without an answer
    cut: bool = False  # promise a length and close before it is reached
    delay: float = 0.0
    usage: bool = True


def json_reply(data: dict[str, Any], **more: Any) -> Reply:
    """A correct completion whose text is ``data``."""
    return Reply(content=json.dumps(data), **more)


@dataclass
class Request:
    """One request as it came in; names of headers in lower case."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str

    @property
    def prompt(self) -> str:
        """All messages as one text."""
        return "\n".join(message["content"] for message in self.body["messages"])


class ChatServer:
    """The server's address, what it was asked, and how it answers."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length))
                request = Request(body, {k.lower(): v for k, v in self.headers.items()}, self.path)
                with outer._lock:
                    outer.requests.append(request)
                outer._respond(self, request)

            def log_message(self, *_: Any) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _respond(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        reply = self.answer(request)
        if reply.delay:
            time.sleep(reply.delay)
        if reply.close:
            handler.close_connection = True
            handler.connection.close()
            return
        if reply.raw is not None:
            body = reply.raw
        else:
            completion: dict[str, Any] = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": request.body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": reply.finish,
                        "message": {"role": "assistant", "content": reply.content, "refusal": reply.refusal},
                    }
                ],
            }
            if reply.usage:
                completion["usage"] = {
                    "prompt_tokens": len(request.prompt) // 4,
                    "completion_tokens": len(reply.content or "") // 4,
                }
            body = json.dumps(completion).encode()
        try:
            handler.send_response(reply.status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(body) + (100 if reply.cut else 0)))
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)
            if reply.cut:
                handler.close_connection = True
                handler.wfile.flush()
                handler.connection.close()
        except OSError:  # the client has gone: a deadline
            pass

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextmanager
def serve(answer: Callable[[Request], Reply]) -> Iterator[ChatServer]:
    """A running server for the time of the block."""
    with ChatServer(answer) as server:
        yield server
