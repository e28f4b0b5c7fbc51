"""Which passed sessions become suspicions: the score of what they left standing, and the threshold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cockpithat.attribution import AttributionSettings, LocalAttribution
from cockpithat.contract.base import Asil
from cockpithat.resources import resource
from cockpithat.screening.fit import Screened, calibrate, calibrate_own, fit, read_own_labels
from cockpithat.screening.model import (
    ScreeningError,
    ScreeningSettings,
    Standing,
    own_calibration,
    read_calibration,
)
from cockpithat.simulator import SimulateSettings, read_labels, simulate, write
from tests.analysis.traces import lights_off

SURE, DOUBTFUL = Standing("lights", Asil.C), Standing("dome_light", Asil.QM)


def rows() -> list[Screened]:
    """100 safe sessions, ten of which left a light on inside; 30 hazardous ones."""
    return [
        *[Screened((), False)] * 89,
        *[Screened((DOUBTFUL,), False)] * 10,
        Screened((SURE,), False),
        *[Screened((SURE,), True)] * 20,
        *[Screened((DOUBTFUL,), True)] * 5,
        *[Screened((), True)] * 5,
    ]


def test_a_hazard_that_was_mostly_real_scores_higher_than_one_that_was_mostly_not() -> None:
    calibration = fit(rows(), rules_version="1")
    # Of 21 sessions with it 20 were hazardous; its ASIL, seen nowhere else, says (20 + 1) / (21 + 2) = 0.913.
    assert calibration.score([SURE]) == round((20 + 2 * 21 / 23) / (21 + 2), 6)
    assert calibration.score([DOUBTFUL]) == round((5 + 2 * 6 / 17) / (15 + 2), 6)
    assert calibration.score([DOUBTFUL, SURE]) == calibration.score([SURE])
    assert calibration.score([]) == 0.0
    # Of a rule that was never seen, its ASIL speaks; of an ASIL that was not seen either, nothing does.
    assert calibration.score([Standing("new", Asil.C)]) == round(21 / 23, 6)
    assert calibration.score([Standing("new", Asil.D)]) == 0.5


def test_a_safe_session_does_not_vouch_for_itself() -> None:
    alone = fit([Screened((SURE,), False), Screened((), False)], rules_version="1")
    assert alone.safe_scores == (0.5,)  # as if the rule had never been seen
    assert alone.score([SURE]) < 0.5


@pytest.mark.parametrize(
    ("rate", "allowed"), [(0, 0), (9, 0), (10, 0), (20, 1), (109, 10), (119, 11), (1000, 11)]
)
def test_no_more_safe_sessions_are_told_of_than_the_rate_allows(rate: float, allowed: int) -> None:
    """With k = floor(rate / 1000 * 101) those above the k-th highest; all eleven from k = 12 on."""
    calibration = fit(rows(), rules_version="1")
    told = sum(score > calibration.threshold(rate) for score in calibration.safe_scores)
    assert told <= allowed
    if rate in (0, 20, 119, 1000):
        assert told == allowed


def test_the_rate_decides_what_a_passed_session_becomes() -> None:
    """Driving on without light at night is told of at any rate that lets anything through."""

    def screened(rate: float) -> bool:
        screening = ScreeningSettings(false_alarms_per_1000=rate)
        return LocalAttribution(AttributionSettings(screening=screening)).screen(trace) is not None

    trace = lights_off(failed=False)
    assert screened(1000) and screened(20)
    suspicion = LocalAttribution().screen(trace)
    assert suspicion is not None and suspicion.score is not None
    assert suspicion.screening == own_calibration().digest
    thresholds = [own_calibration().threshold(rate) for rate in (0, 20, 100, 1000)]
    assert thresholds == sorted(thresholds, reverse=True)


def test_the_shipped_calibration_is_of_the_shipped_rules() -> None:
    assert own_calibration().rules_version == LocalAttribution().rules.version


def test_the_screening_changes_no_verdict_and_no_digest() -> None:
    other = AttributionSettings(screening=ScreeningSettings(false_alarms_per_1000=1000))
    one, two = LocalAttribution().judge(lights_off()), LocalAttribution(other).judge(lights_off())
    assert one.provenance == two.provenance
    assert one.model_copy(update={"seconds": 0}) == two.model_copy(update={"seconds": 0})


def test_a_file_that_is_no_calibration_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    with pytest.raises(ScreeningError, match=r"c\.json: cannot be read"):
        read_calibration(file)
    file.write_text('{"format": "something"}')
    with pytest.raises(ScreeningError, match=r"c\.json: format: .*cockpithat screening"):
        read_calibration(file)
    whole = own_calibration().model_dump_json()
    file.write_text(re.sub(r'"safe_scores":\[[0-9.]+', '"safe_scores":[NaN', whole))
    with pytest.raises(ScreeningError, match="finite"):
        read_calibration(file)
    file.write_text(whole)
    assert read_calibration(file) == own_calibration()


@pytest.mark.parametrize("rate", [0, 20, 100, 500])
@pytest.mark.parametrize("n", [1, 30, 339])
def test_a_session_like_the_safe_ones_is_told_of_no_more_often_than_stated(rate: float, n: int) -> None:
    """Whichever of n + 1 distinct scores is the new one; exact, so no luck is in it."""
    scores = [(i + 1) / (n + 1) for i in range(n + 1)]
    told = 0
    for new in range(n + 1):
        others = sorted(scores[:new] + scores[new + 1 :], reverse=True)
        calibration = own_calibration().model_copy(update={"safe_sessions": n, "safe_scores": tuple(others)})
        told += scores[new] > calibration.threshold(rate)
    assert told == int(rate / 1000 * (n + 1) + 1e-9)


def test_too_few_safe_sessions_support_no_low_rate() -> None:
    calibration = fit(rows()[:12], rules_version="1")
    assert calibration.sessions_needed(20) == 49
    assert not any(score > calibration.threshold(20) for score in (0.0, 0.5, 1.0))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("safe_scores", [0.1, 0.9], "highest first"),
        ("safe_scores", [5.0], "less than or equal to 1"),
        ("safe_scores", [-5.0], "greater than or equal to 0"),
        ("safe_scores", ["0.5"], "valid number"),
        ("safe_sessions", 1, "more safe_scores"),
        ("safe_sessions", "339", "valid integer"),
        ("safe_sessions", 10**30, "less than or equal"),
        ("rules", {"lights": {"hazardous": 10**400}}, "less than or equal"),
    ],
)
def test_a_calibration_that_contradicts_itself_is_refused(
    tmp_path: Path, field: str, value: object, said: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({**json.loads(own_calibration().model_dump_json()), field: value}))
    with pytest.raises(ScreeningError, match=said):
        read_calibration(file)


def test_a_calibration_of_other_rules_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(own_calibration().model_copy(update={"rules_version": "9"}).model_dump_json())
    settings = AttributionSettings(screening=ScreeningSettings(calibration=file))
    with pytest.raises(ScreeningError, match=r"c\.json: made with hazard rules 9"):
        LocalAttribution(settings)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screened")
    settings = SimulateSettings(traces=0, passed=12, silent_hazards=4, seed=5)
    write(simulate(settings), folder, settings)
    return folder


def test_a_session_that_is_there_twice(written: Path) -> None:
    for twice in (written, written / "."):
        with pytest.raises(ValueError, match="is there 2 times"):
            calibrate([written, twice])


def test_a_session_without_an_end_or_with_anothers_events(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    session = next(x.session_id for x in read_labels(folder) if not x.scenario.held_out)
    file = folder / "traces" / f"{session}.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:5]), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{session} has no end"):
        calibrate([folder])
    other = next(p for p in sorted((folder / "traces").iterdir()) if p != file)
    file.write_text("".join(lines) + other.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ValueError, match="other sessions than the one it is named for"):
        calibrate([folder])


def test_without_safe_sessions_there_is_no_rate_to_keep() -> None:
    with pytest.raises(ValueError, match="no session is safe"):
        fit([Screened((SURE,), True)], rules_version="1")


class TestCommand:
    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stream.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def test_what_cannot_be_used_is_said_in_one_line(self, tmp_path: Path) -> None:
        told = self.run("screening", tmp_path, "--out", tmp_path / "c.json")
        assert told.returncode == 1
        assert told.stderr.strip().endswith(
            "no labels.jsonl in it; give folders that `cockpithat simulate` wrote"
        )
        told = self.run("screening", tmp_path, "--out", tmp_path / "missing" / "c.json")
        assert told.returncode == 2
        assert "is no folder" in told.stderr

    def test_a_fleet_calibrates_on_sessions_that_somebody_judged(self, written: Path, tmp_path: Path) -> None:
        files, judged = own_sessions(written, tmp_path)
        out = tmp_path / "c.json"
        told = self.run("screening", *files, "--labels", judged, "--out", out)
        assert told.returncode == 0, told.stderr
        assert "safe sessions" in told.stdout and read_calibration(out).source.endswith("judged.csv")
        judged.write_text("session_id,hazardous\nnobody,no\n")
        told = self.run("screening", *files, "--labels", judged, "--out", out)
        assert told.returncode == 1 and "'nobody' is in none of the files" in told.stderr

    def test_a_calibration_that_is_none_stops_attribute_and_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "c.json"
        file.write_text('{"format": "cockpithat-screening", "safe_sessions": 1e400}')
        config = tmp_path / "settings.yaml"
        config.write_text(f"attribution: {{screening: {{calibration: {file}}}}}")
        trace = resource("data/demo/01_low_beam_off_at_night.yaml")
        told = self.run("attribute", "--config", config, trace)
        assert told.returncode == 1
        (line,) = told.stderr.strip().splitlines()
        assert str(file) in line and "cockpithat screening" in line


def own_sessions(written: Path, tmp_path: Path) -> tuple[list[Path], Path]:
    """A simulated folder as a fleet has it: session files, and a list of what somebody says of them."""
    labels = [
        label for label in read_labels(written) if label.kind != "failed" and not label.scenario.held_out
    ]
    judged = tmp_path / "judged.csv"
    lines = [f"{label.session_id},{'yes' if label.kind == 'silent_hazard' else 'no'}" for label in labels]
    judged.write_text("session_id,hazardous\n" + "\n".join(lines) + "\n")
    return sorted((written / "traces").glob("*.jsonl")), judged


def test_a_fleets_own_sessions_calibrate_as_a_simulated_folder_does(written: Path, tmp_path: Path) -> None:
    files, judged = own_sessions(written, tmp_path)
    own, others = calibrate_own(files, judged)
    assert own.model_copy(update={"source": ""}) == calibrate([written]).model_copy(update={"source": ""})
    passed = [label for label in read_labels(written) if label.kind != "failed"]
    assert others == len(passed) - own.safe_sessions - own.hazardous_sessions


def test_labels_that_do_not_fit_the_sessions_are_refused(written: Path, tmp_path: Path) -> None:
    files, judged = own_sessions(written, tmp_path)
    failed = resource("data/demo/01_low_beam_off_at_night.yaml")
    with pytest.raises(ValueError, match="is there twice"):
        calibrate_own([*files, *files], judged)
    good = judged.read_text()
    judged.write_text(good + "nobody,no\n")
    with pytest.raises(ValueError, match=r"'nobody' is in none of the files \(1 such\)"):
        calibrate_own(files, judged)
    judged.write_text(good + "low-beam-off-at-night,no\n")
    with pytest.raises(ValueError, match="did not pass"):
        calibrate_own([failed, *files], judged)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("session,hazardous\na,no\n", "line 1: no column 'session_id'"),
        ("", "line 1: no column 'hazardous'"),
        ("session_id,hazardous\na,no\nb,perhaps\n", "line 3: needs"),
        ("session_id,hazardous\n,no\n", "line 2: needs"),
        ("session_id,hazardous\na\n", "line 2: needs"),
        ("session_id,hazardous\na,no\na,yes\n", "line 3: session 'a' has a label already"),
    ],
)
def test_a_list_of_labels_that_cannot_be_used_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "judged.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_own_labels(path)


def test_a_list_of_labels_reads_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "judged.csv"
    path.write_bytes('\ufeffnote,session_id,hazardous\r\n"seen, twice",a,TRUE\r\n,b, 0 \r\n'.encode())
    assert read_own_labels(path) == {"a": True, "b": False}
