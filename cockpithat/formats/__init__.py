"""File formats: one module a format, one registry; labels in a file are read elsewhere."""

from cockpithat.formats.base import ReadOptions
from cockpithat.formats.errors import FormatError
from cockpithat.formats.registry import AUTO, FORMATS, load, load_recordings

__all__ = ["AUTO", "FORMATS", "FormatError", "ReadOptions", "load", "load_recordings"]
