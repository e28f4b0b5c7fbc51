"""No gold string reaches a prompt or a feature: every loader, every method, through the harness itself.

Each data set is loaded twice, once as it is and once with every gold field replaced by a mark (labels,
reasons, right answers, reference actions, rewards). A method must say the same on both and send the same
requests, and no request and no trace may hold a mark.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpithat.analysis.settings import AttributionSettings
from cockpithat.bench.datasets import Dataset, Source, load_dataset
from cockpithat.bench.runner import Plan, run
from cockpithat.contract.base import Asil, Category
from cockpithat.llm import LlmSettings, RoleSettings
from cockpithat.llm.settings import BreakerSettings, CacheSettings, RetrySettings
from cockpithat.methods.registry import create, names
from cockpithat.panel.settings import PanelSettings
from cockpithat.simulator import SimulateSettings, simulate, write
from tests.panel.support import agents_of
from tests.support.chat_server import Reply, Request, json_reply, serve

MARK = "GOLD7f3a"
NUMBER = 987_654
pytestmark = pytest.mark.data


def marked(value: Any) -> Any:
    """The same shape: every string the mark, every number one that is nowhere else."""
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return NUMBER if isinstance(value, int | float) else MARK


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")


def whowhen(data: Path, folder: Path, *, gold: bool) -> Source:
    """The three shortest runs of each split."""
    for split in ("algorithm-generated", "hand-crafted"):
        (folder / split).mkdir()
        for file in sorted((data / "whowhen" / split).glob("*.json"), key=lambda f: f.stat().st_size)[:3]:
            shutil.copy(file, folder / split)
            if not gold:
                rewrite(folder / split / file.name, mark_whowhen)
    second = folder / "second.labels"
    shutil.copy(data / "agentrx" / "magentic_ground_truth.json", second)
    if not gold:
        rewrite(second, mark_agentrx_labels)
    return Source(folder, second=second)


def mark_whowhen(run: dict[str, Any]) -> dict[str, Any]:
    inputs = {"history", "question", "question_ID", "system_prompt", "is_correct", "is_corrected"}
    gold = {key: marked(value) for key, value in run.items() if key not in inputs}
    assert {"mistake_agent", "mistake_step", "mistake_reason", "ground_truth"} <= gold.keys()
    return {**run, **gold, "mistake_step": str(NUMBER)}


def mark_agentrx_labels(labels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**marked(label), "trajectory_id": label["trajectory_id"]} for label in labels]


def tau(data: Path, folder: Path, *, gold: bool) -> Source:
    """The two shortest runs; the reward stays below 1, for it also says that the run failed."""
    for name in ("tau_trajectories.json", "tau_ground_truth.json"):
        shutil.copy(data / "agentrx" / name, folder)
    rewrite(folder / "tau_trajectories.json", lambda runs: sorted(runs, key=lambda r: len(r["traj"]))[:2])
    if not gold:
        rewrite(folder / "tau_ground_truth.json", mark_agentrx_labels)
        rewrite(
            folder / "tau_trajectories.json",
            lambda runs: [{**run, "info": marked(run["info"]), "reward": 0.987654} for run in runs],
        )
    return Source(folder)


def cockpitbench(data: Path, folder: Path, *, gold: bool) -> Source:
    settings = SimulateSettings(traces=2, seed=3)
    write(simulate(settings), folder, settings)
    labels = folder / "labels.jsonl"
    lines = [json.loads(line) for line in labels.read_text(encoding="utf-8").splitlines()]
    if not gold:
        labels.write_text("".join(json.dumps(mark_session(line)) + "\n" for line in lines), encoding="utf-8")
    return Source(folder)


def mark_session(label: dict[str, Any]) -> dict[str, Any]:
    """Marks where the label file's checks allow any text; another value where they allow a few."""
    replacing = {
        "category": lambda old: next(c.value for c in Category if c.value != old),
        "asil": lambda old: next(a.value for a in (Asil.A, Asil.D) if a.value != old),
    }
    kept = {
        "session_id",
        "vehicle_id",
        "kind",
        "channel",
        "role",
        "source",
        "method",
        "selected_as",
        "simulated",
    }

    def change(key: str, value: Any) -> Any:
        if key in kept or isinstance(value, bool):
            return value
        if key in replacing and isinstance(value, str):
            return replacing[key](value)
        if isinstance(value, dict):
            return {k: change(k, v) for k, v in value.items()}
        if isinstance(value, list):
            return [change(key if isinstance(item, str) else "", item) for item in value]
        return marked(value)

    return {key: change(key, value) for key, value in label.items()}


