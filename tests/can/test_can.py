"""CAN frames to VSS: on the real log at hand, and on what its codes and ranges must become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpithat.can import CanDecoder, CanMappingError, Formula, FormulaError, load_mapping
from cockpithat.can.candump import read_candump
from cockpithat.contract.can import CanFrame


@pytest.fixture(scope="module")
def kuksa(shared_data: Path) -> Path:
    return shared_data / "kuksa"


@pytest.fixture
def decoder(kuksa: Path) -> CanDecoder:
    return CanDecoder.from_files(kuksa / "Model3CAN.dbc", load_mapping(kuksa / "vss_dbc.json"), "4.0")


def frame(id: int, data: str, ts: int = 1000) -> CanFrame:
    return CanFrame(ts=ts, id=id, data=data)


def test_the_real_log_decodes_whole_and_lands_on_the_grid(decoder: CanDecoder, kuksa: Path) -> None:
    frames = list(read_candump(kuksa / "candump_Manual_SOC_DogMode_CabinTemp.log"))
    assert len(frames) == 12138
    snapshots = decoder.decode("v", frames)
    counts = decoder.counts
    assert counts.decoded + counts.unmapped + counts.undecodable == 12138
    assert counts.undecodable == 0
    assert counts.decoded > 0
    assert snapshots
    assert all(snapshot.ts % 100 == 0 for snapshot in snapshots)
    assert [snapshot.ts for snapshot in snapshots] == sorted({snapshot.ts for snapshot in snapshots})
    paths = {path for snapshot in snapshots for path in snapshot.signals}
    assert "Vehicle.Speed" in paths
    leaves = json.loads((kuksa.parent / "vss" / "vss_4.0_leaves.json").read_text())
    types = {"boolean": bool, "float": float, "int8": int, "int16": int, "string": str}
    for snapshot in snapshots:
        for path, value in snapshot.signals.items():
            if value is not None and path in leaves:
                assert type(value) is types[leaves[path]["datatype"]], path


def test_a_not_available_code_is_not_a_value(decoder: CanDecoder) -> None:
    """DI_uiSpeed (0x257, bits 24..32) carries SNA as 511: it must not read as 511 km/h."""
    raw = 511 << 24
    (snapshot,) = decoder.decode("v", [frame(0x257, raw.to_bytes(8, "little").hex())])
    assert snapshot.signals["Vehicle.Speed"] is None
    assert decoder.counts.unavailable == 2  # Vehicle.Speed and Vehicle.OBD.Speed


def test_a_lamp_fault_is_unknown_and_not_off(decoder: CanDecoder) -> None:
    message = decoder._messages[(0x3E3, False)].message
    for state, expected in (
        ("LIGHT_OFF", False),
        ("LIGHT_ON", True),
        ("LIGHT_FAULT", None),
        ("LIGHT_SNA", None),
    ):
        values = {signal.name: 0 for signal in message.signals} | {"VCRIGHT_reverseLightStatus": state}
        data = message.encode(values, strict=False).hex()
        (snapshot,) = decoder.decode(f"v-{state}", [frame(0x3E3, data)])
        assert snapshot.signals["Vehicle.Body.Lights.Backup.IsOn"] is expected


def test_an_unmapped_gear_is_unknown(decoder: CanDecoder) -> None:
    message = decoder._messages[(0x118, False)].message
    for gear, expected in (("DI_GEAR_D", 1), ("DI_GEAR_R", -1), ("DI_GEAR_N", None), ("DI_GEAR_SNA", None)):
        values = {signal.name: 0 for signal in message.signals} | {"DI_gear": gear}
        (snapshot,) = decoder.decode(f"v-{gear}", [frame(0x118, message.encode(values, strict=False).hex())])
        assert snapshot.signals["Vehicle.Powertrain.Transmission.CurrentGear"] == expected


def test_an_unchanged_value_comes_again_only_after_its_interval(decoder: CanDecoder) -> None:
    data = (50 << 24).to_bytes(8, "little").hex()
    at = [1000, 1010, 1050, 1100, 1150, 1200]
    snapshots = decoder.decode("v", [frame(0x257, data, ts) for ts in at])
    assert [snapshot.ts for snapshot in snapshots] == [1000, 1100, 1200]


def test_unknown_and_short_frames_are_counted_and_skipped(decoder: CanDecoder) -> None:
    assert decoder.decode("v", [frame(0x7FF, "00")]) == []
    assert decoder.counts.unmapped == 1
    decoder.decode("v", [frame(0x257, "")])
    assert decoder.counts.undecodable + decoder.counts.decoded == 1


def test_formulas_compute_and_refuse_what_is_outside_the_language() -> None:
    assert Formula("floor((x*40)-100)")(2.6) == 4
    assert Formula("(x+100)/40")(20) == 3
    assert Formula("-abs(x % 7)")(10) == -3
    for bad in ("__import__('os')", "x**9", "y", "x if x else 1", "f(x)", "x,", "True", "(" * 500):
        with pytest.raises(FormulaError):
            Formula(bad)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ("{}", "no leaf"),
        ('{"Vehicle": {"children": {"Speed": {"dbc2vss": {}}}}}', "Vehicle.Speed.dbc2vss needs a 'signal'"),
        ('{"Vehicle": {"dbc2vss": {"signal": "s", "transform": {"math": "x**2"}}}}', "transform.math"),
        ('{"Vehicle": {"dbc2vss": {"signal": "s", "transform": {"mapping": [{"from": 1}]}}}}', "each row"),
        ('{"Vehicle": {"dbc2vss": {"signal": "s", "transform": 3}}}', "must be"),
    ],
)
def test_a_bad_mapping_says_where(tmp_path: Path, body: str, says: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(body)
    with pytest.raises(CanMappingError, match=says) as caught:
        load_mapping(path)
    assert str(path) in str(caught.value)


def test_a_mapping_for_another_dbc_is_refused(kuksa: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(
        '{"Vehicle": {"children": {"Speed": {"datatype": "float", "dbc2vss": {"signal": "nope"}}}}}'
    )
    with pytest.raises(CanMappingError, match="nope"):
        CanDecoder.from_files(kuksa / "Model3CAN.dbc", load_mapping(path), "4.0")


def test_a_file_that_is_no_dbc_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.dbc"
    path.write_text("hello")
    with pytest.raises(CanMappingError, match="not a DBC"):
        CanDecoder.from_files(path, (), "4.0")
