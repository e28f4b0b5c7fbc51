"""A cost cascade: local first, one cheap judge where that is unsure, the panel where it still is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from cockpithat.analysis.reporting import provenance_of
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.analysis.support import CONCRETE
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Provenance, Report
from cockpithat.contract.trace import Trace
from cockpithat.llm import ChatClient, Ledger
from cockpithat.llm.errors import BudgetExhaustedError
from cockpithat.llm.limits import HourlyBudget
from cockpithat.methods.base import read_options
from cockpithat.methods.options import BOUNDS, ModelOptions
from cockpithat.methods.who_when import AllAtOnce
from cockpithat.panel.local_first import LocalFirst, since
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.refining import NoVerdictError
from cockpithat.panel.review import with_reasons
from cockpithat.panel.settings import PanelSettings

log = logging.getLogger(__name__)

NAME = "cascade"
_SEVERE = frozenset({Asil.C, Asil.D})
_PROMPT_TOKENS = 1_500  # task, roster, instructions and roles of one call, about
_ANSWER_TOKENS = 400  # of one analyst's answer, about
_DEFENCE_TOKENS = 1_600  # one analyst's part of the resolution round, about


class CascadeOptions(ModelOptions):
    """When the next, dearer stage is asked, and what all of it may cost."""

    local_confidence: float = Field(
        0.6, ge=0, le=1, description="Confidence from which the local verdict stands, if not contested"
    )
    judge_confidence: float = Field(
        0.7, ge=0, le=1, description="Confidence from which a judge that agrees with the local verdict stands"
    )
    judge_tokens: int = Field(4_000, ge=200, description="Log shown to the judge (approx-1)")
    hourly_tokens: int | None = Field(
        None, ge=1, description="Input and output tokens of all traces in any hour; none: unbounded"
    )


class Stage(StrEnum):
    """Who decided."""

    LOCAL = "local"
    JUDGE = "judge"
    PANEL = "panel"


def rests_on_evidence(report: Report) -> bool:
    """Whether a vote for the decided step cites evidence that is more than a hint."""
    return any(
        e.weight is None or e.weight >= CONCRETE
        for h in report.hypotheses
        if h.answered and h.step == report.step and (h.weight or 0.0) > 0
        for e in h.evidence
    )


def after_local(local: Report, options: CascadeOptions) -> Stage | None:
    """The next stage after the local verdict; ``None`` where it stands."""
    if local.severity.floor in _SEVERE:
        return Stage.PANEL
    sure = local.confidence >= options.local_confidence and not local.contested and rests_on_evidence(local)
    return None if sure else Stage.JUDGE


def judge_settles(local: Report, judged: Report, options: CascadeOptions) -> bool:
    """Whether the judge's verdict stands: sure, and in agreement with the local one on agent or step."""
    if judged.degraded is not None or judged.asil in _SEVERE or judged.agent is None:
        return False
    agrees = judged.step == local.step or (
        local.agent is not None and agent_key(local.agent) == agent_key(judged.agent)
    )
    return judged.confidence >= options.judge_confidence and agrees


def panel_cost(panel: PanelSettings) -> int:
    """Tokens that a panel takes at most, about: contexts, answers and one round of resolution."""
    bounds = panel.slicing
    per_analyst = bounds.agent_tokens + bounds.step_tokens + 2 * (_PROMPT_TOKENS + _ANSWER_TOKENS)
    return panel.size * (per_analyst + (_DEFENCE_TOKENS if panel.resolution else 0))


@dataclass
class _Spent:
    """What one trace cost so far, what could not be asked, and why a person should look."""

    ledger: Ledger
    stopped: str | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.ledger.tokens.input + self.ledger.tokens.output


