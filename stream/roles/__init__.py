"""The roles of a worker. Importing this package makes the shipped ones known to the registry."""

from stream.roles import assemble, attribute, decode
from stream.roles.registry import build, names, register

register(assemble.NAME, assemble.Assemble)
register(attribute.NAME, attribute.Attribute)
register(decode.NAME, decode.Decode)

__all__ = ["build", "names", "register"]