LOADERS = {"whowhen": whowhen, "agentrx": tau, "cockpitbench": cockpitbench}


@pytest.fixture(scope="module", params=LOADERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_data: Path):  # type: ignore[no-untyped-def]
    """One data set with its labels, and with marks in their place."""
    loaded = []
    for gold in (True, False):
        folder = tmp_path_factory.mktemp(f"{request.param}-{gold}")
        loaded.append(load_dataset(LOADERS[request.param](shared_data, folder, gold=gold), request.param))
    return tuple(loaded)


def said(dataset: Dataset, name: str, analysts: str, settings: AttributionSettings) -> list[dict[str, Any]]:
    """Everything a method answered through the harness, without what the clock adds."""
    records = run(dataset.samples, create(name, analysts, settings), Plan())
    return [
        record.model_dump(exclude={"seconds", "target", "second", "scores", "chance", "tags"})
        for record in records
    ]


def test_the_marks_are_in_the_labels_and_in_no_trace(pair: tuple[Dataset, Dataset]) -> None:
    plain, changed = pair
    assert len(plain.samples) == len(changed.samples) > 1
    for before, after in zip(plain.samples, changed.samples, strict=True):
        assert before.target != after.target and after.target.agent == MARK
        assert after.reference and MARK in after.reference and MARK not in before.reference
        ours, theirs = before.trace.model_dump_json(), after.trace.model_dump_json()
        assert MARK not in theirs and str(NUMBER) not in theirs
        if plain.format == "whowhen":  # the others' traces differ in the digest of their source only
            assert ours == theirs


@pytest.mark.parametrize("name", [name for name, analysts in names() if analysts == "local"])
def test_no_gold_string_reaches_a_feature(pair: tuple[Dataset, Dataset], name: str) -> None:
    plain, changed = pair
    assert said(plain, name, "local", AttributionSettings()) == said(
        changed, name, "local", AttributionSettings()
    )


def instance_of(schema: dict[str, Any], request: Request) -> Any:
    """Something that fits a JSON schema, with an agent that exists: enough to make any method go on."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance_of(schema["anyOf"][0], request)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {
            key: agents_of(request)[0]
            if "agent" in key and part.get("type") == "string"
            else instance_of(part, request)
            for key, part in schema.get("properties", {}).items()
        }
    if kind == "array":
        return [instance_of(schema.get("items", {}), request)] * max(1, schema.get("minItems", 0))
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": False, "null": None}.get(str(kind), "the plan")


def obliging(request: Request) -> Reply:
    form = request.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    return json_reply(instance_of(form, request)) if form else Reply(content="{}")


@pytest.mark.parametrize("name", [name for name, analysts in names() if analysts == "llm"])
def test_no_gold_string_reaches_a_prompt(pair: tuple[Dataset, Dataset], name: str) -> None:
    asked: list[list[str]] = []
    answers = []
    for dataset in pair:
        with serve(obliging) as server:
            role = RoleSettings(base_url=server.url, model="m")
            llm = LlmSettings(
                analyst=role,
                scanner=role,
                linker=role,
                trust_environment=False,
                cache=CacheSettings(enabled=False),
                retry=RetrySettings(attempts=1),
                breaker=BreakerSettings(failures=1_000),
            )
            settings = AttributionSettings(panel=PanelSettings(llm=llm))
            answers.append(said(dataset, name, "llm", settings))
            bodies = sorted(json.dumps(request.body, sort_keys=True) for request in server.requests)
            asked.append([body.replace(server.url, "") for body in bodies])
    before, after = asked
    assert not [body for body in after if MARK in body or str(NUMBER) in body]
    assert before == after
    if name != "cascade":  # it may settle a run without asking anybody
        assert len(before) >= len(pair[0].samples)
    for answer in (*answers[0], *answers[1]):
        answer.pop("config_digest")  # the server's port is part of it
        assert answer["error"] is None
    assert answers[0] == answers[1]


def test_a_right_answer_that_is_shown_on_purpose_is_found_by_these_means(
    pair: tuple[Dataset, Dataset],
) -> None:
    """The same search over requests, where it must succeed: otherwise the tests above could not fail."""
    with serve(obliging) as server:
        llm = LlmSettings(
            analyst=RoleSettings(base_url=server.url, model="m"),
            trust_environment=False,
            cache=CacheSettings(enabled=False),
        )
        method = create("all-at-once", "llm", AttributionSettings(panel=PanelSettings(llm=llm)))
        run(pair[1].samples[:1], method, Plan(show_ground_truth=True))
        assert any(MARK in json.dumps(request.body) for request in server.requests)
