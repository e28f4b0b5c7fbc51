"""The frame of every method here: settings, provenance, deadline, budget, fallback and the report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.reporting import provenance_of
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.consensus import decide
from cockpithat.contract.ids import report_id
from cockpithat.contract.reports import Hypothesis, Provenance, Report
from cockpithat.contract.trace import Trace
from cockpithat.graph import graph_of
from cockpithat.llm import CallRecord, ChatClient, Ledger, Role
from cockpithat.methods.case import FAILED, SYSTEM, Case
from cockpithat.methods.client import ClientHolder
from cockpithat.methods.finding import Finding, alone, report_of
from cockpithat.methods.options import BOUNDS, MethodOptions, ModelOptions
from cockpithat.panel.asking import Line
from cockpithat.panel.method import PanelNotConfiguredError
from cockpithat.panel.prompts import versions
from cockpithat.panel.refining import PRELIMINARY, NoVerdictError, Shortfall
from cockpithat.panel.review import with_reasons
from cockpithat.panel.settings import PanelSettings
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.render import StepText

log = logging.getLogger(__name__)

_ROLE_IDENTITY = {"base_url", "model", "temperature", "top_p", "max_output_tokens", "extra_body"}
_QUEUED = 10  # times the panel's deadline, for methods whose calls wait for each other

O_co = TypeVar("O_co", bound=MethodOptions, covariant=True)
M = TypeVar("M", bound=ModelOptions)


def panel_of(settings: AttributionSettings) -> PanelSettings:
    """The endpoints. Raises :class:`PanelNotConfiguredError`."""
    if settings.panel is None:
        raise PanelNotConfiguredError(
            "analysts 'llm' need an endpoint: set panel.llm.analyst.base_url and panel.llm.analyst.model in "
            "the attribution settings"
        )
    return settings.panel


def read_options(kind: type[O_co], options: O_co | Mapping[str, Any] | None) -> O_co:
    """Options as the method's own type. Raises pydantic's ``ValidationError``."""
    return options if isinstance(options, kind) else kind.model_validate(dict(options or {}))


def prepared(trace: Trace) -> Trace:
    """The trace with its graph."""
    return trace if trace.graph is not None else trace.model_copy(update={"graph": graph_of(trace)})


class LocalMethod(Generic[O_co]):
    """A method without a model: deterministic, no network, no key."""

    name: str
    analysts: str = "local"
    options_type: ClassVar[type[MethodOptions]] = MethodOptions

    def __init__(
        self, settings: AttributionSettings | None = None, options: O_co | Mapping[str, Any] | None = None
    ) -> None:
        """Raises ``RulesError``, and ``ValidationError`` from the options."""
        self.settings = settings or AttributionSettings()
        self.options: O_co = read_options(self.options_type, options)  # type: ignore[assignment]
        self.local = LocalAttribution(self.settings)
        self.provenance = provenance_of(
            self.settings,
            self.local.rules,
            method=self.name,
            options=self.identity(),
        )

    def identity(self) -> dict[str, Any]:
        """What of the options can change a verdict."""
        return self.options.model_dump(mode="json", exclude=set(BOUNDS))

    def find(self, examination: Examination) -> Finding:
        """The verdict on a trace with steps."""
        raise NotImplementedError

    def judge(self, trace: Trace) -> Report:
        """The report of one trace."""
        started = time.perf_counter()
        examination = self.local.examine(prepared(trace))
        if trace.steps:
            finding = self.find(examination)
        else:
            finding = Finding(decide([], settings=self.settings.consensus, floor=examination.floor))
        return report_of(
            examination,
            finding,
            method=self.name,
            analysts=self.analysts,
            provenance=self.provenance,
            settings=self.settings,
            seconds=time.perf_counter() - started,
        )

    async def attribute(self, trace: Trace) -> Report:
        """As :meth:`judge`."""
        return self.judge(trace)


class LlmMethod(Generic[M]):
    """A method that asks a model.

    Whatever the endpoint does, :meth:`attribute` gives a report: the method's, or the local analysts' under
    the method's id, marked ``degraded``. Only cancelling ends it without one. A stream uses
    :meth:`preliminary`, :meth:`verdict` and :meth:`degraded`, as of the panel.
    """

    name: str
    analysts: str = "llm"
    options_type: ClassVar[type[ModelOptions]] = ModelOptions
    prompts: ClassVar[tuple[str, ...]] = ()
    queued: ClassVar[bool] = False  # calls wait for each other, one by one
    takes_ground_truth: ClassVar[bool] = True

    def __init__(
        self,
        settings: AttributionSettings,
        options: M | Mapping[str, Any] | None = None,
        *,
        client: ChatClient | None = None,
    ) -> None:
        """Raises ``PanelNotConfiguredError``, ``RulesError``, and ``ValidationError`` from the options."""
        self.settings = settings
        self.panel = panel_of(settings)
        self.options: M = read_options(self.options_type, options)  # type: ignore[assignment]
        self.local = LocalAttribution(settings)
        self.clients = ClientHolder(self.panel.llm, client)
        self._provenance = {shown: self._make_provenance(shown) for shown in (False, True)}

    @property
    def role(self) -> Role:
        """Which endpoint is asked."""
        return Role.ANALYST

    @property
    def provenance(self) -> Provenance:
        """Provenance of reports made without the reference answer."""
        return self._provenance[False]

    def identity(self) -> dict[str, Any]:
        """What of the options can change a verdict; bounds of time and money are not part of it."""
        return self.options.model_dump(mode="json", exclude=set(BOUNDS))

    def _make_provenance(self, shown: bool) -> Provenance:
        configured = self.panel.llm.role(self.role)
        assert configured is not None
        more: dict[str, object] = {"ground_truth": True} if shown else {}
        provenance = provenance_of(
            self.settings,
            self.local.rules,
            prompts=versions([SYSTEM, "repair", *self.prompts]),
            models={self.role.value: configured.model},
            method=self.name,
            options=self.identity(),
            endpoint=configured.model_dump(mode="json", include=_ROLE_IDENTITY),
            **more,
        )
        return provenance.model_copy(update={"ground_truth_shown": shown})

    async def find(self, case: Case) -> Finding:
        """The verdict on a trace with steps. Raises what is in :data:`FAILED` when there can be none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the client's connections, if this object opened them."""
        await self.clients.close()

    @property
    def observe(self) -> Callable[[CallRecord], None] | None:
        """Told of every try of a call, by clients opened after it was set."""
        return self.clients.observe

    @observe.setter
    def observe(self, told: Callable[[CallRecord], None] | None) -> None:
        self.clients.observe = told

    def circuits(self) -> dict[Role, bool]:
        """Whether the endpoint is left alone after failures."""
        return self.clients.circuits([self.role])

    def _seconds(self) -> float:
        return self.options.seconds or self.panel.seconds * (_QUEUED if self.queued else 1)

    async def attribute(self, trace: Trace, *, ground_truth: str | None = None) -> Report:
        """The report of one trace.

        ``ground_truth`` is the task's reference answer, for benchmarks that show it to the judge; the
        report's provenance says so, and its id is another. Never set it elsewhere.
        """
        try:
            return await self.verdict(trace, ground_truth=ground_truth)
        except NoVerdictError as error:
            log.warning("%s; the local report goes out", error)
            provenance = self._provenance[ground_truth is not None]
            return await asyncio.to_thread(self._last_word, trace, error.shortfall, provenance)

    async def verdict(
        self, trace: Trace, *, ledger: Ledger | None = None, ground_truth: str | None = None
    ) -> Report:
        """The method's report; for a trace without steps the local one. Raises :class:`NoVerdictError`.

        ``ledger`` books the calls; one that holds earlier tries of the same trace adds them to the report.
        """
        started = time.monotonic()
        client = self.clients.here()
        ledger = Ledger() if ledger is None else ledger
        line = Line(client, ledger, client.deadline_in(self._seconds()))
        provenance = self._provenance[ground_truth is not None]
        if not trace.steps:
            local = await asyncio.to_thread(self.local.judge, trace)
            nothing = Shortfall("", tokens=ledger.tokens, cost=ledger.cost, seconds=since(started))
            return stand_in(local, self.name, provenance, None, nothing)
        case = await asyncio.to_thread(self._prepare, trace, line, ground_truth)
        try:
            finding = await self.find(case)
        except FAILED as error:
            reason = f"{self.name} has no verdict ({str(error)[:300]})"
            shortfall = Shortfall(reason, (), ledger.tokens, ledger.cost, since(started))
            raise NoVerdictError(shortfall, may_pass=error.may_pass) from error
        report = report_of(
            case.examination,
            finding,
            method=self.name,
            analysts=self.analysts,
            provenance=provenance,
            settings=self.settings,
            ledger=ledger,
            seconds=time.monotonic() - started,
        )
        return report.model_copy(update={"decided_by": "judge"})

    def preliminary(self, trace: Trace) -> Report:
        """The local report under this method's id, marked: the method's verdict follows."""
        local = self.local.judge(trace)
        return stand_in(local, self.name, self.provenance, PRELIMINARY, Shortfall(PRELIMINARY))

    def degraded(self, trace: Trace, shortfall: Shortfall) -> Report:
        """The local report under this method's id, marked with why there is no other verdict."""
        return self._last_word(trace, shortfall, self.provenance)

    def _last_word(self, trace: Trace, shortfall: Shortfall, provenance: Provenance) -> Report:
        report = stand_in(self.local.judge(trace), self.name, provenance, shortfall.reason, shortfall)
        return with_reasons(report, [f"degraded: {shortfall.reason}"])

    def _prepare(self, trace: Trace, line: Line, ground_truth: str | None) -> Case:
        trace = prepared(trace)
        return Case(
            trace,
            self.local.examine(trace),
            TraceFacts(trace),
            tuple(StepText(step) for step in trace.steps),
            line,
            self.role,
            ground_truth,
            self.options.trace_tokens,
        )

    def single(self, case: Case, hypothesis: Hypothesis, **more: Any) -> Finding:
        """The finding of one voice."""
        decision = alone(hypothesis, case.examination, self.settings, case.facts.supports)
        return Finding(decision, **more)


def since(started: float) -> float:
    """Seconds since ``started`` (``time.monotonic``)."""
    return round(time.monotonic() - started, 6)


def stand_in(
    local: Report, method: str, provenance: Provenance, degraded: str | None, spent: Shortfall
) -> Report:
    """The local report in a method's place, with what the method's tries cost."""
    return relabelled(
        local,
        method,
        provenance,
        seconds=spent.seconds or local.seconds or 0.0,
        degraded=degraded,
        decided_by="local",
        tokens=spent.tokens,
        cost=spent.cost,
        hypotheses=(*local.hypotheses, *spent.hypotheses),
    )


def relabelled(
    report: Report,
    method: str,
    provenance: Provenance,
    *,
    seconds: float,
    degraded: str | None = None,
    **more: object,
) -> Report:
    """A report under another method's name and id, as part of what that method did."""
    return report.model_copy(
        update={
            "report_id": report_id(report.trace_id, method, "llm", provenance.config_digest),
            "method": method,
            "analysts": "llm",
            "degraded": degraded,
            "seconds": round(seconds, 6),
            "provenance": provenance,
            **more,
        }
    )
