"""The signal catalogue: right against the real VSS files, and strict about values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpithat.analysis.rules import load_rules, watched_signals
from cockpithat.contract.vehicle import SignalQuality
from cockpithat.vehicle.catalogue import CatalogueError, SignalCatalogue, expand_braces, iter_vss_leaves

VALID, INVALID = SignalQuality.VALID, SignalQuality.INVALID
SPEED = "Vehicle.Speed"


@pytest.mark.data
@pytest.mark.parametrize("version", ["4.0", "6.0"])
def test_every_signal_is_as_vss_has_it(shared_data: Path, version: str) -> None:
    leaves = json.loads((shared_data / "vss" / f"vss_{version}_leaves.json").read_text())
    catalogue = SignalCatalogue.shipped()
    paths = catalogue.paths(version)
    assert len(paths) > 150
    for path in paths:
        spec, leaf = catalogue.spec(path, version), leaves[path]
        assert spec is not None
        assert spec.datatype == leaf["datatype"], path
        assert spec.unit == leaf.get("unit"), path
        assert (spec.minimum, spec.maximum) == (leaf.get("min"), leaf.get("max")), path
        assert spec.allowed == (frozenset(leaf["allowed"]) if "allowed" in leaf else None), path


@pytest.mark.data
def test_the_cars_own_signals_of_the_real_runs_are_known(shared_data: Path) -> None:
    mapping = json.loads((shared_data / "car-bench" / "carbench_state_to_vss.json").read_text())
    catalogue = SignalCatalogue.shipped()
    for entry in mapping.values():
        for version in ("4.0", "6.0"):
            expected = entry[f"vss_{version}"] is not None
            assert (entry["vss_path"] in catalogue.paths(version)) == expected, entry["vss_path"]


def test_every_signal_that_a_rule_watches_is_known() -> None:
    assert watched_signals(load_rules()) <= SignalCatalogue.shipped().paths()


@pytest.mark.data
@pytest.mark.parametrize("name", ["vss_4.0_tree.json", "vss_4.0_leaves.json"])
def test_an_operator_loads_all_of_a_vss_version_as_tree_or_leaves(shared_data: Path, name: str) -> None:
    leaves = json.loads((shared_data / "vss" / "vss_4.0_leaves.json").read_text())
    own = SignalCatalogue.shipped()
    catalogue = own.with_vss(shared_data / "vss" / name, "4.0")
    assert catalogue.paths("4.0") == set(leaves)
    assert catalogue.spec(SPEED, "4.0") == own.spec(SPEED, "4.0")
    massage = "Vehicle.Cabin.Seat.Row2.Middle.Massage"
    assert own.check(massage, 101, "4.0") == (101, VALID)
    assert catalogue.check(massage, 101, "4.0") == (None, INVALID)


@pytest.mark.parametrize(
    ("path", "value", "good"),
    [
        (SPEED, 88.5, True),
        (SPEED, 88, True),
        (SPEED, 4095, False),  # not available, read as a number
        (SPEED, 900.0, False),
        (SPEED, "88", False),
        (SPEED, True, False),
        (SPEED, float("nan"), False),
        (SPEED, None, False),
        (SPEED, [88], False),
        ("Vehicle.Body.Lights.Beam.Low.IsOn", True, True),
        ("Vehicle.Body.Lights.Beam.Low.IsOn", 1, False),
        ("Vehicle.Body.Lights.Beam.Low.IsOn", "true", False),
        ("Vehicle.Body.Lights.LightSwitch", "OFF", True),
        ("Vehicle.Body.Lights.LightSwitch", "off", False),
        ("Vehicle.Cabin.Door.Row1.DriverSide.Window.Position", 100, True),
        ("Vehicle.Cabin.Door.Row1.DriverSide.Window.Position", 101, False),
        ("Vehicle.Cabin.Door.Row1.DriverSide.Window.Position", -1, False),
        ("Vehicle.Cabin.Door.Row1.DriverSide.Window.Position", 50.5, False),
        ("Vehicle.Powertrain.TractionBattery.StateOfCharge.Current", 127, False),
        ("Vehicle.Powertrain.Transmission.SelectedGear", 126, True),
        ("Vehicle.LowVoltageSystemState", "UNDEFINED", False),
        ("Vehicle.Somebody.Elses.Signal", "x", True),
        ("Vehicle.Somebody.Elses.Signal", {"x": 1}, False),
    ],
)
def test_values_are_checked_by_type_range_and_list(path: str, value: Any, good: bool) -> None:
    checked, quality = SignalCatalogue.shipped().check(path, value, "4.0")
    assert quality == (VALID if good else INVALID)
    assert checked == (value if good else None)


def test_an_integral_float_is_taken_for_an_integer() -> None:
    value, quality = SignalCatalogue.shipped().check("Vehicle.Cabin.Sunroof.Position", -50.0, "6.0")
    assert (value, type(value), quality) == (-50, int, VALID)


def test_the_version_decides_and_the_nearest_one_stands_in() -> None:
    catalogue = SignalCatalogue.shipped()
    temperature = "Vehicle.Cabin.HVAC.Station.Row1.Driver.Temperature"
    assert catalogue.check(temperature, 21.5, "4.0") == (None, INVALID)
    assert catalogue.check(temperature, 21.5, "6.0") == (21.5, VALID)
    assert catalogue.check(temperature, 21.5, "v4.2") == (None, INVALID)
    assert catalogue.check(temperature, 21.5, "9.9") == (21.5, VALID)
    occupied = "Vehicle.Cabin.Seat.Row1.DriverSide.IsOccupied"
    assert occupied not in catalogue.paths("6.0")
    assert catalogue.check(occupied, "yes", "6.0") == (None, INVALID)


def test_ages_follow_what_a_signal_is_for() -> None:
    catalogue = SignalCatalogue.shipped()
    assert catalogue.max_age_ms(SPEED, "4.0") < catalogue.max_age_ms("Vehicle.Exterior.AirTemperature", "4.0")
    assert catalogue.max_age_ms("Vehicle.Somebody.Elses.Signal", "4.0") == catalogue.default_age_ms


def test_braces_multiply() -> None:
    assert list(expand_braces("A.{b,c}.{d,e}")) == ["A.b.d", "A.b.e", "A.c.d", "A.c.e"]
    assert list(expand_braces("A.b")) == ["A.b"]


def test_a_tree_of_any_depth_is_read_without_recursion() -> None:
    tree: dict[str, Any] = {"datatype": "uint8"}
    for _ in range(5_000):
        tree = {"children": {"x": tree}}
    ((path, leaf),) = iter_vss_leaves({"Vehicle": tree})
    assert path.count(".") == 5_000
    assert leaf["datatype"] == "uint8"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{not json", "cannot be read as JSON"),
        ("[1]", "expected a JSON object"),
        ('{"Vehicle": {"type": "branch"}}', "no VSS leaves"),
        ('{"Vehicle.X": {"datatype": "complex"}}', "'complex' is not one that VSS has"),
    ],
)
def test_a_bad_vss_file_gets_one_clear_line(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "vss.json"
    file.write_text(content)
    with pytest.raises(CatalogueError, match=words) as caught:
        SignalCatalogue.shipped().with_vss(file, "4.0")
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_catalogue_file_says_which_signal(tmp_path: Path) -> None:
    file = tmp_path / "signals.yaml"
    file.write_text("signals:\n  - {path: A, datatype: boolean, age: never}\n")
    with pytest.raises(CatalogueError, match=r"signals\[0\]: age 'never'"):
        SignalCatalogue.load(file)
    with pytest.raises(CatalogueError, match="cannot be read"):
        SignalCatalogue.load(tmp_path / "missing.yaml")
