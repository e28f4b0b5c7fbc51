"""Schemas in a Confluent schema registry, and the frame that its clients put before a record's JSON.

A framed value is a zero byte, the schema's id (four bytes, big endian) and the JSON
(:func:`cockpithat.contract.framing.unframed` takes it off). Reading needs no registry: what a record must
look like is the contract's to say, whatever schema its writer used. Writing needs the ids, which are asked
for once, at the start; after that an outage of the registry is nobody's problem.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from cockpithat.contract.framing import frame
from cockpithat.contract.schema import json_schema
from stream.settings import ConfigurationError, Settings

log = logging.getLogger(__name__)

RECORDS: Mapping[str, str] = {
    "session_events": "session_event",
    "vehicle_snapshots": "vehicle_snapshot",
    "can_frames": "can_frames",
    "traces": "trace",
    "reports": "report",
    "alerts": "alert",
    "reviews": "review_request",
    "metrics": "metrics",
    "suspicions": "suspicion",
    "sessions": "session_summary",
}
"""What is in a topic, by the topic's role."""

_READ_ONLY = frozenset({"session_events", "can_frames"})
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_RIGHTS = "check schema_registry.username and password, and their rights"
_HINTS = {
    401: _RIGHTS,
    403: _RIGHTS,
    404: "run `cockpithat topics create`, or set schema_registry.auto_register",
    409: "its compatibility rule refuses this product's schema; change the subject's rule",
    422: "does it take schemas of type JSON?",
}


class SchemaRegistry:
    """The registry's REST interface, as far as it is needed. Blocks."""

    def __init__(self, settings: Settings) -> None:
        """Raises :class:`ConfigurationError` without an address or with a CA bundle that can't be read."""
        registry = settings.schema_registry
        if registry.url is None:
            raise ConfigurationError("no schema registry is set; set schema_registry.url")
        self._settings = registry
        self._client = httpx.Client(
            base_url=registry.url.rstrip("/"),
            auth=registry.credentials(),
            verify=registry.tls(),
            timeout=registry.timeout_s,
            headers={"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE},
        )

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def register(self, subject: str, schema: str) -> int:
        """Id of ``schema`` under ``subject``, registered if it is new there.

        Raises :class:`ConfigurationError`, also where the registry finds it incompatible.
        """
        return self._id(self._post(f"/subjects/{subject}/versions", schema, subject), subject)

    def look_up(self, subject: str, schema: str) -> int:
        """Id of ``schema`` under ``subject``. Raises :class:`ConfigurationError` if it is not there."""
        return self._id(self._post(f"/subjects/{subject}", schema, subject), subject)

    def _post(self, path: str, schema: str, subject: str) -> httpx.Response:
        body = {"schemaType": "JSON", "schema": schema}
        for attempt in range(1, self._settings.attempts + 1):
            try:
                answer = self._client.post(path, params={"normalize": "true"}, json=body)
            except httpx.HTTPError as error:
                why = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    return answer
                why = f"HTTP {answer.status_code}"
            if attempt < self._settings.attempts:
                time.sleep(min(2.0 ** (attempt - 1) / 2, 5.0))
        raise ConfigurationError(
            f"the schema registry {self._settings.shown} did not answer for {subject} "
            f"({why}, {self._settings.attempts} attempts); check schema_registry.url and that it is up"
        )

    def _id(self, answer: httpx.Response, subject: str) -> int:
        content = _content(answer)
        found = content.get("id")
        if answer.is_success and type(found) is int and 0 <= found < 2**32:
            return found
        where = f"schema registry {self._settings.shown}, subject {subject}"
        said = str(content.get("message") or f"HTTP {answer.status_code}")[:300]
        hint = _HINTS.get(answer.status_code, "is this the address of a schema registry?")
        raise ConfigurationError(f"{where}: {said}; {hint}")


def _content(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _subjects(settings: Settings, roles: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Topic, subject (topic name strategy) and schema of each role."""
    for role, record in roles.items():
        topic = str(getattr(settings.topics, role))
        yield topic, f"{topic}-value", json.dumps(json_schema(record), sort_keys=True)


def register_all(settings: Settings) -> dict[str, int]:
    """Register every record's schema; ids by subject. Raises :class:`ConfigurationError`."""
    with SchemaRegistry(settings) as registry:
        return {
            subject: registry.register(subject, schema) for _, subject, schema in _subjects(settings, RECORDS)
        }


def frames(settings: Settings) -> dict[str, bytes]:
    """What stands before the values of each topic that a worker writes; nothing without a registry.

    Raises :class:`ConfigurationError`.
    """
    if settings.schema_registry.url is None:
        return {}
    written = {role: record for role, record in RECORDS.items() if role not in _READ_ONLY}
    with SchemaRegistry(settings) as registry:
        find = registry.register if settings.schema_registry.auto_register else registry.look_up
        found = {
            topic: frame(find(subject, schema)) for topic, subject, schema in _subjects(settings, written)
        }
    log.info("schemas found", extra={"count": len(found)})
    return found
