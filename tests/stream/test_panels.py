"""Panels in flight: bounded, patient with an outage, cancelled with their partition, and never silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpithat.attribution import AttributionSettings, LocalAttribution
from cockpithat.calibration.method import CalibrationSettings, RangePolicy, with_range
from cockpithat.calibration.model import CalibrationError, Ranked, calibrate, write_calibration
from cockpithat.contract.base import Asil, WireModel
from cockpithat.contract.reports import Alert, Report, ReviewRequest, SessionSummary
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.llm import CallRecord, Ledger, LlmSettings, Role, RoleSettings
from cockpithat.methods.registry import OptionError, create, names
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.refining import PRELIMINARY, NoVerdictError, Refiner, Shortfall
from cockpithat.panel.settings import PanelSettings
from cockpithat.resources import resource
from stream.context import WorkerContext
from stream.judging import Issuer, Judge, Judged, Stage, ranges, refiner
from stream.metrics import Metrics
from stream.panels import NO_ROOM, PanelBounds, PanelJob, Panels
from stream.records import Record
from stream.roles.attribute import Attribute
from stream.settings import ConfigurationError, Settings, load_settings

LLM = AttributionSettings(
    panel=PanelSettings(llm=LlmSettings(analyst=RoleSettings(base_url="http://model.invalid/v1", model="m")))
)
NOW = 1_800_000_000_000
MODELS: dict[str, type[WireModel]] = {
    "reports": Report,
    "alerts": Alert,
    "reviews": ReviewRequest,
    "sessions": SessionSummary,
}


class PlayedRefiner:
    """A method whose answers the test gives, one session after another."""

    name, analysts = "played", "llm"

    def __init__(self) -> None:
        self.observe: Callable[[CallRecord], None] | None = None
        self.asked: list[str] = []
        self.outage: NoVerdictError | None = None
        self.cost = 0  # tokens a try takes
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0
        self.at_once = self.most_at_once = 0

    def preliminary(self, trace: Trace) -> Report:
        raise AssertionError("the processes do that")

    def degraded(self, trace: Trace, shortfall: Shortfall) -> Report:
        raise AssertionError("the processes do that")

    async def verdict(self, trace: Trace, *, ledger: Ledger | None = None) -> Report:
        assert ledger is not None
        self.asked.append(trace.trace_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1
        if self.cost:
            ledger.add(CallRecord(Role.ANALYST, "m", "p", 0, "timeout", input_tokens=self.cost))
        if self.outage is not None:
            shortfall = Shortfall(self.outage.shortfall.reason, tokens=ledger.tokens)
            raise NoVerdictError(shortfall, may_pass=self.outage.may_pass)
        return trace  # type: ignore[return-value]

    def circuits(self) -> Mapping[Role, bool]:
        return {Role.ANALYST: self.outage is not None}

    async def close(self) -> None:
        self.gate.set()


class Desk:
    """Panels with clocks the test moves, and what came out of them."""

    def __init__(self, demos: list[Trace], **bounds: Any) -> None:
        self.refiner = PlayedRefiner()
        self.metrics = Metrics()
        self.clock = 0.0
        self.traces = demos
        self.done: dict[str, str] = {}  # what became of each session
        self.panels = Panels(
            self.refiner,
            PanelBounds(
                **{
                    "size": 2,
                    "backlog": 10,
                    "backlog_bytes": 10_000,
                    "deadline_s": 100.0,
                    "max_tokens": 1_000,
                    **bounds,
                }
            ),
            self.metrics,
            decode=lambda value: self.traces[0].model_copy(update={"trace_id": (value or b"").decode()}),
            issue=lambda trace, report, job: Judged(trace.trace_id),
            give_up=self._give_up,
            now_ms=lambda: NOW + int(self.clock * 1000),
            monotonic=lambda: self.clock,
        )

    async def _give_up(self, job: PanelJob, shortfall: Shortfall) -> Judged:
        return Judged(shortfall.reason)

    def offer(self, name: str, partition: int = 0, written: int = NOW) -> None:
        def done(judged: Judged) -> None:
            assert name not in self.done, "one last word a session"
            self.done[name] = judged.vehicle_id if judged.vehicle_id != name else "verdict"

        record = Record("traces", partition, 0, written, None, name.encode())
        self.panels.offer(PanelJob(partition, record, self.clock, reviewed=False, done=done))

    async def settle(self) -> None:
        """Wait until all that can happen without time passing has happened."""
        await asyncio.sleep(0)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            if len(others) == self.panels.active == self.refiner.at_once and not self.refiner.gate.is_set():
                return
            await asyncio.wait(others, timeout=0.01)

    async def after(self, seconds: float) -> None:
        """Let that much time pass, with its ticks."""
        for _ in range(int(seconds)):
            self.clock += 1
            self.panels.tick()
            await self.settle()

    def count(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("cockpithat_panels_total", {"result": result}) or 0.0


@pytest.fixture(scope="module")
def demos() -> list[Trace]:
    return [trace for path in sorted(resource("data/demo").glob("*.yaml")) for trace in load(path)]


OUTAGE = NoVerdictError(Shortfall("connection: refused"), may_pass=True)


async def test_a_bounded_number_of_panels_is_in_flight(demos: list[Trace]) -> None:
    desk = Desk(demos)
    desk.refiner.gate.clear()
    for number in range(6):
        desk.offer(f"s{number}")
    await desk.settle()
    assert (desk.panels.active, desk.panels.waiting) == (2, 4)
    desk.refiner.gate.set()
    await desk.settle()
    assert desk.done == {f"s{number}": "verdict" for number in range(6)}
    assert desk.refiner.most_at_once == 2 and desk.count("verdict") == 6


async def test_an_outage_is_waited_out_with_one_session_trying(demos: list[Trace]) -> None:
    desk = Desk(demos, deadline_s=400.0)
    desk.refiner.outage = OUTAGE
    for number in range(5):
        desk.offer(f"s{number}")
    await desk.after(60)
    assert desk.done == {}, "nobody is given up within the deadline"
    tries = len(desk.refiner.asked)
    assert 5 <= tries <= 12, "ever more rarely, each session in its turn"
    assert set(desk.refiner.asked) == {f"s{number}" for number in range(5)}
    assert desk.metrics.registry.get_sample_value("cockpithat_llm_circuit_open", {"role": "analyst"}) == 1
    desk.refiner.outage = None
    await desk.after(61)  # the longest wait
    assert desk.done == {f"s{number}": "verdict" for number in range(5)}
    assert desk.count("given_up") == 0 and desk.count("postponed") == tries


async def test_after_the_deadline_the_local_report_stands_and_says_why(demos: list[Trace]) -> None:
    desk = Desk(demos, deadline_s=30.0)
    desk.refiner.outage = OUTAGE
    desk.offer("a")
    await desk.after(100)
    assert desk.done == {"a": "no verdict within 30 s: connection: refused"}
    assert desk.panels.waiting == 0


async def test_a_worker_that_was_down_for_long_asks_once_before_it_gives_up(demos: list[Trace]) -> None:
    long_ago = NOW - 10**7
    desk = Desk(demos)
    desk.offer("a", written=long_ago)
    await desk.after(1)
    assert desk.done == {"a": "verdict"}
    desk.refiner.outage = OUTAGE
    desk.offer("b", written=long_ago)
    await desk.after(5)
    assert desk.done["b"] == "no verdict within 100 s: connection: refused"


async def test_what_cannot_pass_is_not_tried_again(demos: list[Trace]) -> None:
    desk = Desk(demos)
    desk.refiner.outage = NoVerdictError(Shortfall("rejected: too long"), may_pass=False)
    desk.offer("a")
    await desk.settle()
    assert desk.done == {"a": "rejected: too long"} and desk.refiner.asked == ["a"]


async def test_a_session_may_not_cost_without_end(demos: list[Trace]) -> None:
    """An endpoint that takes requests and never answers may bill them."""
    desk = Desk(demos, deadline_s=10_000.0)
    desk.refiner.outage, desk.refiner.cost = OUTAGE, 400
    desk.offer("a")
    await desk.after(60)
    assert desk.refiner.asked == ["a"] * 3
    assert desk.done == {"a": "connection: refused; 1200 tokens were spent on it"}


@pytest.mark.parametrize("bounds", [{"backlog": 2}, {"backlog_bytes": 4}])
async def test_beyond_the_backlog_the_session_that_waited_longest_is_given_up(
    demos: list[Trace], bounds: dict[str, int]
) -> None:
    desk = Desk(demos, size=1, **bounds)
    desk.refiner.gate.clear()
    for name in ("s0", "s1", "s2", "s3", "s4"):
        desk.offer(name)
    await desk.settle()
    assert desk.done == {"s1": NO_ROOM, "s2": NO_ROOM}
    desk.refiner.gate.set()
    await desk.settle()
    assert {name for name, what in desk.done.items() if what == "verdict"} == {"s0", "s3", "s4"}


async def test_a_revoked_partition_takes_its_panels_with_it(demos: list[Trace]) -> None:
    desk = Desk(demos)
    desk.refiner.gate.clear()
    for number in range(6):
        desk.offer(f"s{number}", partition=number % 2)
    await desk.settle()
    assert desk.panels.cancel(0) == 1
    desk.refiner.gate.set()
    await desk.settle()
    assert set(desk.done) == {"s1", "s3", "s5"} and desk.refiner.cancelled == 1


async def test_a_stop_reports_nothing(demos: list[Trace]) -> None:
    desk = Desk(demos)
    desk.refiner.gate.clear()
    for number in range(4):
        desk.offer(f"s{number}")
    await desk.settle()
    await desk.panels.close()
    await desk.settle()
    assert desk.done == {}


async def test_a_fault_of_ours_costs_one_verdict_and_no_worker(demos: list[Trace]) -> None:
    desk = Desk(demos)
    desk.traces = []  # decoding fails
    desk.offer("a")
    await desk.settle()
    assert desk.done == {"a": "the panel failed (IndexError)"}


# What goes out


def recent(trace: Trace) -> Trace:
    return trace.model_copy(update={"started_ts": NOW - 60_000, "ended_ts": NOW})


def doubtful(demos: list[Trace]) -> Trace:
    """A session of ASIL D whose local report asks for a review: some of its events never came."""
    return recent(demos[0]).model_copy(update={"missing_seqs": ((3, 3),)})


def outputs(judged: Judged) -> dict[str, Any]:
    models: dict[str, type[WireModel]] = {
        "reports": Report,
        "alerts": Alert,
        "reviews": ReviewRequest,
        "sessions": SessionSummary,
    }
    return {made.topic: models[made.topic].model_validate_json(made.value) for made in judged.made}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(LLM, page_max_age_ms=900_000, max_bytes=10**7, analysts="llm")


def test_the_first_revision_is_the_local_report_with_the_alert_of_the_floor(
    judge: Judge, demos: list[Trace]
) -> None:
    """Decision 8: page first. The hazard rules' floor needs no endpoint."""
    trace = doubtful(demos)
    judged = judge.judge(trace.model_dump_json().encode(), NOW)
    out = outputs(judged)
    local = Judge(AttributionSettings(), page_max_age_ms=900_000, max_bytes=10**7)
    alone = outputs(local.judge(trace.model_dump_json().encode(), NOW))
    assert judged.panel_follows and list(out) == ["reports", "alerts", "reviews", "sessions"]
    first = out["reports"]
    assert (first.revision, first.degraded, first.decided_by) == (1, PRELIMINARY, "local")
    assert (first.step, first.agent, first.asil) == (alone["reports"].step, alone["reports"].agent, Asil.D)
    assert not any(reason.startswith("degraded") for reason in first.review.reasons)
    assert (out["sessions"].revision, out["sessions"].final) == (1, False)
    assert alone["sessions"].final and not alone["reports"].degraded


