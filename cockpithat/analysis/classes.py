"""Severity, exposure and controllability of a hazardous event, and what of the situation changes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from cockpithat.analysis.asil import classify
from cockpithat.analysis.conditions import Condition
from cockpithat.contract.base import Asil

_TOP = (3, 4, 3)  # S3, E4, C3


class Shift(BaseModel):
    """What a modifier does to one class: steps up or down, or a bound."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: int = Field(0, ge=-3, le=3, description="steps up or, negative, down")
    at_most: int | None = Field(None, ge=1, le=4, description="no higher class than this")
    at_least: int | None = Field(None, ge=1, le=4, description="no lower class than this")

    @model_validator(mode="after")
    def _some(self) -> Shift:
        if not self.by and self.at_most is None and self.at_least is None:
            raise ValueError("a change of a class needs by, at_most or at_least")
        return self


class Modifier(BaseModel):
    """A circumstance that changes classes where it is known to hold. Unknown, it changes nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: Condition
    severity: Shift | None = None
    exposure: Shift | None = None
    controllability: Shift | None = None
    why: Annotated[str, StringConstraints(min_length=5, max_length=600, strip_whitespace=True)]

    @model_validator(mode="after")
    def _some(self) -> Modifier:
        if self.severity is None and self.exposure is None and self.controllability is None:
            raise ValueError("a modifier must change severity, exposure or controllability")
        return self


class Classes(NamedTuple):
    """Classes S0 to S3, E0 to E4 and C0 to C3 of one hazardous event."""

    severity: int
    exposure: int
    controllability: int

    @property
    def asil(self) -> Asil:
        """The rating by the table (ISO 26262-3:2018, table 4)."""
        return classify(*self)

    def under(self, modifiers: Iterable[Modifier]) -> Classes:
        """These classes in a situation in which ``modifiers`` hold.

        First all steps, then all upper bounds, then all lower bounds, so that the order of modifiers does not
        matter. A class of 1 or more stays one; a class of 0 stays 0: the rule says there is no harm.
        """
        held = list(modifiers)
        parts = zip(
            self,
            _TOP,
            ([m.severity for m in held], [m.exposure for m in held], [m.controllability for m in held]),
            strict=True,
        )
        return Classes(*(_shifted(base, top, [s for s in shifts if s]) for base, top, shifts in parts))

    def __str__(self) -> str:
        return f"S{self.severity} E{self.exposure} C{self.controllability}"


def _shifted(base: int, top: int, shifts: list[Shift]) -> int:
    if base == 0:
        return 0
    value = base + sum(shift.by for shift in shifts)
    value = min([value, *(s.at_most for s in shifts if s.at_most is not None)])
    value = max([value, *(s.at_least for s in shifts if s.at_least is not None)])
    return max(1, min(value, top))
