"""The cascade: who is asked when, who decides, and what the budgets do."""

from __future__ import annotations

from typing import Any

import pytest

from cockpithat.analysis.local import LocalAttribution
from cockpithat.contract.base import Asil
from cockpithat.contract.trace import Trace
from cockpithat.llm import Role
from cockpithat.methods.cascade import Cascade, CascadeOptions, Stage, after_local, panel_cost
from tests.methods.support import Rig, player
from tests.support.chat_server import Reply, Request, serve


@pytest.fixture
def unsure(whowhen: list[Trace]) -> Trace:
    """A run with dialogue only: the local analysts rank and have no evidence."""
    return whowhen[3]


def like_the_local_verdict(trace: Trace) -> Any:
    """A judge's answer that agrees with the local analysts."""
    local = LocalAttribution().judge(trace)

    def agree(_: Request, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "step": local.step, "agent": local.agent, "asil": "unrated", "confidence": 0.9}

    return agree


async def test_a_sure_local_verdict_costs_nothing(demos: list[Trace]) -> None:
    local = LocalAttribution()
    bar = CascadeOptions(local_confidence=0.5)
    trace = next(t for t in demos if after_local(local.judge(t), bar) is None)
    with serve(player()) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade, local_confidence=0.5).attribute(trace)
    assert not server.requests and report.tokens.input == 0
    assert (report.method, report.decided_by, report.degraded) == ("cascade", Stage.LOCAL, None)
    assert (report.step, report.agent) == (local.judge(trace).step, local.judge(trace).agent)


def test_what_makes_a_local_verdict_unsure(demos: list[Trace]) -> None:
    options = CascadeOptions()
    sure = next(
        report
        for report in map(LocalAttribution().judge, demos)
        if report.severity.floor == Asil.B and report.confidence >= options.local_confidence
    )
    assert after_local(sure, options) is None
    vague = [h.model_copy(update={"evidence": ()}) for h in sure.hypotheses]
    for change in ({"confidence": 0.59}, {"contested": True}, {"hypotheses": tuple(vague)}):
        assert after_local(sure.model_copy(update=change), options) == Stage.JUDGE, change
    severe = sure.severity.model_copy(update={"floor": Asil.C})
    assert after_local(sure.model_copy(update={"severity": severe}), options) == Stage.PANEL


async def test_a_judge_that_is_sure_and_agrees_settles_it_on_the_cheap_endpoint(unsure: Trace) -> None:
    with serve(player({"decision": like_the_local_verdict(unsure)})) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade).attribute(unsure)
    assert [record.role for record in rig.records] == [Role.SCANNER]
    assert report.decided_by == Stage.JUDGE and report.degraded is None
    assert report.tokens.input == rig.records[0].input_tokens


@pytest.mark.parametrize("change", [{"confidence": 0.6}, {"asil": "D"}, {"step": 0, "agent": "NobodyOfOurs"}])
async def test_the_panel_is_asked_where_the_judge_leaves_doubt(change: dict[str, Any], unsure: Trace) -> None:
    agree = like_the_local_verdict(unsure)
    with serve(player({"decision": lambda r, a: {**agree(r, a), **change}})) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade).attribute(unsure)
    assert report.decided_by == Stage.PANEL and report.degraded is None
    judged = [record for record in rig.records if record.purpose.startswith("all-at-once")]
    assert judged and len(rig.records) - len(judged) == 8, "four analysts with two decisions each"
    assert report.tokens.input == sum(record.input_tokens for record in rig.records)
    assert report.cost == pytest.approx(sum(record.cost for record in rig.records))
    if change.get("asil") == "D":
        assert any("the judge rated D" in reason for reason in report.review.reasons)


async def test_a_floor_of_c_or_d_goes_to_the_panel_at_once(demos: list[Trace]) -> None:
    trace = next(t for t in demos if LocalAttribution().judge(t).severity.floor == Asil.D)
    with serve(player()) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade, local_confidence=0.0).attribute(trace)
    assert not any(record.purpose.startswith("all-at-once") for record in rig.records)
    assert report.decided_by == Stage.PANEL and report.asil == Asil.D


async def test_a_panel_that_cannot_answer_leaves_the_verdict_before_it_marked(unsure: Trace) -> None:
    agree = like_the_local_verdict(unsure)

    def only_the_judge(request: Request) -> Reply:
        name = request.body["response_format"]["json_schema"]["name"]
        if name != "decision":
            return Reply(status=400, raw=b"")
        return player({"decision": lambda r, a: {**agree(r, a), "confidence": 0.5}})(request)

    with serve(only_the_judge) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade).attribute(unsure)
    assert report.decided_by == Stage.JUDGE
    assert report.degraded is not None and "analysts did not answer" in report.degraded


async def test_with_no_endpoint_the_local_verdict_goes_out_marked(unsure: Trace) -> None:
    with serve(lambda _: Reply(status=503, raw=b"")) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade).attribute(unsure)
    local = LocalAttribution().judge(unsure)
    assert (report.decided_by, report.step, report.agent) == (Stage.LOCAL, local.step, local.agent)
    assert report.degraded is not None and report.review.required


@pytest.mark.parametrize(
    ("budget", "asked", "stage"), [(1_000, 0, Stage.LOCAL), (8_000, 1, Stage.JUDGE), (80_000, 9, Stage.PANEL)]
)
async def test_the_budget_of_a_trace_stops_before_the_stage_it_does_not_cover(
    budget: int, asked: int, stage: Stage, unsure: Trace
) -> None:
    agree = like_the_local_verdict(unsure)
    doubtful = player({"decision": lambda r, a: {**agree(r, a), "confidence": 0.5}})
    with serve(doubtful) as server:
        async with Rig(server) as rig:
            report = await rig.method(Cascade, trace_tokens=budget).attribute(unsure)
    assert len(server.requests) == asked and report.decided_by == stage
    assert (report.degraded is None) == (stage == Stage.PANEL)
    if report.degraded:
        assert f"of the trace's {budget} left" in report.degraded


async def test_the_budget_of_an_hour_holds_over_traces_and_comes_back(unsure: Trace) -> None:
    moment = [0.0]
    agreeing = player({"decision": like_the_local_verdict(unsure)})
    with serve(agreeing) as server:
        async with Rig(server) as rig:
            method = Cascade(
                rig.attribution, {"hourly_tokens": 7_000}, client=rig.client, monotonic=lambda: moment[0]
            )
            first = await method.attribute(unsure)
            second = await method.attribute(unsure)
            moment[0] = 3_601.0
            third = await method.attribute(unsure)
    assert [r.decided_by for r in (first, second, third)] == [Stage.JUDGE, Stage.LOCAL, Stage.JUDGE]
    assert second.degraded is not None and "hourly budget" in second.degraded


async def test_the_estimate_of_a_panel_is_not_below_what_it_takes(
    whowhen: list[Trace], demos: list[Trace]
) -> None:
    for trace in (*whowhen, demos[0]):
        with serve(player()) as server:
            async with Rig(server) as rig:
                report = await rig.method(Cascade, local_confidence=1.0, judge_confidence=1.0).attribute(
                    trace
                )
        spent = sum(r.input_tokens + r.output_tokens for r in rig.records if r.role == Role.ANALYST)
        assert report.decided_by == Stage.PANEL
        assert 0 < spent <= panel_cost(rig.attribution.panel)  # type: ignore[arg-type]
