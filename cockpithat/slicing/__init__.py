"""Dependency-distance hierarchical slicing (paper, section 3.2) and the one prompt text that carries it."""

from cockpithat.slicing.context import SharedContext, build_context
from cockpithat.slicing.index import Layering, MembershipIndex, build_index, recover_index
from cockpithat.slicing.settings import SlicingSettings

__all__ = [
    "Layering",
    "MembershipIndex",
    "SharedContext",
    "SlicingSettings",
    "build_context",
    "build_index",
    "recover_index",
]
