"""The product's own records: session events with vehicle snapshots, or finished traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.trace import Trace
from cockpithat.contract.vehicle import SNAPSHOT, VehicleSnapshot
from cockpithat.formats.base import ReadOptions
from cockpithat.formats.errors import FormatError
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import AnyEvent, Recording
from cockpithat.formats.values import joined
from cockpithat.graph.builder import graph_of

_EVENTS = {"session_start", "step", "session_end"}
_KINDS = _EVENTS | {"vehicle_snapshot", "trace"}


class Cockpit:
    """JSON Lines (or one JSON list) of the records that ``schemas/`` describes, in any mixture."""

    name = "cockpit"
    summary = "the product's own session events and vehicle snapshots, or finished traces"

    def recognises(self, document: Document) -> bool:
        """The first record names one of the contract's types."""
        record = next((value for _, value in document.records()), None)
        if isinstance(record, list) and record:
            record = record[0]
        return _kind(record) in _KINDS

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """Finished traces as they stand, then one recording of all events and snapshots."""
        events: list[AnyEvent] = []
        snapshots: list[VehicleSnapshot] = []
        for place, value in document.records():
            kind = "vehicle_snapshot" if isinstance(value, list) else _kind(value)
            if kind == "trace":
                yield _trace(document, place, value)
            elif kind == "vehicle_snapshot":
                read = validated(document, place, SNAPSHOT, value)
                snapshots.extend(read if isinstance(read, list) else [read])
            elif kind in _EVENTS:
                events.append(validated(document, place, SESSION_EVENT, value))
            else:
                raise document.error(
                    place, f"field 'type' is {kind!r}", f"use one of {', '.join(sorted(_KINDS))}"
                )
        if events or snapshots:
            yield Recording(document.name, tuple(events), tuple(snapshots))


def _kind(record: Any) -> str:
    """What a record says it is; empty for one that says nothing usable."""
    kind = record.get("type") if isinstance(record, dict) else None
    return kind if isinstance(kind, str) else ""


def validated(document: Document, place: str, model: type[BaseModel] | TypeAdapter[Any], value: Any) -> Any:
    """The value as a record, or a ``FormatError`` naming the first field that is wrong."""
    try:
        if isinstance(model, TypeAdapter):
            return model.validate_python(value)
        return model.model_validate(value)
    except ValidationError as error:
        raise field_error(document, place, error) from None
    except RecursionError:
        raise document.error(place, "is nested too deeply", "flatten it") from None


def field_error(document: Document, place: str, error: ValidationError) -> FormatError:
    """The first of a validation's errors as one line, without the value it found."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    pointer = "".join(f"/{part}" for part in first["loc"] if part not in _EVENTS)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return document.error(joined(place, pointer), f"{first['msg']}{more}", "see docs/formats.md and schemas/")


def _trace(document: Document, place: str, value: Any) -> Trace:
    trace: Trace = validated(document, place, Trace, value)
    for position, step in enumerate(trace.steps):
        if step.index != position:
            raise document.error(
                joined(place, f"/steps/{position}/index"),
                f"is {step.index}, but the step stands at position {position}",
                "number the steps from 0 in order",
            )
    if trace.graph is None:
        return trace.model_copy(update={"graph": graph_of(trace)})
    return trace
