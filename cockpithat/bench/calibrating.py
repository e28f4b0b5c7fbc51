"""Calibrations from benchmark logs: no run is judged again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from cockpithat.bench.errors import BenchError
from cockpithat.bench.log import Log, SampleRecord
from cockpithat.calibration.conformal import Scale
from cockpithat.calibration.model import Calibration, Ranked, calibrate


def ranked(records: Iterable[SampleRecord]) -> list[Ranked]:
    """First repeats that were answered; a failed run has no ranking."""
    return [
        Ranked(record.trace_id, record.ranking, record.target.step)
        for record in records
        if record.epoch == 1 and record.ranking
    ]


def split(records: Sequence[SampleRecord], share: float) -> tuple[list[SampleRecord], list[SampleRecord]]:
    """A part for calibration and one for checking, by a hash of the run's id: nobody chooses who is where."""
    order = sorted(records, key=lambda r: hashlib.sha256(b"split\0" + r.id.encode()).digest())
    ids = list(dict.fromkeys(record.id for record in order))
    chosen = set(ids[: round(share * len(ids))])
    return [r for r in records if r.id in chosen], [r for r in records if r.id not in chosen]


def calibration_of(
    logs: Sequence[Log], records: Sequence[SampleRecord], scale: Scale = Scale.STEPS
) -> Calibration:
    """A calibration of the method that all logs are of. Raises ``BenchError`` where they differ."""
    first = logs[0].header
    for log in logs[1:]:
        ours, theirs = (first.method, first.analysts), (log.header.method, log.header.analysts)
        if ours != theirs or first.config_digest != log.header.config_digest:
            raise BenchError(
                f"{log.path}: is of {theirs[0]} ({theirs[1]}) or of another configuration than "
                f"{logs[0].path}; a calibration is for one method"
            )
    return calibrate(
        ranked(records),
        method=first.method,
        analysts=first.analysts,
        config_digest=first.config_digest,
        scale=scale,
        source={Path(log.path).name: log.header.dataset.digest for log in logs},
    )
