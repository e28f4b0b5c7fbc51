"""Dependency distances: undirected breadth-first search to depth 5 (paper, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cockpithat.contract.trace import TraceGraph

if TYPE_CHECKING:
    import networkx as nx

MAX_DEPTH: Final = 5


class Distances:
    """Distances of one graph. Adjacency is built once; a focal step's distances when first asked for."""

    def __init__(self, graph: TraceGraph, n: int, max_depth: int = MAX_DEPTH) -> None:
        """``n`` is the number of steps. Raises ``ValueError`` if an edge names a step outside it."""
        self.n = n
        self.max_depth = max_depth
        neighbours: list[dict[int, None]] = [{} for _ in range(n)]
        for edge in graph.edges:
            if not 0 <= edge.source < edge.target < n:
                raise ValueError(
                    f"graph edge {edge.source} -> {edge.target} does not fit a trace of {n} steps; "
                    "build it anew"
                )
            neighbours[edge.source][edge.target] = None
            neighbours[edge.target][edge.source] = None
        self.neighbours: tuple[tuple[int, ...], ...] = tuple(tuple(sorted(near)) for near in neighbours)
        self._known: dict[int, tuple[int | None, ...]] = {}

    def of(self, focal: int) -> tuple[int | None, ...]:
        """Distance of each step from ``focal``; ``None`` beyond ``max_depth`` or unreachable."""
        if not 0 <= focal < self.n:
            raise ValueError(f"step {focal} does not exist: the trace has {self.n} steps")
        known = self._known.get(focal)
        if known is None:
            known = self._known[focal] = self._search(focal)
        return known

    def between(self, first: int, second: int) -> int | None:
        """Distance of two steps, ``None`` beyond ``max_depth`` or unreachable."""
        return self.of(first)[second]

    def layers(self, focal: int) -> tuple[int, ...]:
        """Layer 1 to 4 of each step in the context of ``focal``."""
        return tuple(layer(distance) for distance in self.of(focal))

    def __iter__(self) -> Iterator[tuple[int | None, ...]]:
        """All pairs, one focal step after the other, each computed when its turn comes."""
        return (self.of(focal) for focal in range(self.n))

    def _search(self, focal: int) -> tuple[int | None, ...]:
        found: list[int | None] = [None] * self.n
        found[focal] = 0
        frontier = [focal]
        for depth in range(1, self.max_depth + 1):
            reached: list[int] = []
            for step in frontier:
                for near in self.neighbours[step]:
                    if found[near] is None:
                        found[near] = depth
                        reached.append(near)
            if not reached:
                break
            frontier = reached
        return tuple(found)


def distances(graph: TraceGraph, n: int, focal: int, max_depth: int = MAX_DEPTH) -> list[int | None]:
    """Distance of each of the ``n`` steps from ``focal``; ``None`` beyond ``max_depth`` or unreachable."""
    return list(Distances(graph, n, max_depth).of(focal))


def layer(distance: int | None) -> int:
    """Layer of a step by its distance from the focal one: 0, 1 to 1; 2 to 2; 3, 4 to 3; the rest to 4."""
    if distance is None or distance >= 5:
        return 4
    return (1, 1, 2, 3, 3)[distance]


def to_networkx(graph: TraceGraph, n: int) -> nx.DiGraph[int]:
    """The graph for other tools: nodes 0 to n-1, edges with lists ``signals`` and ``evidence``."""
    import networkx as nx  # here, because it takes longer to import than the rest of the package

    out: nx.DiGraph[int] = nx.DiGraph()
    out.add_nodes_from(range(n))
    for edge in graph.edges:
        out.add_edge(
            edge.source,
            edge.target,
            signals=[str(one.signal) for one in edge.evidence],
            evidence=[one.what for one in edge.evidence],
        )
    return out
