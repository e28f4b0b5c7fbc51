"""The short cut for plain numbers says what the full check says."""

from __future__ import annotations

import math

import pytest

from cockpithat.contract.vehicle import SignalQuality
from cockpithat.vehicle.catalogue import VERSIONS, SignalCatalogue

TRIED = (-1e300, -40.0, -1.0, 0.0, 0.5, 1.0, 50.0, 100.0, 101.0, 255.0, 256.0, 1e300)


@pytest.mark.parametrize("version", [*VERSIONS, "4", "unheard of"])
def test_bounds_agree_with_the_check(version: str) -> None:
    catalogue = SignalCatalogue.shipped()
    plain = catalogue.plain_bounds(version)
    assert all(plain[kind] for kind in (float, int, bool))
    for kind in (float, int):
        for path, (low, high, none) in plain[kind].items():
            edges = [edge for edge in (low, high, low - 1, high + 1) if math.isfinite(edge)]
            for value in map(kind, (*TRIED, *edges, *none)):
                good = low <= value <= high and value not in none
                expected = (value, SignalQuality.VALID) if good else (None, SignalQuality.INVALID)
                assert catalogue.check(path, value, version) == expected, path
    for path in plain[bool]:
        for answer in (False, True):
            assert catalogue.check(path, answer, version) == (answer, SignalQuality.VALID), path


def test_what_no_number_can_be_is_left_to_the_check() -> None:
    """Signals with a list of values have no bounds; a reading that stands for none is named with them."""
    catalogue = SignalCatalogue.shipped()
    plain = catalogue.plain_bounds("4.0")
    for path in plain[int] | plain[float]:
        spec = catalogue.spec(path, "4.0")
        assert spec is not None and spec.allowed is None
    assert plain[float]["Vehicle.Speed"][2] == {655.35, 511, 4095}
