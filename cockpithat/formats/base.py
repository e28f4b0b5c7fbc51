"""What a format is, and what a caller may ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from cockpithat.contract.trace import Trace
from cockpithat.formats.reading import Document
from cockpithat.formats.recording import Recording
from cockpithat.formats.state_map import StateMap
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.settings import EngineSettings


def ignore_warning(message: str) -> None:
    """The default of :attr:`ReadOptions.warn`."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``state_map`` turns a source's own state fields into VSS; ``warn`` hears of what was put aside.

    ``engine`` and ``graph`` are those of the worker, so that a file is judged as its replay would be.
    """

    state_map: StateMap | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)
    graph: GraphSettings = field(default_factory=GraphSettings)
    warn: Callable[[str], None] = field(default=ignore_warning)


class Format(Protocol):
    """One kind of file. Gold labels in it are read by :mod:`cockpithat.labels` and by nothing here."""

    @property
    def name(self) -> str:
        """What ``--format`` calls it."""

    @property
    def summary(self) -> str:
        """One line for a list of formats."""

    def recognises(self, document: Document) -> bool:
        """Whether the content looks like this format; exact enough that no two formats say yes."""

    def read(self, document: Document, options: ReadOptions) -> Iterator[Recording | Trace]:
        """The sessions of the file in file order. Raises ``FormatError`` at the first one broken."""
