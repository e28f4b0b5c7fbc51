"""Channel-aware promotion (section 3.3): what a flag does to a step's layer."""

from __future__ import annotations

from cockpithat.channels.tags import Tag


def promoted(layer: int, tag: Tag | None) -> int:
    """Layer of a step (1 to 4) after promotion.

    ``L_k`` becomes ``L_max(1, k-1)``; a safety violation goes to ``L_1`` whatever its distance; a step
    without a flag stays.
    """
    if tag is None:
        return layer
    return 1 if tag == Tag.SAFETY_VIOLATION else max(1, layer - 1)