async def test_all_revisions_share_their_ids_and_are_numbered_by_the_trace_alone(
    judge: Judge, demos: list[Trace]
) -> None:
    shortfall = Shortfall("4 of 4 analysts did not answer (connection: refused)")
    for trace_revision, numbers in ((1, (1, 2)), (2, (3, 4))):
        value = doubtful(demos).model_copy(update={"revision": trace_revision}).model_dump_json().encode()
        first, last = judge.judge(value, NOW), judge.give_up(value, NOW, shortfall, reviewed=True)
        assert [m.identity for m in first.made] == [m.identity for m in last.made]
        assert {made.revision for made in first.made} == {numbers[0]}
        assert {made.revision for made in last.made} == {numbers[1]}
        out = outputs(last)
        assert out["reports"].degraded == shortfall.reason
        assert f"degraded: {shortfall.reason}" in out["reviews"].reasons
        assert out["sessions"].final and not last.panel_follows
        assert out["alerts"].asil == outputs(first)["alerts"].asil == Asil.D


def test_a_review_that_the_verdict_makes_needless_is_withdrawn(demos: list[Trace]) -> None:
    trace = doubtful(demos)
    method = refiner(LLM, "cockpithat", "llm")
    assert isinstance(method, PanelAttribution) and isinstance(method, Refiner)
    report = method.preliminary(trace)
    calm = report.model_copy(update={"review": report.review.model_copy(update={"required": False})})
    issuer = Issuer(LLM, page_max_age_ms=900_000)
    withdrawn = outputs(issuer.issue(trace, calm, NOW, Stage.LAST, reviewed=True))["reviews"]
    asked = outputs(issuer.issue(trace, report, NOW, Stage.FIRST))["reviews"]
    assert (withdrawn.review_id, withdrawn.revision, withdrawn.withdrawn) == (asked.review_id, 2, True)
    assert not asked.withdrawn
    assert "reviews" not in outputs(issuer.issue(trace, calm, NOW, Stage.LAST, reviewed=False))


