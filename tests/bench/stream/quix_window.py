"""Quix Streams counting the snapshots of a session window; runs in an environment of its own.

python quix_window.py BOOTSTRAP TOPIC COUNT STATE_DIR      prints one JSON line
"""

import json
import logging
import sys
import time

import quixstreams  # type: ignore[import-not-found]
from quixstreams import Application


def main() -> None:
    """Read COUNT messages through a session window with state in RocksDB, as Quix comes."""
    bootstrap, topic_name, count, state_dir = sys.argv[1:5]
    logging.disable(logging.WARNING)
    app = Application(
        broker_address=bootstrap,
        consumer_group=f"quix-{time.time_ns()}",
        auto_offset_reset="earliest",
        auto_create_topics=True,
        state_dir=state_dir,
        loglevel=None,
    )
    topic = app.topic(topic_name, value_deserializer="json", timestamp_extractor=lambda v, *_: v["ts"])
    wanted = int(count)
    taken = 0
    begun = ended = cpu = 0.0

    def seen(value: object) -> object:
        nonlocal taken, begun, ended, cpu
        if not taken:
            begun, cpu = time.perf_counter(), time.process_time()
        taken += 1
        if taken == wanted:  # run(count=...) would count what comes out of windows
            ended, cpu = time.perf_counter(), time.process_time() - cpu
            app.stop()
        return value

    frame = app.dataframe(topic).apply(seen)
    frame = frame.session_window(30_000, grace_ms=0).reduce(
        reducer=lambda window, value: {
            "n": window["n"] + 1,
            "signals": {**window["signals"], **value["signals"]},
        },
        initializer=lambda value: {"n": 1, "signals": value["signals"]},
        merger=lambda one, two: {"n": one["n"] + two["n"], "signals": {**one["signals"], **two["signals"]}},
    )
    frame = frame.final()
    app.run(timeout=60)
    if taken < wanted:
        raise SystemExit(f"error: {taken} of {wanted} messages")
    figures = {"count": wanted, "seconds": ended - begun, "cpu": cpu, "version": quixstreams.__version__}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
