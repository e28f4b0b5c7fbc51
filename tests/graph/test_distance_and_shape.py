"""Distances, layers, and when slicing goes by position."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from cockpithat.contract.trace import Edge, EdgeEvidence, Signal, TraceGraph
from cockpithat.graph import (
    Distances,
    build_graph,
    distances,
    graph_shape,
    layer,
    positional_fallback,
    to_networkx,
)
from tests.graph.making import random_steps


def graph(*pairs: tuple[int, int]) -> TraceGraph:
    evidence = (EdgeEvidence(signal=Signal.CONTROL, what="x"),)
    return TraceGraph(edges=tuple(Edge(source=a, target=b, evidence=evidence) for a, b in pairs))


def chain(n: int) -> TraceGraph:
    return graph(*[(i, i + 1) for i in range(n - 1)])


def test_distance_is_undirected_and_ends_at_five() -> None:
    assert distances(chain(8), 8, 1) == [1, 0, 1, 2, 3, 4, 5, None]


def test_far_in_time_but_linked_is_near_and_next_in_time_but_unlinked_is_not() -> None:
    assert distances(graph((0, 9)), 10, 0) == [0, *[None] * 8, 1]


def test_layers_are_the_papers() -> None:
    assert [layer(d) for d in (0, 1, 2, 3, 4, 5, None)] == [1, 1, 2, 3, 3, 4, 4]
    assert Distances(chain(8), 8).layers(0) == (1, 1, 2, 3, 3, 4, 4, 4)


def test_all_pairs_agree_with_networkx() -> None:
    rng = random.Random(5)
    for _ in range(20):
        n = rng.randint(1, 60)
        wire = build_graph(random_steps(rng, n))
        known = dict(nx.all_pairs_shortest_path_length(to_networkx(wire, n).to_undirected(), cutoff=5))
        for focal, row in enumerate(Distances(wire, n)):
            assert row == tuple(known[focal].get(other) for other in range(n))


def test_rows_are_computed_when_asked_for_and_once() -> None:
    all_pairs = Distances(chain(6), 6)
    assert all_pairs.of(2) is all_pairs.of(2)
    assert all_pairs.between(5, 0) == 5
    assert all_pairs.between(0, 5) == all_pairs.between(5, 0)


def test_networkx_carries_signals_and_evidence() -> None:
    out = to_networkx(graph((0, 2)), 3)
    assert nx.is_directed_acyclic_graph(out)
    assert list(out.nodes) == [0, 1, 2]
    assert out.edges[0, 2] == {"signals": ["control"], "evidence": ["x"]}


@pytest.mark.parametrize("pair", [(0, 3), (2, 1), (1, 1), (-1, 2)])
def test_an_edge_that_does_not_fit_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"does not fit a trace of 3 steps"):
        Distances(graph(pair), 3)


def test_a_focal_step_outside_the_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="step 3 does not exist: the trace has 3 steps"):
        distances(chain(3), 3, 3)


def test_a_chain_is_near_linear() -> None:
    shape = graph_shape(chain(20), 20)
    assert (shape.edges, shape.adjacent_share, shape.connected_share, shape.isolated_share) == (
        19,
        1.0,
        1.0,
        0.0,
    )
    assert shape.near_linear
    assert positional_fallback(chain(20), 20)


def test_a_rich_graph_is_not() -> None:
    rich = graph(*[(i, i + 1) for i in range(19)], *[(i, i + 5) for i in range(15)])
    assert not positional_fallback(rich, 20)


def test_a_sparse_graph_of_long_edges_is_not_near_linear() -> None:
    assert not positional_fallback(graph(*[(0, i) for i in range(1, 20)]), 20)


def test_a_graph_in_pieces_falls_back_because_most_distances_do_not_exist() -> None:
    pieces = graph((0, 2), (5, 7), (10, 12))
    assert not graph_shape(pieces, 20).near_linear
    assert positional_fallback(pieces, 20)
    assert positional_fallback(TraceGraph(), 5)


def test_a_trace_of_one_step_or_none() -> None:
    assert distances(TraceGraph(), 1, 0) == [0]
    assert graph_shape(TraceGraph(), 0).connected_share == 0.0