def test_a_verdict_on_an_old_session_pages_nobody(demos: list[Trace]) -> None:
    trace = recent(demos[0])
    report = refiner(LLM, "cockpithat", "llm").preliminary(trace)  # type: ignore[union-attr]
    judged = Issuer(LLM, page_max_age_ms=1_000).issue(trace, report, NOW + 5_000, Stage.LAST)
    assert "alerts" not in outputs(judged) and judged.facts is not None and judged.facts.withheld


def test_settings_that_cannot_work_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"no endpoint is set; set attribution\.panel\.llm\.analyst"):
        load_settings(worker={"analysts": "llm"})
    panel = {"llm": {"analyst": {"base_url": "http://model.invalid/v1", "model": "m"}}}
    with pytest.raises(ConfigurationError, match=r"lower worker\.panel_deadline_s"):
        load_settings(worker={"analysts": "llm", "panel_deadline_s": 10.0**6}, attribution={"panel": panel})


@pytest.mark.parametrize(("method", "analysts"), names())
def test_every_method_runs_in_a_worker(method: str, analysts: str, demos: list[Trace]) -> None:
    """Local ones have the only word; those that ask a model let the local report go first."""
    trace = recent(demos[0])
    desk = Judge(LLM, page_max_age_ms=900_000, max_bytes=10**7, method=method, analysts=analysts)
    judged = desk.judge(trace.model_dump_json().encode(), NOW)
    out = outputs(judged)
    assert (out["reports"].method, out["reports"].analysts) == (method, analysts)
    assert out["alerts"].asil == Asil.D  # of the hazard rules, whatever the method
    assert judged.panel_follows is (analysts == "llm")
    assert out["reports"].degraded == (PRELIMINARY if analysts == "llm" else None)


