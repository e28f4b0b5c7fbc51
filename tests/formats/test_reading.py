"""Whatever the bytes are, a broken file gets one line: what, where, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpithat.formats import FormatError, load_recordings
from cockpithat.formats.reading import read_document

START = {
    "type": "session_start",
    "event_id": "e0",
    "vehicle_id": "v",
    "session_id": "s",
    "seq": 0,
    "ts": 1_700_000_000_000,
}
LATIN1 = '{"history": [{"role": "a",\n"content": "Straße"}]}'.encode("latin-1")


def refused(path: Path) -> FormatError:
    """The error of a file that must be refused, checked to be one printable line that names the file."""
    with pytest.raises(FormatError) as caught:
        list(load_recordings(path))
    text = str(caught.value)
    assert str(path) in text
    assert text.isprintable()
    assert len(text) < len(str(path)) + 800
    return caught.value


@pytest.mark.parametrize(
    ("name", "content", "place", "what"),
    [
        ("empty.json", b"", "", "is empty"),
        ("blank.jsonl", b" \n\t\n", "", "is empty"),
        ("binary.json", b"\x7fELF\x00\x01\x02", "", "binary"),
        ("utf16.json", '{"a": 1}'.encode("utf-16"), "", "UTF-16"),
        (
            "latin1.json",
            '{"history": [{"role": "a",\n"content": "Straße"}]}'.encode("latin-1"),
            "line 2",
            "UTF-8",
        ),
        ("cut.json", b'{"history": [{"role": "a"', "line 1", "cut off"),
        ("nan.json", b'{"history": [], "level": NaN}', "line 1", "NaN and Infinity are not JSON"),
        ("surrogate.json", b'{"history": [{"role": "a", "content": "\\ud83d"}]}', "line 1", "surrogate"),
        ("huge.json", b'{"history": [], "x": ' + b"9" * 5000 + b"}", "line 1", "too large"),
        ("deep.json", b'{"history": ' + b"[" * 5000 + b"]" * 5000 + b"}", "line 1", "deep"),
        ("deeper.json", b'{"history": ' + b"[" * 500 + b"]" * 500 + b"}", "", "nested more than 100 levels"),
        ("words.txt", b"once upon a time", "line 1", "not valid JSON"),
        ("number.json", b"42", "", "none of the known formats"),
        ("other.json", b'{"temperature": 20}', "", "none of the known formats"),
        ("bad.yaml", b"scenario: [1, 2", "line 1", "not valid YAML"),
        ("bomb.yaml", b"a: &a [1]\nscenario: *a\nsteps: []", "line 2", "aliases"),
        ("deep.yaml", b"[" * 20_000, "", "nested too deeply"),
    ],
)
def test_broken_files_say_what_is_wrong_and_where(
    tmp_path: Path, name: str, content: bytes, place: str, what: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = refused(path)
    assert what in str(error)
    assert error.place.startswith(place)
    assert error.what_to_do


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in str(refused(tmp_path / "absent.json"))
    assert "is a directory" in str(refused(tmp_path))


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"history": [{"role": "human", "content": "hi"}]}).encode())
    (recording,) = load_recordings(path)
    assert len(recording.events) == 3


def test_the_broken_line_of_json_lines_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(START) + "\n\n" + '{"type": "step", "seq": 1\n', encoding="utf-8")
    assert refused(path).place.startswith("line 3")


def test_a_broken_first_line_does_not_hide_that_the_file_is_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type": session_start}\n' + json.dumps(START) + "\n", encoding="utf-8")
    assert refused(path).place.startswith("line 1")


def test_a_pretty_printed_object_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "pretty.json"
    path.write_text(json.dumps({"history": []}, indent=2), encoding="utf-8")
    document = read_document(path)
    assert document.syntax == "json"


def test_control_codes_in_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.jsonl"
    path.write_text(json.dumps({"type": "step\x1b[2J\u202e"}) + "\n" + json.dumps(START), encoding="utf-8")
    refused(path)


def test_yaml_words_that_look_like_booleans_or_times_stay_words(tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text("a: off\nb: 12:30\nc: 2026-01-01\nd: true\ne: 5\nf: -1.5\ng: ~\nh:\n", encoding="utf-8")
    assert read_document(path).values[0] == {
        "a": "off", "b": "12:30", "c": "2026-01-01", "d": True, "e": 5, "f": -1.5, "g": None, "h": None,
    }  # fmt: skip
