"""The frame of every method here: settings, provenance, deadline, budget, fallback and the report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.reporting import provenance_of
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.consensus import decide
from cockpithat.contract.reports import Hypothesis, Provenance, Report
from cockpithat.contract.trace import Trace
from cockpithat.graph import graph_of
from cockpithat.llm import ChatClient, Ledger, Role
from cockpithat.methods.case import FAILED, SYSTEM, Case
from cockpithat.methods.finding import Finding, alone, report_of
from cockpithat.methods.options import BOUNDS, MethodOptions, ModelOptions
from cockpithat.panel.asking import Line
from cockpithat.panel.local_first import ROLE_IDENTITY, LocalFirst, since
from cockpithat.panel.prompts import versions
from cockpithat.panel.refining import NoVerdictError, Shortfall
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.render import StepText

_QUEUED = 10  # times the panel's deadline, for methods whose calls wait for each other

O_co = TypeVar("O_co", bound=MethodOptions, covariant=True)
M = TypeVar("M", bound=ModelOptions)


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


class LlmMethod(LocalFirst, Generic[M]):
    """A method that asks one model, with options of its own."""

    options_type: ClassVar[type[ModelOptions]] = ModelOptions
    prompts: ClassVar[tuple[str, ...]] = ()
    queued: ClassVar[bool] = False  # calls wait for each other, one by one

    def __init__(
        self,
        settings: AttributionSettings,
        options: M | Mapping[str, Any] | None = None,
        *,
        client: ChatClient | None = None,
    ) -> None:
        """Raises ``PanelNotConfiguredError``, ``RulesError``, and ``ValidationError`` from the options."""
        super().__init__(settings, client)
        self.options: M = read_options(self.options_type, options)  # type: ignore[assignment]

    @property
    def role(self) -> Role:
        """Which endpoint is asked."""
        return Role.ANALYST

    @property
    def roles(self) -> Iterable[Role]:
        """That endpoint alone."""
        return [self.role]

    def identity(self) -> dict[str, Any]:
        """What of the options can change a verdict; bounds of time and money are not part of it."""
        return self.options.model_dump(mode="json", exclude=set(BOUNDS))

    def _make_provenance(self, **more: object) -> Provenance:
        configured = self.panel.llm.role(self.role)
        assert configured is not None
        return provenance_of(
            self.settings,
            self.local.rules,
            prompts=versions([SYSTEM, "repair", *self.prompts]),
            models={self.role.value: configured.model},
            method=self.name,
            options=self.identity(),
            endpoint=configured.model_dump(mode="json", include=set(ROLE_IDENTITY)),
            **more,
        )

    async def find(self, case: Case) -> Finding:
        """The verdict on a trace with steps. Raises what is in :data:`FAILED` when there can be none."""
        raise NotImplementedError

    def _seconds(self) -> float:
        return self.options.seconds or self.panel.seconds * (_QUEUED if self.queued else 1)

    async def verdict(
        self, trace: Trace, *, ledger: Ledger | None = None, ground_truth: str | None = None
    ) -> Report:
        """As :meth:`LocalFirst.verdict`."""
        started = time.monotonic()
        client = self.clients.here()
        ledger = Ledger() if ledger is None else ledger
        line = Line(client, ledger, client.deadline_in(self._seconds()))
        provenance = self.provenance_for(ground_truth)
        if not trace.steps:
            return await self._without_steps(trace, ledger, started, provenance)
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