def test_a_method_takes_its_options_from_the_settings(demos: list[Trace]) -> None:
    chosen = load_settings(worker={"method": "falat", "method_options": {"window": 4}}).worker
    value = recent(demos[0]).model_dump_json().encode()

    def digest(options: Mapping[str, Any]) -> str:
        desk = Judge(LLM, page_max_age_ms=900_000, max_bytes=10**7, method=chosen.method, options=options)
        report: Report = outputs(desk.judge(value, NOW))["reports"]
        return report.provenance.config_digest

    assert digest(chosen.method_options) != digest({}) == digest({"window": 12})
    with pytest.raises(OptionError, match="'windows'"):
        digest({"windows": 4})


# Calibration


def calibrated_for(method: str, digest: str, folder: Path) -> AttributionSettings:
    runs = [Ranked(f"run-{i}", tuple(range(12)), i % 3) for i in range(40)]
    file = folder / "calibration.json"
    write_calibration(calibrate(runs, method=method, analysts="local", config_digest=digest), file)
    return AttributionSettings(calibration=CalibrationSettings(file=file, coverage=0.8, max_share=0.9))


def test_reports_of_a_worker_carry_the_range_of_the_calibration(demos: list[Trace], tmp_path: Path) -> None:
    digest = LocalAttribution().provenance.config_digest
    settings = calibrated_for("cockpithat", digest, tmp_path)
    value = recent(demos[0]).model_dump_json().encode()
    desk = Judge(settings, page_max_age_ms=900_000, max_bytes=10**7)
    report: Report = outputs(desk.judge(value, NOW))["reports"]
    assert report.step_range is not None and report.step in report.step_range.steps
    assert (report.step_range.coverage, report.step_range.calibrated_on) == (0.8, 40)
    assert report.provenance.config_digest == digest  # a calibration changes no verdict
    narrow = settings.model_copy(
        update={"calibration": settings.calibration.model_copy(update={"max_share": 0.01})}  # type: ignore[union-attr]
    )
    desk = Judge(narrow, page_max_age_ms=900_000, max_bytes=10**7)
    wide: Report = outputs(desk.judge(value, NOW))["reports"]
    assert wide.contested and any("are needed to hold the decisive one" in why for why in wide.review.reasons)


