"""CockpitHAT: which agent of a car cockpit failed, at which step, how badly, on what evidence."""

from cockpithat._version import __version__

__all__ = ["__version__"]
