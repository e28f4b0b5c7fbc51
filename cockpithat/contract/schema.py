"""Publishes the wire contract as JSON Schema (draft 2020-12), and tells breaking changes apart."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from cockpithat.contract.can import CanFrames
from cockpithat.contract.deadletter import DeadLetterHeaders
from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.reports import (
    Alert,
    MetricsRecord,
    Report,
    ReviewRequest,
    SessionSummary,
    Suspicion,
)
from cockpithat.contract.trace import Trace
from cockpithat.contract.vehicle import SNAPSHOT

RECORDS: dict[str, TypeAdapter[Any] | type[BaseModel]] = {
    "session_event": SESSION_EVENT,
    "vehicle_snapshot": SNAPSHOT,
    "can_frames": CanFrames,
    "trace": Trace,
    "report": Report,
    "alert": Alert,
    "review_request": ReviewRequest,
    "suspicion": Suspicion,
    "session_summary": SessionSummary,
    "metrics": MetricsRecord,
    "dead_letter_headers": DeadLetterHeaders,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one record by its name in :data:`RECORDS`. Raises ``KeyError``."""
    record = RECORDS[name]
    body = (
        record.json_schema(mode="validation")
        if isinstance(record, TypeAdapter)
        else record.model_json_schema(mode="validation")
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cockpithat:{name}:1",
        **body,
    }


def render(name: str) -> str:
    """The schema as it stands in ``schemas/``: stable key order, one trailing newline."""
    return json.dumps(json_schema(name), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    """``--write DIR`` writes all schemas, ``--check DIR`` exits 1 when one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", type=Path, metavar="DIR")
    group.add_argument("--check", type=Path, metavar="DIR")
    args = parser.parse_args(argv)
    if args.write:
        args.write.mkdir(parents=True, exist_ok=True)
        for name in RECORDS:
            (args.write / f"{name}.v1.json").write_text(render(name), encoding="utf-8")
        return 0
    stale = [
        name
        for name in RECORDS
        if not (path := args.check / f"{name}.v1.json").is_file()
        or path.read_text(encoding="utf-8") != render(name)
    ]
    for name in stale:
        print(f"{name}: schemas/ differs from the models; write it anew", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
