"""Logs: structured, one line an event, and no way for trace text to get in."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import ValidationError

from cockpithat.contract.base import Asil
from cockpithat.contract.events import SESSION_EVENT
from cockpithat.contract.vehicle import SNAPSHOT
from stream import logs
from stream.settings import ConfigurationError, LogSettings

SECRET = "Anna drives to the clinic"


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure(LogSettings(), stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def raised(call: Any, *args: Any) -> Exception:
    try:
        call(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_one_json_object_a_line(output: io.StringIO) -> None:
    logging.getLogger("stream.hold").info(
        "offset committed", extra={"topic": "t", "partition": 3, "asil": Asil.D, "seconds": 0.5}
    )
    (line,) = lines(output)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "stream.hold",
        "event": "offset committed",
        "topic": "t",
        "partition": 3,
        "asil": "D",
        "seconds": 0.5,
    }


BAD_STEP = {
    "type": "step",
    "event_id": "e",
    "vehicle_id": "v",
    "session_id": "s",
    "seq": 1,
    "ts": 1,
    "agent": "a",
}
LEAKS = {
    "pydantic, value": raised(SESSION_EVENT.validate_python, {**BAD_STEP, "seq": SECRET}),
    "pydantic, union tag": raised(SESSION_EVENT.validate_python, {**BAD_STEP, "type": SECRET}),
    "pydantic, key": raised(
        SNAPSHOT.validate_python, {"vehicle_id": "v", "ts": 1, "signals": {SECRET: {"not": "a value"}}}
    ),
    "pydantic, own message": raised(SESSION_EVENT.validate_python, {**BAD_STEP, "schema_version": SECRET}),
    "json": raised(json.loads, f'{{"text": "{SECRET}", }}'),
    "unicode": raised((SECRET.encode() + b"\xff").decode),
    "key": raised({}.__getitem__, SECRET),
    "value": raised(int, SECRET),
    "custom": RuntimeError(SECRET),
}


@pytest.mark.parametrize("leak", LEAKS, ids=list(LEAKS))
def test_an_exception_leaks_nothing(output: io.StringIO, leak: str) -> None:
    error = LEAKS[leak]
    log = logging.getLogger("anyone")
    try:
        raise RuntimeError(SECRET) from error
    except RuntimeError:
        log.exception("failed")
    log.error("failed: %s", error)
    log.error("failed: %r", error, exc_info=error)
    log.error(error)
    log.error("failed", extra={"detail": logs.describe(error), "what": error})
    assert SECRET not in output.getvalue()
    assert "Anna" not in output.getvalue()
    for line in lines(output):
        assert type(error).__name__ in json.dumps(line)


@pytest.mark.parametrize(
    "args",
    [
        (SECRET,),
        (SECRET.encode(),),
        ({"text": SECRET},),
        ({SECRET: 1},),
        ([SECRET],),
        ([[SECRET]],),
        ([[[SECRET]]],),
    ],
)
def test_arguments_and_unknown_fields_leak_nothing(output: io.StringIO, args: tuple[Any, ...]) -> None:
    log = logging.getLogger("faust.agents")
    log.warning("cannot decode %r", *args)
    log.warning("unknown field", extra={"record": args[0]})
    assert "Anna" not in output.getvalue()
    assert len(lines(output)) == 2


def test_a_template_that_wants_a_number_still_gives_a_line() -> None:
    record = logging.makeLogRecord({"name": "faust", "msg": "cannot decode %d", "args": (SECRET,)})
    assert logs.message(record) == "cannot decode %d"


def test_numbers_partitions_and_broker_text_stay_readable(output: io.StringIO) -> None:
    from faust.types import TP

    logging.getLogger("faust").warning("assigned %s after %d s", {TP("events", 3)}, 2)
    logging.getLogger("librdkafka").warning("%s [%s] %s", "FAIL", "rdkafka#1", "broker 1 is down")
    assert [line["event"] for line in lines(output)] == [
        "assigned ['events-3'] after 2 s",
        "FAIL [rdkafka#1] broker 1 is down",
    ]


def test_the_place_of_an_exception_is_told(output: io.StringIO) -> None:
    try:
        json.loads("{")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(output)
    assert line["error"].startswith("JSONDecodeError: Expecting property name")
    assert any("test_logs.py" in frame for frame in line["trace"])


def test_what_is_safe_of_an_exception_is_told() -> None:
    assert (
        logs.describe(ConfigurationError("health.port: in use")) == "ConfigurationError: health.port: in use"
    )
    assert logs.describe(FileNotFoundError(2, "No such file", "x")) == "FileNotFoundError: No such file"
    assert "broker" in logs.describe(KafkaException(KafkaError(KafkaError._TRANSPORT, "broker down")))


def test_a_validation_error_names_field_and_kind() -> None:
    error = raised(SESSION_EVENT.validate_python, {**BAD_STEP, "seq": "x", "tool_calls": [{"name": 3}]})
    assert isinstance(error, ValidationError)
    assert logs.validation_detail(error) == "step.seq: int_parsing; step.tool_calls.0.name: string_type"


def test_text_for_a_terminal_holds_no_control_characters() -> None:
    record = logging.makeLogRecord(
        {"name": "x", "msg": "a\x1b[31m\nb", "levelname": "INFO", "reason": "\x1b"}
    )
    text = logs.TextFormatter().format(record)
    assert text.isprintable()


def test_what_a_client_says_at_each_try_is_written_once_in_a_while_and_counted() -> None:
    now = 100.0
    repeats = logs.Repeats(lambda: now)

    def record(name: str, text: str, *args: Any, level: int = logging.ERROR) -> logging.LogRecord:
        return logging.LogRecord(name, level, "", 0, text, args, None)

    def passes(name: str, text: str, *args: Any, level: int = logging.ERROR) -> bool:
        return repeats.filter(record(name, text, *args, level=level))

    away = ("aiokafka.consumer", "node %s is away after %d ms")
    assert [passes(*away, 1, n) for n in range(100)] == [True] + [False] * 99
    assert passes("aiokafka.consumer", "another thing")
    assert passes(*away, 1, 7, level=logging.WARNING)
    assert passes(*away, 1, 7, level=logging.CRITICAL) and passes(*away, 1, 7, level=logging.CRITICAL)
    assert all(passes("stream.hold", "offset %d committed", n) for n in range(3))  # our own lines all count
    now += 30
    again = record(*away, 1, 8)
    assert repeats.filter(again)
    assert logs.event_fields(again)["repeated"] == 99
    for number in range(1_000):  # what is remembered is bounded
        passes("librdkafka", f"{'x' * number} failed")
    assert passes(*away, 1, 9)
