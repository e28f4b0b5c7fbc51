"""Structured logs, one line an event, that cannot carry payload.

Trace text is private and untrusted, and it gets into logs by accident: an exception's message quotes its
input, a library logs the record it could not read. So the rule is by type, for our own loggers and for
everyone's: numbers, enumerations and a few named text fields are written; any other text is replaced by
the name of its type, and an exception by its type and where it was raised.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, Final, TextIO

from pydantic import BaseModel, ValidationError

from cockpithat.contract.base import WireModel
from stream.settings import ConfigurationError, LogSettings

# Text fields (``extra=``) whose values are ours, the operator's or the broker's, never a trace's.
TEXT_FIELDS: Final = frozenset(
    {"cause", "check", "config_digest", "detail", "error", "group_id", "hint", "host", "method", "reason"}
    | {"report_id", "role", "signal", "stage", "state", "status", "topic", "topics", "trace_id", "url"}
    | {"version"}
)
# Loggers whose text arguments are written: librdkafka speaks of brokers and connections only.
_TRUSTED_LOGGERS: Final = frozenset({"librdkafka"})
# Libraries that log each try: a broker that is away gave a hundred lines a second.
_CLIENTS: Final = frozenset({"aiokafka", "faust", "httpx", "librdkafka", "mode"})
_REPEAT_S: Final = 30.0
_REPEATS_KNOWN: Final = 256
_MAX_TEXT: Final = 500
_MAX_FRAMES: Final = 12
_NUMBER = re.compile(r"\d+")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logging of the process to ``stream`` (standard error) in the chosen format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    if settings.level.upper() != "DEBUG":
        handler.addFilter(Repeats())
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    # Lines a request of the panel, and each service that Faust starts or stops: at debug level only.
    quiet = logging.WARNING if root.level > logging.DEBUG else logging.DEBUG
    for library in ("httpx", "faust", "mode", "aiokafka"):
        logging.getLogger(library).setLevel(max(quiet, root.level))
    logging.captureWarnings(True)


class Repeats(logging.Filter):
    """Lets a message of a client library through once in 30 s; the next line says how many there were since.

    Messages that differ in numbers only are the same. What is critical always passes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: OrderedDict[tuple[str, int, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written; ``repeated`` counts those before it that were not."""
        if record.name.partition(".")[0] not in _CLIENTS or record.levelno >= logging.CRITICAL:
            return True
        key = (record.name, record.levelno, _NUMBER.sub("0", message(record)))
        now = self._clock()
        last, repeated = self._seen.get(key, (None, 0))
        if last is not None and now - last < _REPEAT_S:
            self._seen[key] = (last, repeated + 1)
            return False
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > _REPEATS_KNOWN:
            self._seen.popitem(last=False)
        if repeated:
            record.repeated = repeated
        return True


def describe(error: BaseException) -> str:
    """An exception without payload: its type, what is known to be safe of its message, and its place.

    Of pydantic's errors: the model, and for each mistake the field and the kind of mistake.
    """
    name = type(error).__name__
    if isinstance(error, ValidationError):
        return f"{name}: {validation_detail(error)}"
    if isinstance(error, ConfigurationError):
        return f"{name}: {error}"[:_MAX_TEXT]
    if isinstance(error, UnicodeError):
        return name
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"[:_MAX_TEXT]
    if isinstance(error, json.JSONDecodeError):
        return f"{name}: {error.msg} at position {error.pos}"
    if type(error).__module__.partition(".")[0] in {"cimpl", "confluent_kafka"}:
        return f"{name}: {error}"[:_MAX_TEXT]
    return name


def validation_detail(error: ValidationError, limit: int = 3) -> str:
    """Field and kind of each mistake, such as ``roster.0.name: string_too_short``; never the input.

    A place that is not a field of the contract (a key of a free-form object) is payload too and is
    written as ``*``.
    """
    items = error.errors(include_input=False, include_url=False, include_context=False)
    known = _contract_names()
    shown = []
    for item in items[:limit]:
        parts = (str(part) if isinstance(part, int) or part in known else "*" for part in item["loc"])
        shown.append(f"{'.'.join(parts) or 'record'}: {item['type']}")
    more = f"; {len(items) - limit} more" if len(items) > limit else ""
    return "; ".join(shown) + more


@cache
def _contract_names() -> frozenset[str]:
    """Names of all fields of the contract, and the tags of its unions."""
    names: set[str] = set()
    models: list[type[BaseModel]] = [WireModel]
    while models:
        model = models.pop()
        models.extend(model.__subclasses__())
        for name, field in model.model_fields.items():
            names.add(name)
            if name == "type" and isinstance(field.default, str):
                names.add(field.default)
        names.add(model.__name__)
    return frozenset(names)


def _safe(value: Any, depth: int = 0) -> Any:
    """``value`` if its type cannot carry trace text, else the name of its type."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseException):
        return describe(value)
    if isinstance(value, (set, frozenset, list, tuple)) and depth < 2:
        if hasattr(value, "topic") and hasattr(value, "partition"):
            return f"{value.topic}-{value.partition}"  # a TopicPartition of Faust or aiokafka
        return [_safe(item, depth + 1) for item in list(value)[:100]]
    return f"<{type(value).__name__}>"


def _text_field(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_text_field(item) for item in list(value)[:100]]
    if isinstance(value, Mapping):
        return {str(key)[:100]: _text_field(item) for key, item in list(value.items())[:100]}
    return _safe(value)


def message(record: logging.LogRecord) -> str:
    """The record's message with only safe arguments filled in."""
    if not isinstance(record.msg, str):
        return str(_safe(record.msg))
    if not record.args:
        return record.msg[:_MAX_TEXT]
    if record.name in _TRUSTED_LOGGERS:
        return record.getMessage()[:_MAX_TEXT]
    args: Any = record.args
    safe: Any
    if isinstance(args, Mapping):
        # logging unpacks a single dictionary; its keys are only ours if the template names them.
        named = "%(" in record.msg
        safe = {key: _safe(value) for key, value in args.items()} if named else (_safe(args),)
    else:
        safe = tuple(map(_safe, args))
    try:
        return str(record.msg % safe)[:_MAX_TEXT]
    except (TypeError, ValueError, KeyError):
        return record.msg[:_MAX_TEXT]  # a template that wants a number where the text was taken out


def event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The structured fields of a record: what was passed as ``extra`` and what was raised."""
    fields: dict[str, Any] = {}
    for name, value in vars(record).items():
        if name not in _STANDARD and not name.startswith("_"):
            fields[name] = _text_field(value) if name in TEXT_FIELDS else _safe(value)
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = describe(error)
        frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
        fields["trace"] = [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        if error.__cause__ is not None:
            fields["cause"] = describe(error.__cause__)
    return fields


def _timestamp(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{moment}.{int(record.msecs):03d}Z"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``ts``, ``level``, ``logger``, ``event`` and the structured fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            **event_fields(record),
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": message(record),
        }
        return json.dumps(line, ensure_ascii=True, default=lambda value: f"<{type(value).__name__}>")


class TextFormatter(logging.Formatter):
    """The same for a person at a terminal. Control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={json.dumps(value)}" for name, value in event_fields(record).items())
        text = f"{_timestamp(record)} {record.levelname.lower():7} {record.name}: {message(record)} {fields}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text).rstrip()
