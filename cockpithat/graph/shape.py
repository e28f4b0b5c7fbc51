"""How dense a graph is, and whether slicing should go by position instead.

Paper, section 3.2: "When G is sparse and near-linear, dependency distance closely tracks positional
distance and the slicing degenerates gracefully to a positional layering." It gives no measure; these
are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cockpithat.contract.trace import TraceGraph

SPARSE_EDGES_PER_STEP: Final = 1.25
"""A chain of n steps has (n-1)/n edges per step; up to a quarter more counts as sparse."""

LINEAR_SHARE: Final = 0.75
"""Share of edges between neighbours in the trace from which a sparse graph counts as near-linear."""

CONNECTED_SHARE: Final = 0.5
"""Share of steps in the largest component below which distances say too little of the trace."""


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Figures of one graph. Shares are 0 to 1; those of edges are 0 where there are none."""

    steps: int
    edges: int
    edges_per_step: float
    adjacent_share: float  # edges between steps that follow each other
    connected_share: float  # steps in the largest component
    isolated_share: float  # steps without an edge

    @property
    def near_linear(self) -> bool:
        """Sparse, and most edges only say that one step follows the other."""
        return self.edges_per_step <= SPARSE_EDGES_PER_STEP and self.adjacent_share >= LINEAR_SHARE


def graph_shape(graph: TraceGraph, n: int) -> GraphShape:
    """Measure the graph of ``n`` steps."""
    parent = list(range(n))

    def root(step: int) -> int:
        while parent[step] != step:
            parent[step] = parent[parent[step]]
            step = parent[step]
        return step

    adjacent = 0
    touched: set[int] = set()
    for edge in graph.edges:
        adjacent += edge.target - edge.source == 1
        touched.update((edge.source, edge.target))
        parent[root(edge.target)] = root(edge.source)
    sizes: dict[int, int] = {}
    for step in range(n):
        sizes[root(step)] = sizes.get(root(step), 0) + 1
    edges = len(graph.edges)
    return GraphShape(
        steps=n,
        edges=edges,
        edges_per_step=edges / n if n else 0.0,
        adjacent_share=adjacent / edges if edges else 0.0,
        connected_share=max(sizes.values(), default=0) / n if n else 0.0,
        isolated_share=(n - len(touched)) / n if n else 0.0,
    )


def positional_fallback(graph: TraceGraph, n: int) -> bool:
    """Whether layers by position say as much as, or more than, layers by dependency.

    True for a near-linear graph (distance tracks position anyway), and for one so sparse that less
    than half of the steps hang together (most distances would not exist, and everything would land
    in the outermost layer).
    """
    shape = graph_shape(graph, n)
    return shape.near_linear or shape.connected_share < CONNECTED_SHARE
