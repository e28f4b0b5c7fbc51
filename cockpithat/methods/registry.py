"""The one registry of attribution methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.methods.baselines import LongestStep, MostCharacters, RandomGuess
from cockpithat.panel.method import PanelAttribution


class Method(Protocol):
    """A method with the analysts it runs on. Local ones also have ``judge``, the same without await."""

    name: str
    analysts: str

    async def attribute(self, trace: Trace) -> Report:
        """The report of one trace."""
        ...


Factory = Callable[[AttributionSettings], Method]

_METHODS: dict[tuple[str, str], Factory] = {}


class UnknownMethodError(ValueError):
    """No such method; says which there are."""


def register(name: str, analysts: str, factory: Factory) -> None:
    """Adds a method. Raises ``ValueError`` if the pair is taken: two modules would shadow each other."""
    if (name, analysts) in _METHODS:
        raise ValueError(f"method {name!r} with analysts {analysts!r} is registered already")
    _METHODS[name, analysts] = factory


def names() -> tuple[tuple[str, str], ...]:
    """Every ``(method, analysts)`` pair, in order of registration."""
    return tuple(_METHODS)


def create(name: str, analysts: str = "local", settings: AttributionSettings | None = None) -> Method:
    """A method by name. Raises :class:`UnknownMethodError`, and what the method's settings raise."""
    factory = _METHODS.get((name, analysts))
    if factory is None:
        known = ", ".join(f"{method} ({kind})" for method, kind in _METHODS)
        raise UnknownMethodError(f"no method {name!r} with analysts {analysts!r}; choose one of: {known}")
    return factory(settings or AttributionSettings())


register(LocalAttribution.name, LocalAttribution.analysts, LocalAttribution)
register(PanelAttribution.name, PanelAttribution.analysts, PanelAttribution)
for _baseline in (RandomGuess, LongestStep, MostCharacters):
    register(_baseline.name, _baseline.analysts, _baseline)
