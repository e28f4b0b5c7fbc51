"""The calibration of one method: a file with the scores of labelled runs, good for any coverage."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cockpithat._version import __version__
from cockpithat.calibration.conformal import Scale, Shape, order_of, score_of, steps_within, threshold


class CalibrationError(Exception):
    """A calibration that cannot be used. ``str()`` is one line fit for a terminal."""


class Calibration(BaseModel):
    """``scores`` holds, for each shape, the sorted scores of the labelled runs (``inf`` is written null).

    A calibration belongs to one method in one configuration: another prompt or model ranks otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["cockpithat-calibration"] = "cockpithat-calibration"
    version: Literal[1] = 1
    product_version: str = __version__
    method: str
    analysts: str
    config_digest: str
    scale: Scale
    n: int = Field(ge=1)
    scores: dict[Shape, tuple[float | None, ...]]
    source: dict[str, str] = Field(default_factory=dict, description="what it was made on, for the record")

    @property
    def digest(self) -> str:
        """16 hex digits that name this calibration in reports."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def threshold(self, shape: Shape, coverage: float) -> float:
        """The score up to which steps belong to a set."""
        return threshold([math.inf if s is None else s for s in self.scores[shape]], coverage)

    def steps(
        self, ranking: tuple[int, ...], trace_id: str, shape: Shape, coverage: float
    ) -> tuple[int, ...]:
        """The set of a trace, the most suspect step first."""
        limit = self.threshold(shape, coverage)
        return steps_within(order_of(ranking, shape), limit, trace_id, self.scale)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A labelled run as calibration sees it."""

    trace_id: str
    ranking: tuple[int, ...]
    step: int  # the decisive one, 0-based


def calibrate(
    runs: Iterable[Ranked],
    *,
    method: str,
    analysts: str,
    config_digest: str = "",
    scale: Scale = Scale.STEPS,
    source: dict[str, str] | None = None,
) -> Calibration:
    """A calibration from labelled runs. Raises :class:`CalibrationError` when there is none."""
    known = list(runs)
    if not known:
        raise CalibrationError("no labelled run to calibrate on; give a log with scored runs")
    scores: dict[Shape, tuple[float | None, ...]] = {}
    for shape in Shape:
        values = sorted(
            score_of(order_of(run.ranking, shape), run.step, run.trace_id, scale) for run in known
        )
        scores[shape] = tuple(None if math.isinf(value) else value for value in values)
    return Calibration(
        method=method,
        analysts=analysts,
        config_digest=config_digest,
        scale=scale,
        n=len(known),
        scores=scores,
        source=source or {},
    )


def read_calibration(path: Path) -> Calibration:
    """A calibration file. Raises :class:`CalibrationError` naming file and fault."""
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CalibrationError(
            f"{path}: cannot be read ({error.strerror}); make one with `cockpithat bench calibrate`"
        ) from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "file"
        raise CalibrationError(
            f"{path}: no calibration ({where}: {fault['msg']}); make one with `cockpithat bench calibrate`"
        ) from None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write it as JSON, readable again by :func:`read_calibration`."""
    path.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