class Cascade(LocalFirst):
    """Local analysts, a cheap judge and the panel, each asked only where the one before is unsure.

    The judge runs on the scanner's endpoint where there is one. A stage that would exceed a budget is not
    asked: the verdict so far goes out, marked ``degraded``. ``decided_by`` says whose verdict it is.
    """

    name = NAME

    def __init__(
        self,
        settings: AttributionSettings,
        options: CascadeOptions | Mapping[str, Any] | None = None,
        *,
        client: ChatClient | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ``PanelNotConfiguredError``, ``RulesError``, and ``ValidationError`` from the options."""
        super().__init__(settings, client)
        self.options = read_options(CascadeOptions, options)
        self._monotonic = monotonic
        self._budget = HourlyBudget(self.options.hourly_tokens)
        self._stages: tuple[ChatClient, AllAtOnce, PanelAttribution] | None = None

    def _make_provenance(self, **more: object) -> Provenance:
        judge, panel = self._judge(None).provenance, PanelAttribution(self.settings).provenance
        return provenance_of(
            self.settings,
            self.local.rules,
            prompts=judge.prompts | panel.prompts,
            models=judge.models | panel.models,
            method=NAME,
            options=self.options.model_dump(mode="json", exclude={*BOUNDS, "hourly_tokens"}),
            stages=[judge.config_digest, panel.config_digest],
            **more,
        )

    def _judge(self, client: ChatClient | None) -> AllAtOnce:
        shown = {"numbered": True, "log_tokens": self.options.judge_tokens, "model": "scanner"}
        return AllAtOnce(self.settings, {**shown, "seconds": self.options.seconds}, client=client)

    async def attribute(self, trace: Trace, *, ground_truth: str | None = None) -> Report:
        """The report of one trace; only cancelling ends it without one.

        ``ground_truth`` is the task's reference answer, for benchmarks that show it to judge and panel; the
        report's provenance says so, and its id is another. Never set it elsewhere.
        """
        return await self._run(trace, Ledger(), ground_truth, is_last_try=True)

    async def verdict(
        self, trace: Trace, *, ledger: Ledger | None = None, ground_truth: str | None = None
    ) -> Report:
        """As :meth:`attribute`; raises :class:`NoVerdictError` when a panel is due that may answer later."""
        own = Ledger() if ledger is None else ledger
        return await self._run(trace, own, ground_truth, is_last_try=False)

    async def _run(
        self, trace: Trace, ledger: Ledger, ground_truth: str | None, *, is_last_try: bool
    ) -> Report:
        started = time.monotonic()
        judge, panel = self._stages_here()
        spent = _Spent(ledger)
        report, stage = await asyncio.to_thread(self.local.judge, trace), Stage.LOCAL
        due = after_local(report, self.options) if trace.steps else None
        if due == Stage.JUDGE:
            judged = await self._judged(
                spent, lambda: judge.verdict(trace, ledger=ledger, ground_truth=ground_truth)
            )
            if spent.stopped is None:
                settled = judged is not None and judge_settles(report, judged, self.options)
                due = None if settled else Stage.PANEL
            if judged is not None:
                report, stage = judged, Stage.JUDGE
        if due == Stage.PANEL:
            try:
                ruled = await self._within_budget(
                    due,
                    panel_cost(self.panel),
                    spent,
                    lambda: panel.verdict(trace, ledger=ledger, ground_truth=ground_truth),
                )
            except NoVerdictError as error:
                if error.may_pass and not is_last_try:
                    raise
                ruled, spent.stopped = None, error.shortfall.reason
            if ruled is not None:
                if report.asil.rank > ruled.asil.rank:
                    spent.reasons.append(
                        f"the {stage.value} rated {report.asil.value}, the panel {ruled.asil.value}"
                    )
                report, stage = ruled, Stage.PANEL
        degraded = spent.stopped or report.degraded
        final = self._relabelled(
            report,
            self.provenance_for(ground_truth),
            seconds=since(started),
            degraded=degraded,
            tokens=ledger.tokens,
            cost=ledger.cost,
            decided_by=stage.value,
        )
        return with_reasons(final, [*([f"degraded: {degraded}"] if degraded else []), *spent.reasons])

    async def _judged(self, spent: _Spent, ask: Callable[[], Awaitable[Report]]) -> Report | None:
        """The judge's report; ``None`` when it has none, or may not be asked, which ``spent`` says."""
        try:
            return await self._within_budget(Stage.JUDGE, self._judge_cost(), spent, ask)
        except NoVerdictError:
            return None  # the panel is asked in its place

    def _stages_here(self) -> tuple[AllAtOnce, PanelAttribution]:
        """Judge and panel on the client of the running event loop, which they share."""
        client = self.clients.here()
        if self._stages is None or self._stages[0] is not client:
            panel = PanelAttribution(self.settings, client=client)
            self._stages = (client, self._judge(client), panel)
        return self._stages[1:]

    def _judge_cost(self) -> int:
        return self.options.judge_tokens + _PROMPT_TOKENS + 2 * _ANSWER_TOKENS

    async def _within_budget(
        self, stage: Stage, estimate: int, spent: _Spent, ask: Callable[[], Awaitable[Report]]
    ) -> Report | None:
        """A stage's report, or ``None`` with the reason noted when a budget does not allow it."""
        limit = self.options.trace_tokens
        if limit is not None and spent.tokens + estimate > limit:
            spent.stopped = (
                f"the {stage.value} was not asked: about {estimate} tokens needed, "
                f"{max(limit - spent.tokens, 0)} of the trace's {limit} left"
            )
            return None
        try:
            self._budget.reserve(estimate, self._monotonic())
        except BudgetExhaustedError as error:
            spent.stopped = f"the {stage.value} was not asked: {error}"
            return None
        before = spent.tokens
        try:
            return await ask()
        finally:
            self._budget.settle(estimate, spent.tokens - before, self._monotonic())
