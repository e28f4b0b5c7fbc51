"""A calibration of the screening from labelled sessions that passed, simulated or a fleet's own."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cockpithat.analysis.hazards import HazardEngine
from cockpithat.analysis.rules import load_rules
from cockpithat.contract.base import Asil, Outcome
from cockpithat.formats import load
from cockpithat.ranking.labelled import TRAINING, cockpitbench
from cockpithat.screening.model import ScreeningCalibration, Seen, Standing, score_of, standing
from cockpithat.simulator.benchmark import LABELS_FILE, read_labels

_ANSWERS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Screened(NamedTuple):
    """A labelled session: what it left standing, and whether that was a hazard indeed."""

    left: tuple[Standing, ...]
    hazardous: bool


def sessions(folder: Path, engine: HazardEngine, families: str = TRAINING) -> Iterator[Screened]:
    """Passed sessions and silent hazards of a simulated benchmark, of one kind of families."""
    for trace, label in cockpitbench(folder, families, failed=False):
        if trace.outcome is Outcome.UNKNOWN:
            raise ValueError(f"{folder}: session {label.session_id} has no end; write the folder again")
        yield Screened(standing(engine.scan(trace).hazards()), label.kind == "silent_hazard")


def calibrate(folders: Sequence[Path], rules_file: Path | None = None) -> ScreeningCalibration:
    """From folders that ``cockpithat simulate`` wrote; hold-out families are left out.

    Raises ``ValueError`` when there is no safe session, ``RulesError`` for a rules file that is wrong.
    """
    for folder in folders:
        if not (folder / LABELS_FILE).is_file():
            raise ValueError(
                f"{folder}: no {LABELS_FILE} in it; give folders that `cockpithat simulate` wrote"
            )
    rules = load_rules(rules_file)
    engine = HazardEngine(rules)
    labelled = Counter(label.session_id for folder in folders for label in read_labels(folder))
    if twice := [name for name, times in labelled.items() if times > 1]:
        raise ValueError(
            f"session {twice[0]} is there {labelled[twice[0]]} times ({len(twice)} such); give each folder "
            "once: a session that is there twice vouches for itself"
        )
    rows = [row for folder in folders for row in sessions(folder, engine)]
    names = ", ".join(folder.resolve().name for folder in folders)
    if not any(not row.hazardous for row in rows):
        raise ValueError(
            f"{names}: no safe session of families that may train (hold-out families are left out); give "
            "folders that `cockpithat simulate` wrote with --passed and --silent-hazards"
        )
    return fit(rows, rules_version=rules.version, source=f"{len(labelled)} simulated sessions in {names}")


def calibrate_own(
    files: Sequence[Path], labels: Path, rules_file: Path | None = None
) -> tuple[ScreeningCalibration, int]:
    """From session files of any format and :func:`read_own_labels` of those of them that somebody judged.

    The second value is how many passed sessions have no label and were left out. Raises ``ValueError`` for a
    label without a passed session or a session that is there twice, ``FormatError``, ``RulesError``.
    """
    hazardous = read_own_labels(labels)
    rules = load_rules(rules_file)
    engine = HazardEngine(rules)
    rows: dict[str, Screened] = {}
    others = 0
    for file in files:
        for trace in load(file):
            label = hazardous.get(trace.session_id)
            if label is None:
                others += not trace.is_judged
                continue
            if trace.session_id in rows:
                raise ValueError(
                    f"{file}: session {trace.session_id!r} is there twice: it would vouch for itself"
                )
            if trace.is_judged:
                raise ValueError(
                    f"{file}: session {trace.session_id!r} did not pass; only those that passed are screened"
                )
            rows[trace.session_id] = Screened(
                standing(engine.scan(trace).hazards()), hazardous[trace.session_id]
            )
    if missing := [name for name in hazardous if name not in rows]:
        raise ValueError(f"{labels}: session {missing[0]!r} is in none of the files ({len(missing)} such)")
    source = f"{len(rows)} sessions of {labels.name}"
    return fit(rows.values(), rules_version=rules.version, source=source), others


def read_own_labels(path: Path) -> dict[str, bool]:
    """Session id to whether it ended in a hazard, from CSV with the columns ``session_id`` and ``hazardous``.

    Raises ``ValueError`` with the line that cannot be used.
    """
    found: dict[str, bool] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if missing := {"session_id", "hazardous"} - set(rows.fieldnames or ()):
            raise ValueError(f"{path}: line 1: no column {min(missing)!r}; it takes session_id and hazardous")
        for row in rows:
            name, answer = (row["session_id"] or "").strip(), (row["hazardous"] or "").strip().casefold()
            if not name or answer not in _ANSWERS:
                raise ValueError(
                    f"{path}: line {rows.line_num}: needs a session_id, and hazardous as true or false"
                )
            if name in found:
                raise ValueError(f"{path}: line {rows.line_num}: session {name!r} has a label already")
            found[name] = _ANSWERS[answer]
    return found


def fit(rows: Iterable[Screened], *, rules_version: str, source: str = "") -> ScreeningCalibration:
    """The calibration of labelled sessions. Raises ``ValueError`` when none of them is safe."""
    rows = list(rows)
    safe = [row for row in rows if not row.hazardous]
    if not safe:
        raise ValueError("no session is safe: without them no rate of false alarms can be kept")
    by_rule: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    by_asil: defaultdict[Asil, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        for hazard in row.left:
            by_rule[hazard.rule][not row.hazardous] += 1
            by_asil[hazard.asil][not row.hazardous] += 1
    rules = {name: Seen(hazardous=counts[0], safe=counts[1]) for name, counts in sorted(by_rule.items())}
    asils = {asil: Seen(hazardous=counts[0], safe=counts[1]) for asil, counts in sorted(by_asil.items())}
    # A session must not vouch for itself: each is scored by what the others showed.
    scores = [_score_without(row, rules, asils) for row in safe if row.left]
    return ScreeningCalibration(
        rules_version=rules_version,
        safe_sessions=len(safe),
        hazardous_sessions=len(rows) - len(safe),
        rules=rules,
        asils=asils,
        safe_scores=tuple(sorted(scores, reverse=True)),
        source=source,
    )


def _score_without(row: Screened, rules: dict[str, Seen], asils: dict[Asil, Seen]) -> float:
    rules, asils = dict(rules), dict(asils)
    for hazard in row.left:
        rules[hazard.rule] = rules[hazard.rule].without(row.hazardous)
        asils[hazard.asil] = asils[hazard.asil].without(row.hazardous)
    return score_of(row.left, rules, asils)
