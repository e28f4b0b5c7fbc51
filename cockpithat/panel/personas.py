"""Who sits on the panel: the safety analyst and three of six personas, the same for every run of a trace."""

from __future__ import annotations

import hashlib

from cockpithat.consensus import SAFETY_ANALYST

PERSONAS = ("conservative", "liberal", "detail", "pattern", "skeptical", "generalist")
SOLE_ANALYST = "generalist"
PANEL_SIZE = 4  # K of section 3.4


def draw(trace_id: str, size: int = PANEL_SIZE) -> tuple[str, ...]:
    """The panel of a trace: the safety analyst first, then ``size - 1`` personas without replacement.

    Each persona gets a number from a hash of trace and name and the lowest are taken. That is as good as a
    random draw over traces, and the same on every machine and in every Python version.
    """
    if not 1 <= size <= len(PERSONAS) + 1:
        raise ValueError(f"a panel has 1 to {len(PERSONAS) + 1} analysts, not {size}")
    ordered = sorted(PERSONAS, key=lambda name: hashlib.sha256(f"{trace_id}\0{name}".encode()).digest())
    return (SAFETY_ANALYST, *ordered[: size - 1])
