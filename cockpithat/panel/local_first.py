"""What all methods with a model share: the local report goes in their place, or ahead of their verdict."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.ids import report_id
from cockpithat.contract.reports import Provenance, Report
from cockpithat.contract.trace import Trace
from cockpithat.llm import CallRecord, ChatClient, Ledger, Role
from cockpithat.llm.holder import ClientHolder
from cockpithat.panel.refining import PRELIMINARY, NoVerdictError, Shortfall
from cockpithat.panel.review import with_reasons
from cockpithat.panel.settings import PanelSettings

log = logging.getLogger(__name__)

ROLE_IDENTITY = frozenset({"base_url", "model", "temperature", "top_p", "max_output_tokens", "extra_body"})
"""What of an endpoint can change a verdict; bounds of time, money and traffic are not part of it."""


class PanelNotConfiguredError(ValueError):
    """The panel's endpoint is not set."""


def panel_of(settings: AttributionSettings) -> PanelSettings:
    """The endpoints. Raises :class:`PanelNotConfiguredError`."""
    if settings.panel is None:
        raise PanelNotConfiguredError(
            "analysts 'llm' need an endpoint: set panel.llm.analyst.base_url and panel.llm.analyst.model in "
            "the attribution settings"
        )
    return settings.panel


class LocalFirst:
    """Base of the methods with a model; with a ``verdict`` it is a ``Refiner``.

    Whatever the endpoint does, :meth:`attribute` gives a report: the method's, or the local analysts' marked
    ``degraded``. It has the same id either way, so that the verdict can follow as a revision: a stream uses
    :meth:`preliminary`, :meth:`verdict` and :meth:`degraded`. Only cancelling ends it without a report.
    """

    name: str
    analysts: str = "llm"
    takes_ground_truth: ClassVar[bool] = True

    def __init__(self, settings: AttributionSettings, client: ChatClient | None) -> None:
        """Raises :class:`PanelNotConfiguredError`, and ``RulesError`` from the rules."""
        self.settings = settings
        self.panel = panel_of(settings)
        self.local = LocalAttribution(settings)
        self.clients = ClientHolder(self.panel.llm, client)
        self._provenances: dict[bool, Provenance] = {}

    def _make_provenance(self, **more: object) -> Provenance:
        """The method's provenance; ``more`` goes into its configuration's digest."""
        raise NotImplementedError

    async def verdict(
        self, trace: Trace, *, ledger: Ledger | None = None, ground_truth: str | None = None
    ) -> Report:
        """The method's report; for a trace without steps the local one. Raises :class:`NoVerdictError`.

        ``ledger`` books the calls; one that holds earlier tries of the same trace adds them to the report.
        ``ground_truth`` as in :meth:`attribute`.
        """
        raise NotImplementedError

    @property
    def roles(self) -> Iterable[Role]:
        """The endpoints that are asked: all that are configured."""
        return [role for role in Role if self.panel.llm.role(role) is not None]

    @property
    def provenance(self) -> Provenance:
        """Provenance of reports made without the reference answer."""
        return self.provenance_for(None)

    def provenance_for(self, ground_truth: str | None) -> Provenance:
        """Provenance of reports made with or without the reference answer; their ids differ by it."""
        shown = ground_truth is not None
        if shown not in self._provenances:
            made = self._make_provenance(**({"ground_truth": True} if shown else {}))
            self._provenances[shown] = made.model_copy(update={"ground_truth_shown": shown})
        return self._provenances[shown]

    @property
    def observe(self) -> Callable[[CallRecord], None] | None:
        """Told of every try of a call, by clients opened after it was set."""
        return self.clients.observe

    @observe.setter
    def observe(self, told: Callable[[CallRecord], None] | None) -> None:
        self.clients.observe = told

    def circuits(self) -> dict[Role, bool]:
        """Whether each role's endpoint is left alone after failures."""
        return self.clients.circuits(self.roles)

    async def close(self) -> None:
        """Close the client's connections, if this object opened them."""
        await self.clients.close()

    async def attribute(self, trace: Trace, *, ground_truth: str | None = None) -> Report:
        """The report of one trace; see the class for what it is when there is no verdict.

        ``ground_truth`` is the task's reference answer, for benchmarks that show it to the judge; the
        report's provenance says so, and its id is another. Never set it elsewhere.
        """
        try:
            return await self.verdict(trace, ground_truth=ground_truth)
        except NoVerdictError as error:
            log.warning("the local report goes out in place of %s: %s", self.name, error)
            provenance = self.provenance_for(ground_truth)
            return await asyncio.to_thread(self._last_word, trace, error.shortfall, provenance)

    def preliminary(self, trace: Trace) -> Report:
        """The local report under this method's id, marked: the method's verdict follows."""
        return self._stand_in(trace, PRELIMINARY, Shortfall(PRELIMINARY), self.provenance)

    def degraded(self, trace: Trace, shortfall: Shortfall) -> Report:
        """The local report under this method's id, marked with why there is no other verdict."""
        return self._last_word(trace, shortfall, self.provenance)

    def _last_word(self, trace: Trace, shortfall: Shortfall, provenance: Provenance) -> Report:
        report = self._stand_in(trace, shortfall.reason, shortfall, provenance)
        return with_reasons(report, [f"degraded: {shortfall.reason}"])

    async def _without_steps(
        self, trace: Trace, ledger: Ledger, started: float, provenance: Provenance
    ) -> Report:
        """There is nothing to ask about: the local report, unmarked."""
        spent = Shortfall("", tokens=ledger.tokens, cost=ledger.cost, seconds=since(started))
        return await asyncio.to_thread(self._stand_in, trace, None, spent, provenance)

    def _stand_in(
        self, trace: Trace, degraded: str | None, spent: Shortfall, provenance: Provenance
    ) -> Report:
        """The local report in this method's place, with what its tries cost."""
        local = self.local.judge(trace)
        return self._relabelled(
            local,
            provenance,
            seconds=spent.seconds or local.seconds,
            degraded=degraded,
            decided_by="local",
            tokens=spent.tokens,
            cost=spent.cost,
            hypotheses=(*local.hypotheses, *spent.hypotheses),
        )

    def _relabelled(self, report: Report, provenance: Provenance, **more: object) -> Report:
        """A report under this method's name and id, as part of what the method did."""
        return report.model_copy(
            update={
                "report_id": report_id(report.trace_id, self.name, self.analysts, provenance.config_digest),
                "method": self.name,
                "analysts": self.analysts,
                "provenance": provenance,
                **more,
            }
        )


def since(started: float) -> float:
    """Seconds since ``started`` (``time.monotonic``)."""
    return round(time.monotonic() - started, 6)
