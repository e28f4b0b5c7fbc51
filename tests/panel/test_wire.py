"""The whole panel against a server that behaves, misbehaves, and does as the trace tells it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import zlib
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Trace
from cockpithat.llm import LlmSettings, RoleSettings
from cockpithat.methods import registry
from cockpithat.panel.ladder import Rung
from cockpithat.panel.local_first import PanelNotConfiguredError
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.settings import PanelSettings
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing import recover_index
from tests.panel.support import KEY, MISBEHAVIOUR, ROOT, Panel, form_of, good, good_answer, panel_on
from tests.support.chat_server import ChatServer, Reply, Request, json_reply, serve

REPORT_SCHEMA = json.loads((ROOT / "schemas/report.v1.json").read_text(encoding="utf-8"))
UNSENT = {"circuit_open", "budget", "cached", "key"}


def check_form(report: Report) -> None:
    """The report is one of ours whatever the endpoint said: valid by the published schema, no field added."""
    content = json.loads(report.model_dump_json())
    jsonschema.validate(content, REPORT_SCHEMA)
    assert set(content) == set(Report.model_fields)
    for hypothesis in content["hypotheses"]:
        assert set(hypothesis) <= {*REPORT_SCHEMA["$defs"]["Hypothesis"]["properties"]}


def check_against(trace: Trace, report: Report) -> None:
    """What it says can be found in the trace."""
    check_form(report)
    facts = TraceFacts(trace)
    assert report.step is None or facts.has_step(report.step)
    assert report.agent is None or report.agent in trace.agents
    assert report.asil.rank >= report.severity.floor.rank
    for hypothesis in report.hypotheses:
        assert hypothesis.agent is None or hypothesis.agent in trace.agents
        if report.degraded is None or (hypothesis.answered and not hypothesis.weight):
            assert all(facts.supports(e) for e in hypothesis.evidence)


def check_accounts(panel: Panel, server: ChatServer, reports: list[Report]) -> None:
    """Every request has its record, and the reports' tokens are the records' tokens."""
    sent = [record for record in panel.records if record.outcome not in UNSENT]
    refused_key = [record for record in panel.records if record.outcome == "key"]
    # A try whose time was up while it waited for its turn is booked and was never sent.
    unheard = sum(record.outcome in {"deadline", "timeout"} for record in sent)
    assert 0 <= len(sent) + len(refused_key) - len(server.requests) <= unheard
    assert sum(r.tokens.input for r in reports) == sum(record.input_tokens for record in panel.records)
    assert sum(r.tokens.output for r in reports) == sum(record.output_tokens for record in panel.records)
    assert sum(r.cost or 0 for r in reports) == pytest.approx(sum(record.cost for record in panel.records))


async def test_a_good_endpoint_gives_a_verdict_on_every_kind_of_trace(
    whowhen: list[Trace], cockpit: list[Trace]
) -> None:
    traces = [*whowhen[::4], *cockpit[::4]]  # of both parts of each
    with serve(good) as server:
        panel = panel_on(server)
        reports = [await panel.method.attribute(trace) for trace in traces]
        await panel.method.clients.here().close()
    for trace, report in zip(traces, reports, strict=True):
        check_against(trace, report)
        assert report.degraded is None
        assert (report.method, report.analysts) == ("cockpithat", "llm")
        assert len(report.hypotheses) == 4 and all(h.answered for h in report.hypotheses)
        assert report.step is not None and report.agent is not None
    check_accounts(panel, server, reports)


async def test_an_endpoint_that_misbehaves_at_random_always_leaves_a_verdict_or_a_marked_local_one(
    whowhen: list[Trace], cockpit: list[Trace]
) -> None:
    """Each request draws its misbehaviour from its own content, so a run can be repeated."""
    assert (len(whowhen), len(cockpit)) == (20, 20)
    kinds = sorted(MISBEHAVIOUR)

    def moody(request: Request) -> Reply:
        draw = random.Random(zlib.crc32(request.prompt.encode()))
        reply = MISBEHAVIOUR[draw.choice(["correct"] * 25 + kinds)](request)
        return replace(reply, delay=3.0) if reply.delay else reply

    with serve(moody) as server:
        panel = panel_on(server, llm={"call_seconds": 2.0})
        traces, reports = [*whowhen, *cockpit], []
        for start in range(0, len(traces), 4):  # side by side, as a worker runs them
            some = traces[start : start + 4]
            reports += await asyncio.gather(*(panel.method.attribute(trace) for trace in some))
        await panel.method.clients.here().close()
    for trace, report in zip(traces, reports, strict=True):
        check_against(trace, report)
        silent = [h for h in report.hypotheses if not h.answered]
        assert all(h.error for h in silent)
        if len(silent) >= 3:
            assert report.degraded is not None
        if report.degraded:
            assert any(reason.startswith("degraded:") for reason in report.review.reasons)
    assert any(r.degraded for r in reports) and any(r.degraded is None for r in reports)
    check_accounts(panel, server, reports)


@pytest.mark.parametrize("kind", sorted(MISBEHAVIOUR))
async def test_each_misbehaviour_alone(kind: str, demos: list[Trace], whowhen: list[Trace]) -> None:
    usable = kind in {"correct", "fenced", "invented quotes"}
    with serve(MISBEHAVIOUR[kind]) as server:
        panel = panel_on(server, llm={"call_seconds": 0.3} if kind == "slow" else None)
        for trace in (demos[0], whowhen[0]):
            report = await panel.method.attribute(trace)
            check_against(trace, report)
            local = LocalAttribution().judge(trace)
            assert report.severity.floor == local.severity.floor
            if usable:
                assert report.degraded is None
            else:
                assert report.degraded is not None and "did not answer" in report.degraded
                assert (report.step, report.agent, report.category) == (
                    local.step,
                    local.agent,
                    local.category,
                )
                assert report.review.required
                assert sum(not h.answered for h in report.hypotheses) == 4
        await panel.method.clients.here().close()


async def test_a_bad_answer_gets_one_second_chance(demos: list[Trace]) -> None:
    seen: set[str] = set()

    def at_second_try(request: Request) -> Reply:
        first = len(request.body["messages"]) == 2
        seen.add(request.body["messages"][-1]["content"][:60])
        return (
            json_reply(good_answer(request, step=9_999))
            if first and "step" in form_of(request)
            else good(request)
        )

    with serve(at_second_try) as server:
        panel = panel_on(server)
        report = await panel.method.attribute(demos[0])
        await panel.method.clients.here().close()
    assert report.degraded is None and all(h.answered for h in report.hypotheses)
    assert sum(record.purpose.endswith("/repair") for record in panel.records) == 4
    assert any("there is no such step" in request.prompt for request in server.requests)


async def test_one_silent_analyst_does_not_silence_the_panel(demos: list[Trace]) -> None:
    def without_detail(request: Request) -> Reply:
        return Reply(status=500, raw=b"") if "sceptical analyst" in request.prompt else good(request)

    trace = demos[0].model_copy(update={"trace_id": "a"})
    with serve(without_detail) as server:
        panel = panel_on(server)
        for number in range(20):  # a trace whose draw has the sceptical analyst
            trace = trace.model_copy(update={"trace_id": f"t{number}"})
            report = await panel.method.attribute(trace)
            if any(h.analyst == "skeptical" for h in report.hypotheses):
                break
        await panel.method.clients.here().close()
    silent = [h for h in report.hypotheses if not h.answered]
    assert [h.analyst for h in silent] == ["skeptical"]
    assert report.degraded is None and report.step is not None
    assert any("no answer from skeptical" in reason for reason in report.review.reasons)


async def test_a_panel_without_its_safety_analyst_is_marked(demos: list[Trace]) -> None:
    with serve(
        lambda r: Reply(status=400, raw=b"") if "Your role: safety" in r.prompt else good(r)
    ) as server:
        panel = panel_on(server)
        report = await panel.method.attribute(demos[0])
        await panel.method.clients.here().close()
    assert report.degraded == "the safety analyst did not answer"
    assert report.asil == report.severity.floor, "the floor stands without any analyst"


async def test_the_panels_deadline_bounds_the_whole(demos: list[Trace]) -> None:
    with serve(lambda r: json_reply(good_answer(r), delay=2.0)) as server:
        panel = panel_on(server, seconds=0.3)
        loop = asyncio.get_running_loop()
        started = loop.time()
        report = await panel.method.attribute(demos[0])
        assert loop.time() - started < 1.9
        await panel.method.clients.here().close()
    assert report.degraded is not None


async def test_cancelling_a_panel_publishes_nothing(demos: list[Trace]) -> None:
    with serve(lambda r: json_reply(good_answer(r), delay=1.0)) as server:
        panel = panel_on(server)
        task = asyncio.create_task(panel.method.attribute(demos[0]))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await panel.method.clients.here().close()


async def test_a_degraded_report_and_the_later_verdict_share_their_id(demos: list[Trace]) -> None:
    broken = True
    with serve(lambda r: Reply(status=503, raw=b"") if broken else good(r)) as server:
        panel = panel_on(server)
        first = await panel.method.attribute(demos[0])
        broken = False
        second = await panel.method.attribute(demos[0])
        await panel.method.clients.here().close()
    assert first.degraded and not second.degraded
    assert first.report_id == second.report_id


async def test_a_rerun_asks_the_same_panel_and_pays_nothing(cockpit: list[Trace]) -> None:
    """Decision 6: the draw is seeded by the session, and answers already paid for are found in the cache."""
    with serve(good) as server:
        panel = panel_on(server, cache=True)
        first = [await panel.method.attribute(trace) for trace in cockpit[:4]]
        asked = len(server.requests)
        second = [await panel.method.attribute(trace) for trace in cockpit[:4]]
        await panel.method.clients.here().close()
    assert len(server.requests) == asked
    changing = {"seconds", "tokens", "cost"}
    assert [r.model_dump(exclude=changing) for r in first] == [r.model_dump(exclude=changing) for r in second]
    assert all(r.tokens.input == r.tokens.output == 0 for r in second)


async def test_the_key_is_in_no_report_log_or_error(
    demos: list[Trace], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {
        0: Reply(status=401, raw=f"bad key {KEY}".encode()),
        1: Reply(status=400, raw=f"request with {KEY} is wrong".encode()),
        2: Reply(status=500, raw=KEY.encode()),
    }
    texts = []
    for turn in range(4):
        answer = echo.get(turn)
        with serve(lambda r, a=answer: a or json_reply(good_answer(r, rationale=f"key is {KEY}"))) as server:  # type: ignore[misc]
            panel = panel_on(server)
            texts.append((await panel.method.attribute(demos[0])).model_dump_json())
            texts.append(repr(panel.records) + repr(vars(panel.method)))
            assert all(r.headers["authorization"] == f"Bearer {KEY}" for r in server.requests)
            await panel.method.clients.here().close()
    assert KEY not in "".join(texts) + caplog.text


async def test_no_label_reaches_a_prompt(shared_data: Path, whowhen: list[Trace]) -> None:
    """Who&When's own verdict on a run stays sealed: its reasons stand in none of the prompts."""
    reasons = {}
    for path in (shared_data / "whowhen").glob("*/*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        reasons[run["question_ID"]] = run["mistake_reason"]
    with serve(good) as server:
        panel = panel_on(server)
        for trace in whowhen[:6]:
            await panel.method.attribute(trace)
        await panel.method.clients.here().close()
    prompts = "\n".join(request.prompt for request in server.requests)
    known = [reasons[trace.session_id] for trace in whowhen[:6]]
    assert known and not any(reason in prompts for reason in known)


@pytest.mark.parametrize("rung", list(Rung))
async def test_every_rung_of_the_ladder_runs(rung: Rung, demos: list[Trace], whowhen: list[Trace]) -> None:
    """Table 2: I1 to I3 one analyst, I4 the panel, I5 two decisions an analyst, I6 the adapter."""
    with serve(good) as server:
        panel = panel_on(server, rung=rung)
        for trace in (demos[0], whowhen[0]):
            report = await panel.method.attribute(trace)
            check_against(trace, report)
            assert report.degraded is None
            assert len(report.hypotheses) == (1 if rung in {"I1", "I2", "I3"} else 4)
        await panel.method.clients.here().close()
    forms = {form_of(request) for request in server.requests} - {"defence"}
    decisions = {"agent_decision", "step_decision"} if rung in {"I5", "I6"} else {"decision"}
    assert forms == decisions | ({"salience"} if rung == "I6" else set())
    marked = any("[SALIENT:" in request.prompt.split("DATA ")[-1] for request in server.requests)
    assert marked == (rung == "I6")


async def test_a_text_only_trace_bypasses_the_adapter(whowhen: list[Trace]) -> None:
    """Section 3.3: the adapter is enabled only when the trace has embodied fields."""
    with serve(good) as server:
        panel = panel_on(server)
        await panel.method.attribute(whowhen[0])
        await panel.method.clients.here().close()
    assert "salience" not in {form_of(request) for request in server.requests}


async def test_a_scanner_that_fails_leaves_the_local_scan(demos: list[Trace]) -> None:
    with serve(lambda r: Reply(status=500, raw=b"") if r.body["model"] == "small" else good(r)) as server:
        panel = panel_on(server)
        report = await panel.method.attribute(demos[0])
        await panel.method.clients.here().close()
    assert report.degraded is None
    assert any(
        "[SALIENT:safety_violation]" in r.prompt for r in server.requests if r.body["model"] == "large"
    )


async def test_a_session_without_steps_costs_nothing(demos: list[Trace]) -> None:
    with serve(good) as server:
        panel = panel_on(server)
        report = await panel.method.attribute(demos[0].model_copy(update={"steps": (), "graph": None}))
        await panel.method.clients.here().close()
    assert server.requests == [] and report.step is None


async def test_the_light_model_refines_the_links_that_slicing_goes_by(demos: list[Trace]) -> None:
    """Section 4.1: the entity-linking step is a light call; what it adds is seen by the analysts."""
    trace = demos[0]
    words = [" ".join(step.text.split()[:3]) for step in trace.steps]
    first, last = 0, len(trace.steps) - 1
    added = {"source": first, "target": last, "mention": words[last], "entity": words[first]}

    def links(request: Request) -> Reply:
        return json_reply({"add": [added], "drop": []}) if form_of(request) == "links" else good(request)

    with serve(links) as server:
        panel = panel_on(server, linker=True)
        report = await panel.method.attribute(trace)
        await panel.method.clients.here().close()
    assert report.degraded is None
    prompts = [r.prompt for r in server.requests if form_of(r) == "step_decision"]
    assert all((first, last) in recover_index(text).edges for text in prompts)
    assert report.provenance.models == {"analyst": "large", "scanner": "small", "linker": "small"}


async def test_the_graph_may_be_built_by_the_papers_prompt(demos: list[Trace]) -> None:
    trace = demos[0]
    edges = [
        {"source": i, "target": j, "primary": "control", "secondary": ["plan"], "why": "It dispatches it."}
        for i in range(3)
        for j in range(i + 1, len(trace.steps))
    ]

    def graph(request: Request) -> Reply:
        return (
            json_reply({"edges": edges, "observations": ["A star."]})
            if form_of(request) == "graph"
            else good(request)
        )

    with serve(graph) as server:
        panel = panel_on(server, linker=True, graph_prompt=True)
        report = await panel.method.attribute(trace)
        await panel.method.clients.here().close()
    assert report.degraded is None
    (recovered,) = {recover_index(r.prompt).edges for r in server.requests if form_of(r) == "step_decision"}
    assert recovered == {(edge["source"], edge["target"]) for edge in edges}


def test_one_method_serves_one_event_loop_after_another(demos: list[Trace]) -> None:
    """As a command line does that runs each file in a loop of its own."""
    with serve(good) as server:
        llm = LlmSettings(analyst=RoleSettings(base_url=server.url, model="m"), trust_environment=False)
        method = PanelAttribution(AttributionSettings(panel=PanelSettings(llm=llm)))
        reports = [asyncio.run(method.attribute(demos[0])) for _ in range(2)]
    assert [report.degraded for report in reports] == [None, None]


def test_the_registry_knows_the_method_and_says_what_it_lacks() -> None:
    assert ("cockpithat", "llm") in registry.names()
    with pytest.raises(PanelNotConfiguredError, match=r"set panel.llm.analyst.base_url"):
        registry.create("cockpithat", "llm")
