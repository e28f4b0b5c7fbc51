"""Any method with a calibration: its reports carry the range, and are contested where the range is wide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field

from cockpithat.calibration.conformal import Shape
from cockpithat.calibration.model import Calibration, CalibrationError
from cockpithat.calibration.ranking import ranking_of
from cockpithat.contract.reports import Report, ReviewDecision, StepRange
from cockpithat.contract.trace import Trace


class RangePolicy(BaseModel):
    """Which range a report carries, and when it makes the report contested."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coverage: float = Field(0.8, gt=0, lt=1, description="share of traces whose decisive step is held")
    shape: Shape = Field(Shape.RANGE, description="one range, or any set of steps")
    max_share: float = Field(
        0.5, gt=0, le=1, description="contested when more than this share of the trace's steps is left"
    )


class CalibrationSettings(RangePolicy):
    """A calibration to use, and which of its ranges."""

    file: Path = Field(description="calibration file, made by `cockpithat bench calibrate`")


class Named(Protocol):
    """What a calibration is checked against: a method, and its ``provenance`` where it has one."""

    name: str
    analysts: str


class _Method(Named, Protocol):
    async def attribute(self, trace: Trace) -> Report: ...


def with_range(report: Report, steps: int, calibration: Calibration, policy: RangePolicy) -> Report:
    """The report with its range. Contested stays contested; a wide range makes it so, and asks for review.

    A report of the local analysts in a model's place has none: the calibration is not of their ranking.
    """
    if steps == 0 or (report.degraded is not None and report.decided_by == "local"):
        return report
    held = calibration.steps(ranking_of(report, steps), report.trace_id, policy.shape, policy.coverage)
    first, last = min(held), max(held)
    update: dict[str, object] = {
        "step_range": StepRange(
            coverage=policy.coverage,
            shape=policy.shape.value,
            first=first,
            last=last,
            steps=held,
            calibration=calibration.digest,
            calibrated_on=calibration.n,
        )
    }
    if len(held) > policy.max_share * steps:
        reason = (
            f"{len(held)} of {steps} steps ({first} to {last}) are needed to hold the decisive one "
            f"with a coverage of {policy.coverage:g}"
        )
        reasons = tuple(dict.fromkeys((*report.review.reasons, reason)))
        update |= {"contested": True, "review": ReviewDecision(required=True, reasons=reasons)}
    return report.model_copy(update=update)


class Ranges:
    """Gives a method's reports their ranges."""

    def __init__(self, method: Named, calibration: Calibration, policy: RangePolicy | None = None) -> None:
        """Raises :class:`CalibrationError` for a calibration of another method or configuration."""
        made_for, here = (calibration.method, calibration.analysts), (method.name, method.analysts)
        if made_for != here:
            raise CalibrationError(
                f"the calibration is for {made_for[0]} ({made_for[1]}), not for {here[0]} ({here[1]}); "
                "calibrate that method"
            )
        digest = getattr(getattr(method, "provenance", None), "config_digest", "")
        if digest and calibration.config_digest and digest != calibration.config_digest:
            raise CalibrationError(
                "the calibration was made with another configuration (rules, settings, prompts or models); "
                "calibrate again"
            )
        self._calibration, self._policy = calibration, policy or RangePolicy()

    def __call__(self, report: Report, steps: int) -> Report:
        """The report of a trace of that many steps, with its range."""
        return with_range(report, steps, self._calibration, self._policy)


class Calibrated:
    """A method whose reports carry a range; everything else is the method's own."""

    def __init__(self, method: _Method, calibration: Calibration, policy: RangePolicy | None = None) -> None:
        """Raises :class:`CalibrationError` for a calibration of another method or configuration."""
        self._ranges = Ranges(method, calibration, policy)
        self._method = method
        self.name = method.name
        self.analysts = method.analysts

    def __getattr__(self, name: str) -> Any:
        """What else the method has: ``provenance``, ``close``; and ``judge``, with the range added."""
        value = getattr(self._method, name)
        if name != "judge":
            return value
        judge = cast(Callable[[Trace], Report], value)
        return lambda trace: self._ranged(judge(trace), trace)

    async def attribute(self, trace: Trace, **options: Any) -> Report:
        """The method's report with its range."""
        attribute = cast(Callable[..., Awaitable[Report]], self._method.attribute)
        return self._ranged(await attribute(trace, **options), trace)

    def _ranged(self, report: Report, trace: Trace) -> Report:
        return self._ranges(report, len(trace.steps))
