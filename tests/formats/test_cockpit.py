"""The product's own files: events with snapshots, finished traces, and traces turned back into events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.contract.base import CloseReason, Outcome
from cockpithat.contract.trace import Trace
from cockpithat.formats import FormatError, ReadOptions, load, load_recordings
from cockpithat.formats.assembly import assemble
from cockpithat.formats.recording import in_time_order, moved, recording_of
from cockpithat.resources import resource

T0 = 1_700_000_000_000
LIGHT = "Vehicle.Body.Lights.Beam.Low.IsOn"


def event(kind: str, seq: int, session: str = "s1", **fields: Any) -> dict[str, Any]:
    common = {"type": kind, "event_id": f"{session}-{seq}", "vehicle_id": "v1", "session_id": session}
    return {**common, "seq": seq, "ts": T0 + seq * 1000, **fields}


def snapshot(ts: int, **signals: Any) -> dict[str, Any]:
    return {
        "type": "vehicle_snapshot",
        "vehicle_id": "v1",
        "ts": ts,
        "kind": "full",
        "signals": {LIGHT: True, **signals},
    }


def session(name: str = "s1") -> list[dict[str, Any]]:
    return [
        event("session_start", 0, name, task="Lights off"),
        event("step", 1, name, agent="Driver", text="Lights off, please."),
        event("step", 2, name, agent="VehicleAgent", text="Switching off."),
        event("session_end", 3, name, outcome="failure"),
    ]


def written(folder: Path, *records: Any) -> Path:
    path = folder / "events.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


def test_events_in_any_order_with_snapshots_become_a_trace(tmp_path: Path) -> None:
    start, first, second, end = session()
    path = written(tmp_path, snapshot(T0), second, start, end, first, snapshot(T0 + 2400, **{LIGHT: False}))
    (trace,) = load(path)
    assert [step.agent for step in trace.steps] == ["Driver", "VehicleAgent"]
    assert trace.close_reason is CloseReason.END_EVENT
    last = trace.steps[1].state
    assert last is not None
    assert [(change.path, change.before, change.after) for change in last.changes] == [(LIGHT, True, False)]
    assert trace.steps[0].source is not None
    assert trace.steps[0].source.topic == "events.jsonl"


def test_a_json_list_and_lists_of_snapshots_are_read(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps([*session(), [snapshot(T0), snapshot(T0 + 1000)]]), encoding="utf-8")
    (recording,) = load_recordings(path)
    assert (len(recording.events), len(recording.snapshots)) == (4, 2)


def test_a_session_without_an_end_is_judged_as_unknown(tmp_path: Path) -> None:
    (trace,) = load(written(tmp_path, *session()[:-1]))
    assert trace.outcome is Outcome.UNKNOWN
    assert trace.is_judged


def test_records_put_aside_are_told_and_the_session_survives(tmp_path: Path) -> None:
    told: list[str] = []
    conflict = event("step", 2, agent="Someone", text="Other content, same place.", event_id="other")
    traces = list(
        load(written(tmp_path, *session()[:3], conflict, session()[3]), options=ReadOptions(warn=told.append))
    )
    assert [len(trace.steps) for trace in traces] == [2]
    assert len(told) == 1
    assert "conflict" in told[0]


@pytest.mark.parametrize(
    ("record", "place"),
    [
        (event("step", 1, agent=""), "line 5, /agent"),
        (event("step", -1, agent="A"), "line 5, /seq"),
        (event("step", 1, agent="A", ts=1.5), "line 5, /ts"),
        (event("step", 1, agent="A", ts="2026-01-01T00:00:00"), "line 5, /ts"),
        (event("step", 1, agent="A", schema_version="9.0"), "line 5, /schema_version"),
        (event("step", 10**30, agent="A"), "line 5, /seq"),
        (event("jump", 1), "line 5"),
        ({"no": "type"}, "line 5"),
    ],
)
def test_the_first_wrong_field_of_a_record_is_named(tmp_path: Path, record: Any, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        list(load_recordings(written(tmp_path, *session(), record)))
    assert caught.value.place == place


def test_a_finished_trace_is_read_as_it_stands(tmp_path: Path) -> None:
    (trace,) = load(written(tmp_path, *session()))
    (again,) = load(written(tmp_path, trace.model_dump(mode="json")))
    assert again == trace


def test_a_trace_whose_steps_are_misnumbered_is_refused(tmp_path: Path) -> None:
    (trace,) = load(written(tmp_path, *session()))
    dump = trace.model_dump(mode="json")
    dump["steps"][1]["index"] = 5
    with pytest.raises(FormatError, match="/steps/1/index"):
        list(load(written(tmp_path, dump)))


def content(trace: Trace) -> dict[str, Any]:
    """A trace without identity and source references, which a replayed session has of its own."""
    apart = {"trace_id", "first_source", "last_source"}
    dump = trace.model_dump(mode="json", exclude=apart)
    for step in dump["steps"]:
        step.pop("source")
    return dump


def test_a_trace_turned_into_events_and_back_is_the_same() -> None:
    """For each demo session: steps, vehicle state, graph and verdict survive the way round."""
    for path in sorted(resource("data/demo").glob("*.yaml")):
        (trace,) = load(path)
        (again,) = assemble(recording_of(trace))
        assert content(again) == content(trace), path.name


def test_moving_a_recording_keeps_spacing_and_may_rename_the_session() -> None:
    (recording,) = load_recordings(resource("data/demo/01_low_beam_off_at_night.yaml"))
    later = moved(recording, 5_000, rename="-b")
    assert [b.ts - a.ts for a, b in zip(recording.events, later.events, strict=True)] == [5_000] * len(
        later.events
    )
    assert {e.session_id for e in later.events} == {"low-beam-off-at-night-b"}
    replies = {e.in_reply_to for e in later.events if e.type == "step" and e.in_reply_to}
    assert replies <= {e.event_id for e in later.events}


def test_recordings_interleave_by_time_and_keep_their_own_order(tmp_path: Path) -> None:
    one, two = session("a"), session("b")
    for record in two:
        record["ts"] += 500
    one[2]["ts"] = T0  # a clock that ran backwards: the order of the file still holds
    first, second = tmp_path / "one", tmp_path / "two"
    for folder, records in ((first, one), (second, two)):
        folder.mkdir()
        written(folder, *records)
    recordings = [r for folder in (first, second) for r in load_recordings(folder / "events.jsonl")]
    merged = [record.event_id for record in in_time_order(recordings) if record.type != "vehicle_snapshot"]
    assert merged == ["a-0", "b-0", "a-1", "a-2", "b-1", "b-2", "a-3", "b-3"]
