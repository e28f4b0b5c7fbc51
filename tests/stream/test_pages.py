"""What the pages for operators show is so: metrics, the look-up program, the examples of CAN frames."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cockpithat.can import CanDecoder, load_mapping
from cockpithat.contract.can import CanFrames
from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.formats import load
from cockpithat.resources import resource
from stream.metrics import Metrics
from tests.support.kafka import KafkaBroker

DOCS = Path(__file__).resolve().parents[2] / "docs"
SUFFIX = {"counter": "_total", "info": "_info"}


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_metric_is_in_the_table_and_every_row_is_a_metric() -> None:
    names = {family.name + SUFFIX.get(family.type, "") for family in Metrics().registry.collect()}
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(cockpithat_\w+)` \| (?:counter|gauge|histogram|info) ", page, re.MULTILINE))
    assert rows == {name for name in names if name.startswith("cockpithat_")}


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_the_look_up_finds_a_trace_that_attribute_reads(kafka: KafkaBroker, tmp_path: Path) -> None:
    (program,) = blocks("operations.md", "python")
    script = tmp_path / "lookup.py"
    script.write_text(program, encoding="utf-8")
    topic = kafka.unique("traces")
    kafka.create_topics(topic)
    traces = [next(iter(load(path))) for path in sorted(resource("data/demo").glob("*.yaml"))[:2]]
    kafka.produce(topic, [(t.vehicle_id.encode(), t.model_dump_json().encode()) for t in traces])
    done = subprocess.run(
        [sys.executable, script, kafka.bootstrap_servers, topic, "trace_id", traces[1].trace_id],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    saved = tmp_path / "trace.jsonl"
    saved.write_text(done.stdout, encoding="utf-8")
    assert [trace.trace_id for trace in load(saved)] == [traces[1].trace_id]


def test_the_can_page_shows_a_mapping_a_batch_and_what_comes_of_them(
    tmp_path: Path, shared_data: Path
) -> None:
    mapping, batch, snapshots = blocks("can.md", "json")
    path = tmp_path / "mapping.json"
    path.write_text(mapping, encoding="utf-8")
    assert [leaf.path for leaf in load_mapping(path)] == ["Vehicle.Speed", "Vehicle.IsBroken"]
    frames = CanFrames.model_validate_json(batch)
    # The car of the example has no signal for IsBroken, which only shows a table.
    speed = [leaf for leaf in load_mapping(path) if leaf.path == "Vehicle.Speed"]
    decoder = CanDecoder.from_files(shared_data / "kuksa" / "Model3CAN.dbc", speed, "4.0")
    made = decoder.decode(frames.vehicle_id, frames.frames)
    assert made == [VehicleSnapshot.model_validate(one) for one in json.loads(snapshots)]
