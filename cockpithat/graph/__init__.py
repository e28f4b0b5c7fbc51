"""The dependency graph of a trace (paper, section 3.1), its distances and its pictures."""

from cockpithat.graph.builder import IncrementalGraph, StepLike, build_graph, graph_of
from cockpithat.graph.distance import Distances, distances, layer, to_networkx
from cockpithat.graph.settings import GraphSettings
from cockpithat.graph.shape import GraphShape, graph_shape, positional_fallback

__all__ = [
    "Distances",
    "GraphSettings",
    "GraphShape",
    "IncrementalGraph",
    "StepLike",
    "build_graph",
    "distances",
    "graph_of",
    "graph_shape",
    "layer",
    "positional_fallback",
    "to_networkx",
]
