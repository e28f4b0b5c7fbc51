"""What a reader says when a file cannot be read: one line with place, reason and remedy."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 300


class FormatError(Exception):
    """A file that cannot be read. ``str()`` is one line fit for a terminal.

    ``place`` is a line (``line 3``) or a JSON pointer (``/0/traj/4/role``), empty for the whole file.
    """

    def __init__(self, path: Path | str, place: str, what: str, what_to_do: str) -> None:
        self.path = str(path)
        self.place = place
        self.what = _one_line(what)
        self.what_to_do = _one_line(what_to_do)
        where = f"{self.path}: {place}" if place else self.path
        super().__init__(f"{where}: {self.what}; {self.what_to_do}")


def _one_line(text: str) -> str:
    """Printable, without line breaks or terminal control codes, and bounded: it may quote the file."""
    clean = "".join(character if character.isprintable() else " " for character in text[: _LONGEST * 2])
    clean = " ".join(clean.split())
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"
