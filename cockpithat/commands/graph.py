"""One session of a file as its dependency graph: JSON, Graphviz dot, or a page that stands by itself.

With a report the verdict's step is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.formats import FormatError
from cockpithat.graph.render import to_dot, to_html, to_json

RENDERERS: dict[str, Callable[[Trace, Report | None], str]] = {
    "json": to_json,
    "dot": to_dot,
    "html": to_html,
}
_SHOWN = 10


def choose_session(path: Path, traces: Iterable[Trace], session: str | None) -> Trace:
    """The wanted session, or the only one. Raises ``FormatError`` naming those there are."""
    found: list[str] = []
    only: Trace | None = None
    for trace in traces:
        if session is not None and trace.session_id == session:
            return trace
        only = trace
        found.append(trace.session_id)
    if only is None:
        raise FormatError(path, "", "holds no session", "give a file with at least one")
    if session is None and len(found) == 1:
        return only
    listed = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    if session is None:
        raise FormatError(path, "", f"holds {len(found)} sessions", f"choose one with --session: {listed}")
    raise FormatError(path, "", f"holds no session {session!r}", f"choose one of: {listed}")
