"""The one registry of attribution methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.methods.agentrx.method import AgentRx, LocalAgentRx
from cockpithat.methods.baselines import LongestStep, MostCharacters, RandomGuess
from cockpithat.methods.cascade import Cascade, CascadeOptions
from cockpithat.methods.chief import Chief
from cockpithat.methods.echo import Echo, LocalEcho
from cockpithat.methods.falat.llm_judge import Falat
from cockpithat.methods.falat.local_judge import LocalFalat
from cockpithat.methods.options import MethodOptions
from cockpithat.methods.who_when import AllAtOnce, BinarySearch, StepByStep
from cockpithat.panel.method import PanelAttribution


class Method(Protocol):
    """A method with the analysts it runs on. Local ones also have ``judge``, the same without await."""

    name: str
    analysts: str

    async def attribute(self, trace: Trace) -> Report:
        """The report of one trace."""
        ...


Factory = Callable[[AttributionSettings], Method]
Configurable = Callable[[AttributionSettings, Any], Method]

_METHODS: dict[tuple[str, str], Factory] = {}
_OPTIONS: dict[tuple[str, str], type[MethodOptions]] = {}


class UnknownMethodError(ValueError):
    """No such method; says which there are."""


class OptionError(ValueError):
    """An option that the method does not take, or not with this value."""


def register(name: str, analysts: str, factory: Factory) -> None:
    """Adds a method. Raises ``ValueError`` if the pair is taken: two modules would shadow each other."""
    if (name, analysts) in _METHODS:
        raise ValueError(f"method {name!r} with analysts {analysts!r} is registered already")
    _METHODS[name, analysts] = factory


def register_configurable(
    name: str, analysts: str, factory: Configurable, options: type[MethodOptions]
) -> None:
    """Adds a method that takes options as its second argument."""
    register(name, analysts, lambda settings: factory(settings, None))
    _CONFIGURABLE[name, analysts] = factory
    _OPTIONS[name, analysts] = options


_CONFIGURABLE: dict[tuple[str, str], Configurable] = {}


def names() -> tuple[tuple[str, str], ...]:
    """Every ``(method, analysts)`` pair, in order of registration."""
    return tuple(_METHODS)


def options_of(name: str, analysts: str) -> type[MethodOptions]:
    """The options a method takes, with their descriptions; those of a method without any are empty."""
    return _OPTIONS.get((name, analysts), MethodOptions)


def read_options(pairs: Iterable[str]) -> dict[str, str]:
    """Options written as ``name=value``. Raises :class:`OptionError` for one that is not."""
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name.strip() and equals):
            raise OptionError(f"option {pair!r} is not of the form NAME=VALUE")
        options[name.strip()] = value.strip()
    return options


def create(
    name: str,
    analysts: str = "local",
    settings: AttributionSettings | None = None,
    options: Mapping[str, Any] | None = None,
) -> Method:
    """A method by name, with options of its own where it has any.

    Raises :class:`UnknownMethodError`, :class:`OptionError`, and what the method's settings raise.
    """
    key = (name, analysts)
    factory = _METHODS.get(key)
    if factory is None:
        known = ", ".join(f"{method} ({kind})" for method, kind in _METHODS)
        raise UnknownMethodError(f"no method {name!r} with analysts {analysts!r}; choose one of: {known}")
    settings = settings or AttributionSettings()
    if not options:
        return factory(settings)
    kind = options_of(*key)
    try:
        read = kind.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        takes = ", ".join(kind.model_fields) or "no options"
        raise OptionError(f"method {name!r}, option {field!r}: {first['msg']}; it takes {takes}") from None
    return _CONFIGURABLE[key](settings, read)


def takes_ground_truth(method: Method) -> bool:
    """Whether ``attribute`` has the argument ``ground_truth``, for benchmarks that show the answer."""
    return getattr(method, "takes_ground_truth", False) is True


register(LocalAttribution.name, LocalAttribution.analysts, LocalAttribution)
register(PanelAttribution.name, PanelAttribution.analysts, PanelAttribution)
for _baseline in (RandomGuess, LongestStep, MostCharacters):
    register(_baseline.name, _baseline.analysts, _baseline)
for _method in (
    AllAtOnce,
    StepByStep,
    BinarySearch,
    Echo,
    LocalEcho,
    Chief,
    AgentRx,
    LocalAgentRx,
    Falat,
    LocalFalat,
):
    register_configurable(_method.name, _method.analysts, _method, _method.options_type)
register_configurable(Cascade.name, Cascade.analysts, Cascade, CascadeOptions)
