"""What every evidence detector is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cockpithat.analysis.clues import Clue
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView


class Detector(Protocol):
    """Finds clues of its own kinds. Linear in the trace; works on whatever channels the trace has."""

    name: str

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterable[Clue]:
        """Clues in step order. ``hazards`` is what the rules found in the same trace."""
        ...
