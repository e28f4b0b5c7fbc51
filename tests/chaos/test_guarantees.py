"""What is promised of delivery, with workers that are killed all the time.

One load goes through undisturbed workers; the same load goes through workers that are killed, joined and
left, on a broker that is restarted. Nobody who reads the outputs can tell which was which.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import Scale
from tests.chaos.feeding import Feeder
from tests.chaos.fleet import Fleet, Happening, play, wait_ready
from tests.chaos.load import Load, build
from tests.chaos.outputs import DEAD_LETTERS, Outputs, assert_equal, assert_garbage_put_aside
from tests.stream.cockpit import Cluster
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1_100)]

_HOUR_MS = 3_600_000


def _settings(scale: Scale) -> dict[str, dict[str, Any]]:
    return {
        "kafka": {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 900},
        "worker": {
            "commit_interval_ms": 300,
            "tick_interval_ms": 100,
            "pool_size": 2,
            # The load's own time is fixed and may lie back; alerts are to be compared, too.
            "page_max_age_ms": 24 * _HOUR_MS,
        },
        # Waits of the wall clock decide by design what a session still gets. Here none must run out only
        # because a worker or the broker was dead for a while.
        "engine": {
            "silence_ms": scale.silence_ms,
            "end_wait_ms": scale.silence_ms // 2,
            "snapshot_wait_ms": 120_000,
        },
    }


def _run(
    cluster: Cluster,
    load: Load,
    folder: Path,
    *,
    seconds: float,
    happenings: Callable[[Fleet, list[threading.Thread]], list[Happening]] = lambda *_: [],
) -> Outputs:
    """Send the load through two workers; everything that came out once all is done and they have stopped."""
    folder.mkdir()
    fleet = Fleet(cluster, folder)
    outputs = Outputs(cluster)
    beside: list[threading.Thread] = []
    try:
        fleet.start()
        feeder = Feeder(cluster, load.records, seconds=seconds).start()

        def between() -> None:
            fleet.keep_up()
            outputs.poll(0.1)

        play(happenings(fleet, beside), lambda: feeder.share, between, timeout_s=seconds + 300)
        while feeder.share < 1:
            between()
        feeder.finish()
        for thread in beside:
            thread.join(60)

        def done(_: Outputs) -> bool:
            fleet.keep_up()
            letters = sum(outputs.count(role) for role in DEAD_LETTERS)
            return outputs.count("sessions") >= load.summaries and letters >= len(load.garbage)

        in_time = outputs.until(done, 150)
        codes = fleet.stop()
        # Read anew: what lies in the topics counts, not what a reader may see twice over a broker's restart.
        final = Outputs(cluster)
        try:
            final.to_end()
        finally:
            final.close()
        outputs.assert_still_there(final)
        assert_garbage_put_aside(load, final)
        assert in_time, _shortfall(load, final)
        assert codes == [0] * len(codes)
        return final
    finally:
        fleet.close()
        outputs.close()


def _shortfall(load: Load, outputs: Outputs) -> str:
    have = {body["session_id"] for body in outputs.bodies("sessions")}
    without = sorted(load.sessions.keys() - have)
    letters = sum(outputs.count(role) for role in DEAD_LETTERS)
    return (
        f"{outputs.count('sessions')} of {load.summaries} summaries, {len(without)} sessions without: "
        f"{without[:5]}; {letters} of {len(load.garbage)} dead letters"
    )


def test_a_disturbed_run_is_equal_to_an_undisturbed_one(
    chaos_kafka: KafkaBroker, tmp_path: Path, scale: Scale, figures: Callable[..., None]
) -> None:
    start_ms = time.time_ns() // 1_000_000 - _HOUR_MS
    load = build(scale.sessions, seed=scale.seed, start_ms=start_ms)
    chance = random.Random(scale.seed)
    began = time.monotonic()
    calm = _run(Cluster(chaos_kafka, overrides=_settings(scale)), load, tmp_path / "calm", seconds=0)
    calm_seconds = time.monotonic() - began
    seen = {"kills": 0, "joins": 0, "leaves": 0, "broker restarts": 0}

    def happenings(fleet: Fleet, beside: list[threading.Thread]) -> list[Happening]:
        def kill() -> None:
            fleet.kill(chance)
            seen["kills"] += 1

        def join() -> None:
            guest = fleet.invite()
            seen["joins"] += 1

            def leave() -> None:
                with suppress(
                    AssertionError
                ):  # the broker may be away: then it leaves without having been ready
                    wait_ready(guest, 30)
                if fleet.see_off(guest) == 0:
                    seen["leaves"] += 1

            thread = threading.Thread(target=leave, name="leave", daemon=True)
            thread.start()
            beside.append(thread)

        def restart() -> None:
            chaos_kafka.restart()
            seen["broker restarts"] += 1

        moments = [Happening(chance.uniform(0.03, 0.97), "SIGKILL", kill) for _ in range(scale.kills)]
        rounds = [(index + 0.5) / scale.rebalances for index in range(scale.rebalances)]
        moments += [Happening(share, "a worker joins and leaves", join) for share in rounds]
        return [*moments, Happening(0.6, "the broker restarts", restart)]

    began = time.monotonic()
    disturbed = _run(
        Cluster(chaos_kafka, overrides=_settings(scale)),
        load,
        tmp_path / "disturbed",
        seconds=scale.seconds,
        happenings=happenings,
    )
    compared = assert_equal(calm, disturbed)
    letters = assert_garbage_put_aside(load, disturbed)
    assert compared["sessions"] == load.summaries
    assert (seen["kills"], seen["leaves"]) == (scale.kills, scale.rebalances)
    figures(
        sessions=scale.sessions,
        records={role: load.count(role) for role in ("session_events", "vehicle_snapshots")},
        irregular={**load.irregular, "flagged late": len(load.flagged_late)},
        compared=compared,
        dead_letters=letters,
        seed=scale.seed,
        **seen,
        calm_seconds=round(calm_seconds),
        disturbed_seconds=round(time.monotonic() - began),
    )
