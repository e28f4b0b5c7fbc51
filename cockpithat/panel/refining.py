"""Methods whose verdict takes a network: a local report at once, theirs as a revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cockpithat.contract.reports import Hypothesis, Report, TokenUsage
from cockpithat.contract.trace import Trace
from cockpithat.llm import CallRecord, Ledger, Role

PRELIMINARY = "no model has answered yet; its verdict follows as a revision"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a method has no verdict on a trace, and what finding out took."""

    reason: str
    hypotheses: tuple[Hypothesis, ...] = ()  # of the analysts that did not answer
    tokens: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = None
    seconds: float = 0.0


class NoVerdictError(Exception):
    """The method has no verdict. ``may_pass``: asking again later may give one."""

    def __init__(self, shortfall: Shortfall, *, may_pass: bool) -> None:
        super().__init__(shortfall.reason)
        self.shortfall = shortfall
        self.may_pass = may_pass


@runtime_checkable
class Refiner(Protocol):
    """A method whose verdict can follow the local one under the same report id."""

    name: str
    analysts: str
    observe: Callable[[CallRecord], None] | None  # told of every try of a call, for metrics

    def preliminary(self, trace: Trace) -> Report:
        """The local report under this method's id, marked; pure computation."""
        ...

    def degraded(self, trace: Trace, shortfall: Shortfall) -> Report:
        """The same as the last word: it says why there is no other verdict; pure computation."""
        ...

    async def verdict(self, trace: Trace, *, ledger: Ledger | None = None) -> Report:
        """The method's own report. Calls are booked in ``ledger``. Raises :class:`NoVerdictError`."""
        ...

    def circuits(self) -> Mapping[Role, bool]:
        """Whether each role's endpoint is being left alone after failures."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
