"""Reads JSON, JSON Lines and YAML documents strictly, and says where a broken one is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from cockpithat.formats.errors import FormatError

MAX_FILE_BYTES = 2 * 1024**3
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
MAX_DEPTH = 100  # what every reader of our records, pydantic's included, gets through
_UTF8_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content: ``values`` are the lines of a JSON Lines file, or the one value of the others."""

    path: Path
    values: tuple[Any, ...]
    lines: tuple[int, ...]  # 1-based line of each value; empty when the file is one document
    syntax: str  # json, jsonl or yaml

    @property
    def is_lines(self) -> bool:
        """Whether the file is JSON Lines."""
        return self.syntax == "jsonl"

    @property
    def name(self) -> str:
        """The file's name as text: a name may be any bytes, but what is written is UTF-8."""
        return as_utf8(self.path.name)

    @property
    def stem(self) -> str:
        """The file's name as text, without its ending."""
        return as_utf8(self.path.stem)

    def place(self, position: int, pointer: str = "") -> str:
        """Words for a place inside the value at ``position``, for an error message."""
        if not self.is_lines:
            return pointer
        return f"line {self.lines[position]}" + (f", {pointer}" if pointer else "")

    def records(self) -> Iterator[tuple[str, Any]]:
        """The records in file order, each with its place: lines, or the items of a list, or the value."""
        if self.is_lines:
            for position, value in enumerate(self.values):
                yield self.place(position), value
        elif isinstance(self.values[0], list):
            for position, value in enumerate(self.values[0]):
                yield f"/{position}", value
        else:
            yield "", self.values[0]

    def error(self, place: str, what: str, what_to_do: str) -> FormatError:
        """A :class:`FormatError` about this file."""
        return FormatError(self.path, place, what, what_to_do)


def as_utf8(name: str) -> str:
    """A file's name with the bytes replaced that are not UTF-8, which Python keeps as lone surrogates."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_document(path: Path) -> Document:
    """Read a file whole. Raises :class:`FormatError`; no other exception, whatever the bytes are."""
    data = _read_bytes(path)
    if path.suffix.lower() in {".yaml", ".yml"}:
        return Document(path, (_parse_yaml(path, data),), (), "yaml")
    first_line, _, rest = data.lstrip(_BLANK).partition(b"\n")
    if rest.strip(_BLANK) and _is_complete_object(first_line):
        return _parse_lines(path, data)
    return Document(path, (_parse_json(path, data, None),), (), "json")


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise FormatError(path, "", "is a directory, not a file", "name the files in it")
        size = path.stat().st_size
        if path.is_file() and size > MAX_FILE_BYTES:
            raise FormatError(
                path, "", f"is {size} bytes, more than {MAX_FILE_BYTES}", "split it into smaller files"
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise FormatError(path, "", "no such file", "check the path") from None
    except PermissionError:
        raise FormatError(path, "", "may not be read", "check its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(path, "", f"cannot be read ({reason})", "check the path") from None
    if not data.strip(_BLANK):
        raise FormatError(path, "", "is empty", "give a file with at least one session")
    if data.startswith(_WIDE_BOMS):
        raise FormatError(path, "", "is UTF-16 or UTF-32 text", "convert it to UTF-8, for example with iconv")
    if b"\x00" in data[:8192]:
        raise FormatError(path, "", "is binary, not text", "give a JSON, JSON Lines or YAML file")
    data = data.removeprefix(_UTF8_BOM)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(
            path,
            f"line {line}",
            f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8",
            "convert the file to UTF-8, for example with iconv",
        ) from None
    return data


def _is_complete_object(line: bytes) -> bool:
    """Whether a first line is a JSON object by itself: then the file is JSON Lines."""
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        # A broken first line of JSON Lines still ends as an object does; a pretty-printed
        # document's first line does not.
        return line.rstrip(_BLANK).endswith(b"}")


def _parse_lines(path: Path, data: bytes) -> Document:
    values: list[Any] = []
    lines: list[int] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip(_BLANK):
            values.append(_parse_json(path, line, number))
            lines.append(number)
    return Document(path, tuple(values), tuple(lines), "jsonl")


def _parse_json(path: Path, data: bytes, line: int | None) -> Any:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(
            path,
            f"line {line if line is not None else error.lineno}, column {error.colno}",
            f"not valid JSON ({_reason(error, data)})",
            "repair the file at that place, or export it again",
        ) from None
    return _shallow(path, value, f"line {line}" if line is not None else "")


def is_deeper(value: Any, limit: int) -> bool:
    """Whether lists and objects nest in more than ``limit`` levels; needs no recursion itself."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _shallow(path: Path, value: Any, place: str) -> Any:
    if is_deeper(value, MAX_DEPTH):
        raise FormatError(path, place, f"is nested more than {MAX_DEPTH} levels deep", "flatten it")
    return value


def _reason(error: orjson.JSONDecodeError, data: bytes) -> str:
    """orjson's reason in words, with the ones named that people meet most."""
    text = error.msg
    if "unexpected end" in text:
        return "it ends in the middle of a value, so it may be cut off"
    if "surrogate" in text:
        return "a lone UTF-16 surrogate in a string"
    if "depth limit" in text:
        return "nested more than 1024 levels deep"
    if "infinity" in text:
        return "a number too large for a double"
    near = data.decode("utf-8", "replace")[error.pos : error.pos + 9]
    if near.startswith(("NaN", "Infinity", "-Infinity")):
        return "NaN and Infinity are not JSON"
    return text


class _PlainLoader(yaml.SafeLoader):
    """YAML with the scalars of version 1.2 (``off`` and ``12:30`` are text) and without aliases.

    Aliases can blow a small file up, and nothing written by hand here needs them.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(
                None,
                None,
                "aliases are not supported",
                event.start_mark,  # type: ignore[arg-type]
            )
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
):
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), [*_first.replace("\0", ""), ""]
    )


def _parse_yaml(path: Path, data: bytes) -> Any:
    try:
        return yaml.load(data.decode("utf-8"), Loader=_PlainLoader)
    except RecursionError:
        raise FormatError(path, "", "is nested too deeply", "flatten it") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise FormatError(
            path, place, f"not valid YAML ({error.problem or error.context})", "repair the file at that place"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise FormatError(path, "", f"not valid YAML ({error})", "repair the file") from None
