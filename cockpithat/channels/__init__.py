"""The embodied channel adapter (paper, section 3.3): which steps matter, and what is shown with them."""

from cockpithat.channels.promotion import promoted
from cockpithat.channels.tags import PI, Channel, Salience, Tag, is_embodied, tag_for

__all__ = ["PI", "Channel", "Salience", "Tag", "is_embodied", "promoted", "tag_for"]
