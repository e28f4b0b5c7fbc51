"""The one list of formats, and the one way to read a file in any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cockpithat.contract.trace import Trace
from cockpithat.formats.agentrx import AgentRx
from cockpithat.formats.assembly import assemble
from cockpithat.formats.base import Format, ReadOptions
from cockpithat.formats.cockpit import Cockpit
from cockpithat.formats.errors import FormatError
from cockpithat.formats.openai_chat import OpenAIChat
from cockpithat.formats.reading import Document, read_document
from cockpithat.formats.recording import Recording, recording_of
from cockpithat.formats.scenario import Scenario
from cockpithat.formats.whowhen import WhoWhen

AUTO = "auto"
FORMATS: dict[str, Format] = {
    known.name: known for known in (AgentRx(), Cockpit(), OpenAIChat(), Scenario(), WhoWhen())
}


def load(path: Path | str, format: str = AUTO, options: ReadOptions | None = None) -> Iterator[Trace]:
    """The traces of a file, in file order.

    ``format`` is a name in :data:`FORMATS` or ``auto``, which goes by content. Raises ``FormatError``
    when the file or a session in it cannot be read; traces before it have been yielded by then.
    """
    options = options or ReadOptions()
    for item in _read(Path(path), format, options):
        if isinstance(item, Trace):
            yield item
        else:
            yield from assemble(item, engine=options.engine, graph=options.graph, warn=options.warn)


def load_recordings(
    path: Path | str, format: str = AUTO, options: ReadOptions | None = None
) -> Iterator[Recording]:
    """As :func:`load`, but as session events and snapshots, for a replay."""
    for item in _read(Path(path), format, options or ReadOptions()):
        yield recording_of(item) if isinstance(item, Trace) else item


def detect(document: Document) -> Format:
    """The format a document's content is in. Raises ``FormatError`` if it is none that is known."""
    fitting = [known for known in FORMATS.values() if known.recognises(document)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(FORMATS)
    what = "fits several formats" if fitting else f"is in none of the known formats ({names})"
    raise document.error("", what, "name its format with --format, or see docs/formats.md")


def _read(path: Path, format: str, options: ReadOptions) -> Iterator[Recording | Trace]:
    document = read_document(path)
    if format == AUTO:
        chosen = detect(document)
    elif format in FORMATS:
        chosen = FORMATS[format]
    else:
        raise FormatError(path, "", f"unknown format {format!r}", f"use auto or one of {', '.join(FORMATS)}")
    try:
        yield from chosen.read(document, options)
    except RecursionError:
        raise FormatError(path, "", "is nested too deeply", "flatten it") from None
