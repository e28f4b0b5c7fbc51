"""Reads many files; a bad one is told about and does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cockpithat.contract.trace import Trace
from cockpithat.formats import AUTO, FormatError, ReadOptions, load, load_recordings
from cockpithat.formats.recording import Recording
from cockpithat.formats.state_map import load_state_map
from cockpithat.graph.settings import GraphSettings
from cockpithat.session.settings import EngineSettings


@dataclass(slots=True)
class Inputs:
    """Files to read and what came of it. ``tell`` hears one line for each thing a person must know."""

    files: Sequence[Path]
    format: str = AUTO
    state_map: Path | None = None
    tell: Callable[[str], None] = print
    engine: EngineSettings = field(default_factory=EngineSettings)
    graph: GraphSettings = field(default_factory=GraphSettings)
    failures: int = field(default=0, init=False)

    def options(self) -> ReadOptions:
        """Options for the readers. Raises ``FormatError`` for a map file that is none."""
        state_map = load_state_map(self.state_map) if self.state_map else None
        return ReadOptions(state_map=state_map, warn=self.tell, engine=self.engine, graph=self.graph)

    def traces(self, on_file: Callable[[Path], None] = lambda _: None) -> Iterator[tuple[Path, Trace]]:
        """Traces of all files in order; ``on_file`` is called when a file is done."""
        options = self.options()
        for path in self.files:
            try:
                for trace in load(path, self.format, options):
                    yield path, trace
            except FormatError as error:
                self.failures += 1
                self.tell(str(error))
            on_file(path)

    def recordings(self) -> Iterator[Recording]:
        """Events and snapshots of all files in order."""
        options = self.options()
        for path in self.files:
            try:
                yield from load_recordings(path, self.format, options)
            except FormatError as error:
                self.failures += 1
                self.tell(str(error))
