"""A run is logged as it goes, survives an interruption, and refuses to mix what is not alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpithat.bench.datasets import Dataset
from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import LogWriter, read_log
from cockpithat.bench.results import results
from cockpithat.bench.runner import Plan, header_of, run
from cockpithat.bench.samples import Sample
from cockpithat.contract.trace import Trace
from tests.bench_harness.making import Scripted, Verdict, sample_of

SAMPLES = tuple(sample_of(f"s{i}", step=i % 4) for i in range(8))


def right(trace: Trace) -> Verdict:
    return ("Coder", 1)


def header(method: Scripted, plan: Plan | None = None, digest: str = "d0"):  # type: ignore[no-untyped-def]
    dataset = Dataset("whowhen", SAMPLES, digest, "0-based", "names")
    return header_of(dataset, Path("data"), method, plan or Plan(), calibration=None)


def judge(
    path: Path, method: Scripted, plan: Plan, *, samples: tuple[Sample, ...] = SAMPLES, resume: bool = False
) -> list[str]:
    before = read_log(path) if resume else None
    with LogWriter(path, header(method, plan), after=before) as log:
        return [f"{r.id}#{r.epoch}" for r in run(samples, method, plan, log=log, before=before)]


class Interrupted(BaseException):
    """As Ctrl-C."""


def test_a_log_is_plain_json_lines_that_any_tool_reads(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    judge(path, Scripted(right), Plan())
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    first, samples = lines[0], lines[1:]
    assert (first["type"], first["format"], first["version"]) == ("header", "cockpithat-bench-log", 1)
    assert first["dataset"]["digest"] == "d0" and first["config_digest"] == "c0"
    assert {line["type"] for line in samples} == {"sample"}
    assert [line["id"] for line in samples] == [sample.id for sample in SAMPLES]
    assert samples[1]["output"]["step"] == samples[1]["target"]["step"] == 1
    assert samples[1]["scores"]["joint"] is True and samples[0]["scores"]["joint"] is False
    assert sorted(samples[1]["ranking"]) == list(range(6))


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    plan = Plan(repeat=2)

    def breaks(trace: Trace) -> Verdict:
        if len(stopped.seen) > 5:
            raise Interrupted
        return right(trace)

    stopped = Scripted(breaks)
    with pytest.raises(BaseExceptionGroup):
        judge(path, stopped, plan)
    assert len(read_log(path).records) == 5
    again = Scripted(right)
    order = judge(path, again, plan, resume=True)
    assert len(again.seen) == 2 * len(SAMPLES) - 5
    assert order == [f"{sample.id}#{epoch}" for sample in SAMPLES for epoch in (1, 2)]
    whole = tmp_path / "whole.jsonl"
    judge(whole, Scripted(right), plan)
    pairs = [results(read_log(p).header, read_log(p).records) for p in (path, whole)]
    for figures in pairs:
        for name in ("seconds", "seconds_per_trace"):
            del figures[name]
    assert pairs[0] == pairs[1]


def test_a_line_cut_off_in_the_middle_is_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    judge(path, Scripted(right), Plan())
    path.write_bytes(path.read_bytes()[:-40])
    again = Scripted(right)
    judge(path, again, Plan(), resume=True)
    assert [trace.session_id for trace in again.seen] == ["s7"]
    assert len(read_log(path).records) == len(path.read_bytes().splitlines()) - 1 == len(SAMPLES)


def test_a_run_that_failed_is_a_miss_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def fails(trace: Trace) -> Verdict:
        if trace.session_id in ("s1", "s2"):
            raise RuntimeError("text of the trace, which must not be logged")
        return right(trace)

    judge(path, Scripted(fails), Plan())
    log = read_log(path)
    figures = results(log.header, log.records)
    assert (figures["n"], figures["errors"], figures["unanswered"]) == (8, 2, 2)
    assert figures["step"] == 1 / 8  # s5 is right; s1 would have been
    assert "RuntimeError" in path.read_text() and "must not be logged" not in path.read_text()
    again = Scripted(right)
    judge(path, again, Plan(), resume=True)
    assert [trace.session_id for trace in again.seen] == ["s1", "s2"]
    figures = results(read_log(path).header, read_log(path).records)
    assert (figures["errors"], figures["step"]) == (0, 2 / 8)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (header(Scripted(right), digest="d1"), "the data"),
        (header(Scripted(right, digest="c1")), "the configuration"),
        (header(Scripted(right, name="another")), "the method"),
        (header(Scripted(right), Plan(show_ground_truth=True)), "whether the ground truth is shown"),
        (header(Scripted(right), Plan(repeat=5)), None),
    ],
)
def test_only_runs_of_the_same_kind_are_put_together(other, what: str | None) -> None:  # type: ignore[no-untyped-def]
    assert header(Scripted(right)).differs(other) == what


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    judge(path, Scripted(right), Plan())
    with pytest.raises(BenchError, match="--resume"):
        judge(path, Scripted(right), Plan())


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "no header"), (b"not json\n", "line 1"), (b'{"type": "sample"}\n', "line 1")],
)
def test_something_else_than_a_log_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(BenchError, match=what):
        read_log(path)


def test_the_right_answer_reaches_a_method_only_when_it_is_shown() -> None:
    hidden, shown = Scripted(right), Scripted(right)
    run(SAMPLES, hidden, Plan())
    run(SAMPLES, shown, Plan(show_ground_truth=True))
    assert all("42" not in trace.model_dump_json() for trace in hidden.seen)
    assert all(trace.task.endswith("The right answer to this task: 42") for trace in shown.seen)
    with pytest.raises(BenchError, match="no right answer to show"):
        run([sample_of("bare", reference="")], shown, Plan(show_ground_truth=True))


def test_a_method_that_asks_for_the_right_answer_gets_it_apart_from_the_trace() -> None:
    class Asking(Scripted):
        takes_ground_truth = True
        told: list[str | None] = []  # noqa: RUF012

        async def attribute(self, trace: Trace, *, ground_truth: str | None = None):  # type: ignore[no-untyped-def]
            self.told.append(ground_truth)
            return await super().attribute(trace)

    method = Asking(right)
    run(SAMPLES[:1], method, Plan(show_ground_truth=True))
    run(SAMPLES[:1], method, Plan())
    assert method.told == ["42", None]
    assert [trace.task for trace in method.seen] == ["Find it."] * 2
