"""What the harness says when it cannot go on: one line with the remedy."""

from __future__ import annotations


class BenchError(Exception):
    """A data set, log or option that cannot be used. ``str()`` is one line fit for a terminal."""
