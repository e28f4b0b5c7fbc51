"""A fleet that drives in the dark: snapshots in lists of ten, and sessions that switch the light off.

Shared by the latency benchmark and the soak. A list is rendered from a template, because the generator
shares the cores with what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from confluent_kafka import Producer

from tests.bench.stream import workload

BASE = {
    "Vehicle.Speed": 96.0,
    "Vehicle.IsMoving": True,
    "Vehicle.Exterior.LightIntensity": 2.0,
    "Vehicle.Body.Lights.Beam.Low.IsOn": True,
    "Vehicle.Body.Lights.Beam.High.IsOn": False,
    "Vehicle.Powertrain.Transmission.SelectedGear": 5,
    "Vehicle.Cabin.Light.IsDomeOn": False,
}
_ITEM = (
    b'{"type":"vehicle_snapshot","schema_version":"1.0","vehicle_id":"%b","ts":%d,"kind":"%b",'
    b'"vss_version":"4.0","signals":%b}'
)
_FULL = orjson.dumps(BASE)


def one_second(vehicle: bytes, start_ms: int, *, light: bool, full: bool = True) -> bytes:
    """Ten snapshots, 100 ms apart, the first at ``start_ms``."""
    items = []
    for number in range(10):
        if number == 0:
            items.append(_ITEM % (vehicle, start_ms, b"full" if full else b"delta", _with_light(light)))
        else:
            signals = b'{"Vehicle.Speed":%d.%d,"Vehicle.Chassis.SteeringWheel.Angle":%d}' % (
                90 + start_ms // 1000 % 10,
                number,
                number - 5,
            )
            items.append(_ITEM % (vehicle, start_ms + 100 * number, b"delta", signals))
    return b"[" + b",".join(items) + b"]"


def _with_light(light: bool) -> bytes:
    return _FULL if light else _FULL.replace(b'Low.IsOn":true', b'Low.IsOn":false')


def session(number: int, vehicle: str, start_ms: int, span_ms: int) -> Iterator[tuple[int, bytes]]:
    """When, and what: the first demo session (light off at night), which ends in an alert."""
    # Every tenth template is the first one.
    for _, value in workload.session(number * 10, vehicle, start_ms, snapshots=True, span_ms=span_ms):
        yield orjson.loads(value)["ts"], value


def producer(bootstrap: str, **options: Any) -> Producer:
    """With the partitioner that Java and Faust use."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
            **options,
        }
    )
