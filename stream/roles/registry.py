"""The roles a worker can take. A new one registers itself here and is named in ``worker.roles``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stream.context import WorkerContext
from stream.roles.base import Role
from stream.settings import ConfigurationError

Factory = Callable[[WorkerContext], Role]

_FACTORIES: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make a role known. A name is taken once."""
    if name in _FACTORIES:
        raise ValueError(f"role {name!r} is registered twice")
    _FACTORIES[name] = factory


def names() -> tuple[str, ...]:
    """All roles that are known."""
    return tuple(sorted(_FACTORIES))


def build(wanted: Iterable[str], context: WorkerContext) -> list[Role]:
    """The wanted roles. Raises :class:`ConfigurationError` for a name that is not known."""
    roles = []
    for name in dict.fromkeys(wanted):
        if name not in _FACTORIES:
            raise ConfigurationError(
                f"worker.roles: no role {name!r}; known are {', '.join(names())} (COCKPITHAT_WORKER__ROLES)"
            )
        roles.append(_FACTORIES[name](context))
    return roles
