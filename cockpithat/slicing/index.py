"""Layer membership for every focal step, kept once for all of them, and read back from a prompt.

A context for every step is quadratic if written out. What differs between two contexts is only which layer
each step is in, and that follows from the edges, a rule and the flags; so a prompt holds each step once,
with the edges that end in it, and :func:`recover_index` gets every membership back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cockpithat.channels.promotion import promoted
from cockpithat.channels.tags import Tag
from cockpithat.contract.trace import Edge, Trace, TraceGraph
from cockpithat.graph.builder import build_graph
from cockpithat.graph.distance import Distances
from cockpithat.graph.distance import layer as layer_of
from cockpithat.graph.shape import positional_fallback
from cockpithat.slicing.settings import SliceMode


class Layering(StrEnum):
    """The rule that turns a pair of steps into a layer."""

    FIXED = "fixed"  # offset 1; nothing else is in the context
    ECHO = "positional"  # offsets 1, 2 to 3, 4 to 6, further (ECHO)
    LINEAR = "linear"  # offsets with the dependency rule's bounds, where the graph is near-linear
    DEPENDENCY = "dependency"  # distances 1, 2, 3 to 4, further (section 3.2)


LEGEND: Mapping[Layering, str] = {
    Layering.FIXED: "a step's context is itself and the steps directly before and after it",
    Layering.ECHO: "a step's context by offset: L1 up to 1, L2 up to 3, L3 up to 6, L4 further",
    Layering.LINEAR: "a step's context by offset: L1 up to 1, L2 at 2, L3 up to 4, L4 further",
    Layering.DEPENDENCY: "a step's context by hops along the arrows, either way: L1 up to 1, L2 at 2, "
    "L3 up to 4, L4 further",
}


def _echo_layer(offset: int) -> int:
    return 1 if offset <= 1 else 2 if offset <= 3 else 3 if offset <= 6 else 4


@dataclass(frozen=True, slots=True)
class MembershipIndex:
    """Everything layer membership depends on: number of steps, rule, edges and flags."""

    steps: int
    layering: Layering
    edges: frozenset[tuple[int, int]] = frozenset()
    flags: Mapping[int, Tag] = field(default_factory=dict)

    def layers(self, focal: int) -> list[int | None]:
        """Layer of every step in the context of ``focal``; ``None`` where it is not in that context."""
        return self._layers(focal, self._distances())

    def all_layers(self) -> list[list[int | None]]:
        """:meth:`layers` for every focal step."""
        found = self._distances()
        return [self._layers(focal, found) for focal in range(self.steps)]

    def _layers(self, focal: int, found: Distances) -> list[int | None]:
        plain: list[int | None]
        if self.layering == Layering.DEPENDENCY:
            plain = [layer_of(distance) for distance in found.of(focal)]
        elif self.layering == Layering.LINEAR:
            plain = [layer_of(abs(step - focal)) for step in range(self.steps)]
        elif self.layering == Layering.ECHO:
            plain = [_echo_layer(abs(step - focal)) for step in range(self.steps)]
        else:
            plain = [1 if abs(step - focal) <= 1 else None for step in range(self.steps)]
        return [
            layer if layer is None else promoted(layer, self.flags.get(step))
            for step, layer in enumerate(plain)
        ]

    def sources(self) -> list[list[int]]:
        """For each step the steps it depends on, ascending."""
        found: list[list[int]] = [[] for _ in range(self.steps)]
        for source, target in sorted(self.edges):
            found[target].append(source)
        return found

    def _distances(self) -> Distances:
        edges = tuple(Edge(source=s, target=t, evidence=()) for s, t in sorted(self.edges))
        return Distances(TraceGraph(edges=edges), self.steps)


def build_index(trace: Trace, mode: SliceMode, flags: Mapping[int, Tag] | None = None) -> MembershipIndex:
    """The index of a trace. Its graph is used if it carries one, else built.

    With ``dependency`` a near-linear graph falls back to offsets: there distance and offset say the same, and
    a graph with hardly an edge says nothing.
    """
    n, flags = len(trace.steps), dict(flags or {})
    if mode == SliceMode.FIXED:
        return MembershipIndex(n, Layering.FIXED, flags=flags)
    if mode == SliceMode.POSITIONAL:
        return MembershipIndex(n, Layering.ECHO, flags=flags)
    graph = trace.graph if trace.graph is not None else build_graph(trace.steps)
    if positional_fallback(graph, n):
        return MembershipIndex(n, Layering.LINEAR, flags=flags)
    edges = frozenset((edge.source, edge.target) for edge in graph.edges)
    return MembershipIndex(n, Layering.DEPENDENCY, edges, flags)


def write_numbers(numbers: Iterable[int]) -> str:
    """Ascending numbers with runs of three and more shortened: ``3,5-7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts: list[str] = []
    for first, last in runs:
        if last - first >= 2:
            parts.append(f"{first}-{last}")
        else:
            parts.extend(str(number) for number in range(first, last + 1))
    return ",".join(parts)


def read_numbers(text: str) -> list[int]:
    """Inverse of :func:`write_numbers`. Raises ``ValueError``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


_RULE_LINE = re.compile(r"^LAYERS (\w+) (\d+):", re.MULTILINE)
_STEP_LINE = re.compile(r"^@(\d+)(?: \[SALIENT:(\w+)\])?[^\n←]*(?:←([\d,-]+))?", re.MULTILINE)


def recover_index(prompt: str) -> MembershipIndex:
    """The index that a prompt carries: every layer membership of every focal step.

    Raises ``ValueError`` when the prompt holds no context of ours.
    """
    rule = _RULE_LINE.search(prompt)
    if rule is None:
        raise ValueError("the prompt holds no sliced context")
    n = int(rule[2])
    edges: set[tuple[int, int]] = set()
    flags: dict[int, Tag] = {}
    for match in _STEP_LINE.finditer(prompt, rule.end()):
        step = int(match[1])
        if match[2]:
            flags[step] = Tag(match[2])
        if match[3]:
            edges.update((source, step) for source in read_numbers(match[3]))
    return MembershipIndex(n, Layering(rule[1]), frozenset(edges), flags)
