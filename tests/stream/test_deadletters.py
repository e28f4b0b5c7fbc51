"""What is put aside keeps its bytes, and too much of it stops intake."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import TypeAdapter

from cockpithat.contract.deadletter import DeadLetterHeaders, DeadLetterReason
from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.trace import SourceRef, Step, Trace
from cockpithat.formats.assembly import assemble
from cockpithat.formats.reading import MAX_DEPTH
from cockpithat.formats.recording import Recording
from stream.cutting import fit
from stream.deadletters import DeadLetterGuard, dead_letter
from stream.decoding import TRACE_DEPTH, Decoder, UndecodableError
from stream.records import Record
from tests.stream.cockpit import event

GOOD = event("step", "v1", "s1", 1, 1_700_000_000_000, agent="Planner")


def test_a_dead_letter_keeps_key_value_and_headers_and_says_what_failed() -> None:
    record = Record("events", 3, 17, 1_700_000_000_000, b"\xffkey", b"\x00\xff{", (("traceparent", b"00-1"),))
    letter = dead_letter(
        record, DeadLetterReason.NOT_JSON, detail="no JSON", stage="decode", topic="events.dlq", partition=3
    )
    assert (letter.key, letter.value, letter.topic, letter.partition) == (
        b"\xffkey",
        b"\x00\xff{",
        "events.dlq",
        3,
    )
    assert ("traceparent", b"00-1") in letter.headers
    read = DeadLetterHeaders.from_kafka(letter.headers)
    assert (read.reason, read.source_topic, read.source_partition, read.source_offset) == (
        DeadLetterReason.NOT_JSON,
        "events",
        3,
        17,
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, DeadLetterReason.EMPTY),
        (b"", DeadLetterReason.EMPTY),
        (b"not json", DeadLetterReason.NOT_JSON),
        (json.dumps(GOOD).encode()[:-9], DeadLetterReason.NOT_JSON),
        (b'{"type": "step", "text": "\xff"}', DeadLetterReason.BAD_ENCODING),
        (
            json.dumps({**GOOD, "environment": {"a": 0}})
            .encode()
            .replace(b"0}", b"[" * 5000 + b"]" * 5000 + b"}"),
            DeadLetterReason.TOO_DEEP,
        ),
        (json.dumps({**GOOD, "schema_version": "2.0"}).encode(), DeadLetterReason.UNKNOWN_VERSION),
        (json.dumps({**GOOD, "environment": {"speed": math.nan}}).encode(), DeadLetterReason.NOT_JSON),
        (json.dumps({**GOOD, "environment": {"speed": -math.inf}}).encode(), DeadLetterReason.NOT_JSON),
        (json.dumps({**GOOD, "environment": {"speed": 10**400}}).encode(), DeadLetterReason.NOT_JSON),
        (json.dumps({**GOOD, "text": "\ud800"}).encode(), DeadLetterReason.NOT_JSON),
        (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), DeadLetterReason.NOT_JSON),
        (json.dumps(GOOD).encode("utf-16"), DeadLetterReason.BAD_ENCODING),
        (json.dumps({**GOOD, "ts": "0001-01-01T00:00:00+01:00"}).encode(), DeadLetterReason.SCHEMA),
        (json.dumps([GOOD]).encode(), DeadLetterReason.SCHEMA),
        (json.dumps({**GOOD, "seq": "one"}).encode(), DeadLetterReason.SCHEMA),
        (json.dumps({"type": "other"}).encode(), DeadLetterReason.SCHEMA),
        (json.dumps({**GOOD, "text": "x" * 20_000}).encode(), DeadLetterReason.TOO_LARGE),
    ],
)
def test_each_kind_of_garbage_has_its_reason(value: bytes | None, reason: DeadLetterReason) -> None:
    with pytest.raises(UndecodableError) as caught:
        Decoder(SESSION_EVENT, max_bytes=15_000).decode(value)
    assert caught.value.reason == reason
    assert "x" * 20 not in caught.value.detail


def nested(levels: int) -> bytes:
    """A step whose value nests ``levels`` deep in all, the step itself included."""
    lists = levels - 2
    body = json.dumps({**GOOD, "environment": {"a": 0}})
    return body.replace('"a": 0', '"a": ' + "[" * lists + "]" * lists).encode()


def test_what_is_taken_as_an_event_can_be_read_back_as_a_trace() -> None:
    event = Decoder(SESSION_EVENT, max_bytes=15_000).decode(nested(MAX_DEPTH))
    (trace,) = assemble(Recording("events", (event,), ()))
    written = trace.model_dump_json().encode()
    traces = Decoder(TypeAdapter(Trace), max_bytes=15_000, max_depth=TRACE_DEPTH)
    assert traces.decode(written).steps[0].environment == event.model_dump()["environment"]
    with pytest.raises(UndecodableError, match=f"more than {MAX_DEPTH} levels"):
        Decoder(SESSION_EVENT, max_bytes=15_000).decode(nested(MAX_DEPTH + 1))


def test_numbers_beyond_64_bits_come_as_floats() -> None:
    value = json.dumps({**GOOD, "environment": {"speed": 10**300}}).encode()
    event = Decoder(SESSION_EVENT, max_bytes=15_000).decode(value)
    assert event.model_dump()["environment"] == {"speed": 1e300}


def test_a_detail_quotes_nothing_of_the_record() -> None:
    body = {**GOOD, "agent": {"secret word": "hunter2"}}
    with pytest.raises(UndecodableError) as caught:
        Decoder(SESSION_EVENT, max_bytes=15_000).decode(json.dumps(body).encode())
    assert "hunter2" not in caught.value.detail
    assert "secret word" not in caught.value.detail
    assert "agent" in caught.value.detail


def test_a_run_of_dead_letters_trips_the_guard() -> None:
    guard = DeadLetterGuard(window=100, max_ratio=0.5, max_run=10)
    for _ in range(10):
        guard.bad()
    assert guard.tripped is None
    guard.bad()
    assert guard.tripped == "11 records in a row were dead-lettered"


def test_a_share_of_dead_letters_trips_the_guard_only_over_a_full_window() -> None:
    guard = DeadLetterGuard(window=100, max_ratio=0.5, max_run=1_000)
    for number in range(99):
        if number % 3 == 0:
            guard.good()
        else:
            guard.bad()
    assert guard.tripped is None
    guard.bad()
    assert guard.tripped == "67 of the latest 100 records were dead-lettered"


def test_one_percent_of_garbage_trips_nothing() -> None:
    guard = DeadLetterGuard(window=1_000, max_ratio=0.5, max_run=500)
    for number in range(50_000):
        if number % 100 == 0:
            guard.bad()
        else:
            guard.good()
    assert guard.tripped is None


def _trace(text: str, steps: int) -> Trace:
    return Trace(
        trace_id="t",
        vehicle_id="v",
        session_id="s",
        steps=tuple(
            Step(
                index=i,
                seq=i,
                event_id=str(i),
                ts=i,
                agent="a",
                text=text,
                source=SourceRef(topic="events", offset=i, digest="d"),
            )
            for i in range(steps)
        ),
    )


def test_a_trace_that_fits_is_not_touched() -> None:
    trace = _trace("short", 3)
    whole, value = fit(trace, 100_000)
    assert whole is trace
    assert TypeAdapter(Trace).validate_json(value) == trace


def test_a_trace_of_20_megabytes_is_cut_says_so_and_keeps_its_sources() -> None:
    cut, value = fit(_trace("x" * 1_000_000, 20), 8 * 1024 * 1024)
    assert len(value) <= 8 * 1024 * 1024
    assert cut.truncated
    assert [step.source.offset for step in cut.steps if step.source] == list(range(20))
    assert all(step.text.startswith("xxx") and step.text.endswith("source]") for step in cut.steps)


def test_a_trace_of_too_many_bare_steps_keeps_its_ends() -> None:
    cut, value = fit(_trace("x", 5_000), 200_000)
    assert len(value) <= 200_000
    assert cut.steps[0].index == 0
    assert cut.steps[-1].index == 4_999
