"""The snapshot log's intake against bare JSON parsing, in one process on one core.

    python tests/bench/bench_snapshots.py [--records 200000] [--vehicles 200] [--signals 12] [--rounds 5]

Prints messages a second of ``orjson.loads`` alone and of ``SnapshotLog.offer`` over the same bytes, and
their ratio (median of the rounds, with the lowest and highest), for deltas, single and in lists of ten, for
full snapshots, and with a ring so small that every record is folded. Bytes a vehicle are the log's own
account beside what the process really grew by.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import orjson

from cockpithat.vehicle.catalogue import SignalCatalogue
from cockpithat.vehicle.log import SnapshotLog
from cockpithat.vehicle.settings import SnapshotSettings

T0 = 1_767_225_600_000
Message = tuple[bytes, bytes]


def messages(records: int, vehicles: int, signals: int, full_every: int) -> list[Message]:
    """Keyed snapshots of all vehicles in turn, ten a second of each."""
    rng = random.Random(7)
    catalogue = SignalCatalogue.shipped()
    numeric = sorted(
        path
        for path in catalogue.paths("4.0")
        if (spec := catalogue.spec(path, "4.0")) and spec.datatype in {"float", "uint8", "boolean"}
    )
    made: list[Message] = []
    for number in range(records):
        vehicle = f"WVWZZZ1KZAW{number % vehicles:06d}"
        tick = number // vehicles
        is_full = tick % full_every == 0
        paths = numeric if is_full else rng.sample(numeric, k=min(signals, len(numeric)))
        value = {
            "type": "vehicle_snapshot",
            "schema_version": "1.0",
            "vehicle_id": vehicle,
            "ts": T0 + 100 * tick,
            "kind": "full" if is_full else "delta",
            "vss_version": "4.0",
            "signals": {path: round(rng.uniform(0, 100), 2) for path in paths},
        }
        made.append((vehicle.encode(), orjson.dumps(value)))
    return made


def in_lists(single: list[Message], vehicles: int, size: int) -> list[Message]:
    """The same snapshots, as many of a vehicle's in a message."""
    made: list[Message] = []
    for vehicle in range(vehicles):
        own = single[vehicle::vehicles]
        for first in range(0, len(own), size):
            values = b",".join(value for _, value in own[first : first + size])
            made.append((own[first][0], b"[" + values + b"]"))
    return made


def seconds(work: Callable[[], None]) -> float:
    """Processor time, which other work on the machine disturbs least."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def parse(batch: list[Message]) -> None:
    loads = orjson.loads
    for _, value in batch:
        loads(value)


def offer(batch: list[Message], settings: SnapshotSettings) -> None:
    log = SnapshotLog(settings)
    take = log.offer
    for offset, (key, value) in enumerate(batch):
        if take(key, value, topic="s", partition=0, offset=offset, broker_ts=T0) is not None:
            raise SystemExit(f"message {offset} was refused")


def measure(name: str, batch: list[Message], settings: SnapshotSettings, rounds: int) -> None:
    pairs = [(seconds(lambda: parse(batch)), seconds(lambda: offer(batch, settings))) for _ in range(rounds)]
    ratios = sorted(mine / bare for bare, mine in pairs)
    bare = len(batch) / statistics.median(pair[0] for pair in pairs)
    mine = len(batch) / statistics.median(pair[1] for pair in pairs)
    size = statistics.mean(len(value) for _, value in batch)
    print(
        f"{name:<28} {size:7.0f} B  parse {bare:10,.0f}/s  offer {mine:10,.0f}/s  "
        f"time ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, n={rounds})"
    )


def memory(batch: list[Message]) -> None:
    tracemalloc.start()
    copies = [(bytes(bytearray(key)), bytes(bytearray(value))) for key, value in batch]
    base = tracemalloc.get_traced_memory()[0] - sum(
        sys.getsizeof(key) + sys.getsizeof(value) for key, value in copies
    )
    log = SnapshotLog()
    for offset, (key, value) in enumerate(copies):
        log.offer(key, value, topic="s", partition=0, offset=offset, broker_ts=T0)
    copies.clear()
    real = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    print(f"memory: accounted {log.memory_bytes:,} B, measured about {real:,} B, {log.vehicles} vehicles")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--vehicles", type=int, default=200)
    parser.add_argument("--signals", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    deltas = messages(args.records, args.vehicles, args.signals, full_every=10**9)
    mixed = messages(args.records, args.vehicles, args.signals, full_every=100)
    default = SnapshotSettings()
    measure("deltas", deltas, default, args.rounds)
    measure("deltas in lists of ten", in_lists(deltas, args.vehicles, 10), default, args.rounds)
    measure("a full one in a hundred", mixed, default, args.rounds)
    measure("deltas, every one folded", deltas, SnapshotSettings(ring_records=50), args.rounds)
    tight = SnapshotSettings(max_bytes=16 * 2**20)
    measure("deltas, budget of 16 MiB", deltas, tight, args.rounds)
    memory(deltas[: args.records // 4])


if __name__ == "__main__":
    main()