def test_a_local_report_ahead_of_a_model_has_no_range(demos: list[Trace], tmp_path: Path) -> None:
    method = refiner(LLM, "all-at-once", "llm")
    assert method is not None
    runs = [Ranked(f"run-{i}", tuple(range(12)), i % 3) for i in range(40)]
    calibration = calibrate(runs, method="all-at-once", analysts="llm")
    report = method.preliminary(recent(demos[0]))
    assert with_range(report, 9, calibration, RangePolicy()) == report
    told = report.model_copy(update={"degraded": None, "decided_by": "judge"})
    assert with_range(told, 9, calibration, RangePolicy()).step_range is not None


@pytest.mark.parametrize(
    ("method", "digest", "message"),
    [
        ("falat", "", "is for falat"),
        ("cockpithat", "0" * 64, "another configuration"),
        (None, "", "cannot be read"),
    ],
)
def test_a_calibration_that_does_not_fit_keeps_the_worker_from_starting(
    method: str | None, digest: str, message: str, tmp_path: Path
) -> None:
    if method is None:
        settings = AttributionSettings(calibration=CalibrationSettings(file=tmp_path / "missing.json"))
    else:
        settings = calibrated_for(method, digest, tmp_path)
    with pytest.raises(CalibrationError, match=message):
        ranges(settings, create("cockpithat", "local", settings))


def worker_context(settings: Settings) -> WorkerContext:
    return cast(WorkerContext, SimpleNamespace(settings=settings, metrics=Metrics(), now_ms=lambda: NOW))


@pytest.mark.parametrize("directory", [None, "answers"])
async def test_a_worker_says_so_when_a_restart_pays_for_answers_again(
    directory: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llm: dict[str, Any] = {"analyst": {"base_url": "http://model.invalid/v1", "model": "m"}}
    if directory is not None:
        llm["cache"] = {"directory": str(tmp_path / directory)}
    chosen = load_settings(worker={"analysts": "llm"}, attribution={"panel": {"llm": llm}})
    with caplog.at_level(logging.WARNING):
        Attribute(worker_context(chosen))
    assert ("llm.cache.directory" in caplog.text) is (directory is None)


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        ({"method": "guesswork"}, "no method 'guesswork'"),
        ({"method": "falat", "method_options": {"windows": 4}}, "'windows'"),
    ],
)
async def test_a_method_that_is_not_there_or_its_option_keeps_the_worker_from_starting(
    worker: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Attribute(worker_context(load_settings(worker=worker)))
