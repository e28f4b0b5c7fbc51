"""A schema registry at the wire: the requests that the product makes, with the protocol's own errors."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass
class Registry:
    """Schemas have one id, whatever subjects they are under, as in the original."""

    url: str = ""
    subjects: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # subjects whose compatibility rule says no
    failures: int = 0  # requests to answer with 500 first
    user: tuple[str, str] | None = None
    requests: list[str] = field(default_factory=list)

    def answer(
        self, path: str, body: dict[str, Any], authorization: str | None
    ) -> tuple[int, dict[str, Any]]:
        """Status and content for a POST."""
        self.requests.append(path)
        if self.user is not None:
            wanted = "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.failures:
            self.failures -= 1
            return 500, {"error_code": 50001, "message": "Error in the backend data store"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:1] != ["subjects"] or len(parts) not in (2, 3):
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        subject, schema = parts[1], body.get("schema")
        if body.get("schemaType") != "JSON" or not isinstance(schema, str):
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        json.loads(schema)
        if len(parts) == 3:
            if subject in self.refused:
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            number = self.ids.setdefault(schema, 1 + len(self.ids))
            if schema not in self.subjects.setdefault(subject, []):
                self.subjects[subject].append(schema)
            return 200, {"id": number}
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if schema not in self.subjects[subject]:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        version = 1 + self.subjects[subject].index(schema)
        return 200, {"subject": subject, "id": self.ids[schema], "version": version, "schema": schema}


@contextmanager
def serve() -> Iterator[Registry]:
    """A registry on a port of its own."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length))
            assert self.headers["Content-Type"] == CONTENT_TYPE
            status, content = registry.answer(
                urlsplit(self.path).path, body, self.headers.get("Authorization")
            )
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
