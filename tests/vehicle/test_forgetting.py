"""A partition that went and came back: what was found wrong with its records is found again."""

from __future__ import annotations

import json

from cockpithat.vehicle.log import SnapshotLog


def test_a_bad_record_is_reported_again_to_the_next_owner_in_the_same_process() -> None:
    log = SnapshotLog()
    good = {"vehicle_id": "v1", "ts": 1_000, "kind": "full", "signals": {"Vehicle.Speed": 1.0}}
    bad = {"vehicle_id": "v1", "ts": 2_000, "signals": {"Vehicle.Speed": {"nested": 1}}}

    def found() -> list[int]:
        for offset, body in enumerate((good, bad)):
            refused = log.offer(
                b"v1", json.dumps(body).encode(), topic="t", partition=3, offset=offset, broker_ts=1_000
            )
            assert refused is None
        log.window("v1", 0, 5_000)
        return [rejected.source.offset for rejected in log.take_rejected()]

    assert found() == [1]
    assert found() == []
    log.forget_partition(3)
    assert found() == [1]
