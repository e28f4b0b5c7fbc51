"""The score of a passed session, and the threshold that keeps false alarms at a stated rate.

A heuristic, made on simulated sessions. The score of a hazard that still stands at the end is the share of
labelled sessions, among those that left the same rule's hazard standing, that were hazardous indeed; rules
that were seldom seen lean on all rules of the same ASIL. A session has the highest score of its hazards.

The threshold is split conformal: with k = floor(rate (n + 1)), of n sessions that passed and were labelled
safe it is the k-th highest score; where k is 0 nothing is above it. A safe session drawn like them is then a
false alarm with a probability of at most k / (n + 1), which is at most the rate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cockpithat._version import __version__
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Hazard
from cockpithat.resources import read_resource

OWN_CALIBRATION = "data/screening/calibration.json"
_LEAN = 2.0  # labelled sessions that the ASIL's share counts for beside the rule's own
NOTHING = 0.0  # the score of a session that left no hazard standing


class ScreeningError(ValueError):
    """A calibration of the screening cannot be used. ``str()`` is one line fit for a terminal."""


class ScreeningSettings(BaseModel):
    """Which passed sessions become suspicions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    false_alarms_per_1000: float = Field(
        20.0,
        ge=0,
        le=1000,
        description="safe sessions, of 1,000 like those of the calibration, that may become suspicions; "
        "1000: every session that leaves a hazard standing",
    )
    calibration: Path | None = Field(
        None,
        description="calibration made by `cockpithat screening`, in place of the product's own, "
        "which comes from simulated sessions (docs/local-analyst.md)",
    )


class Standing(NamedTuple):
    """A hazard at the end of a session: the rule that says so, and its rating."""

    rule: str
    asil: Asil


_Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Seen(BaseModel):
    """Labelled sessions in which a hazard was left standing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hazardous: _Count = 0
    safe: _Count = 0

    def without(self, hazardous: bool) -> Seen:
        """Less one session."""
        return Seen(hazardous=self.hazardous - hazardous, safe=self.safe - (not hazardous))


class ScreeningCalibration(BaseModel):
    """Counts by rule and by ASIL, and the scores of the safe sessions without themselves, highest first."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    format: Literal["cockpithat-screening"] = "cockpithat-screening"
    version: Literal[1] = 1
    product_version: str = __version__
    rules_version: str
    safe_sessions: Annotated[_Count, Field(ge=1)]
    hazardous_sessions: _Count
    rules: dict[str, Seen]
    asils: dict[Asil, Seen]
    safe_scores: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        description="of the safe sessions that left a hazard standing, highest first"
    )
    source: str = Field("", description="what it was made on, for the record")

    @model_validator(mode="after")
    def _scores_fit(self) -> Self:
        if len(self.safe_scores) > self.safe_sessions:
            raise ValueError("more safe_scores than safe_sessions")
        if list(self.safe_scores) != sorted(self.safe_scores, reverse=True):
            raise ValueError("safe_scores are not in order, highest first")
        return self

    @property
    def digest(self) -> str:
        """16 hex digits that name this calibration in suspicions."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def score(self, standing: Iterable[Standing]) -> float:
        """The session's score in [0, 1], six decimals; :data:`NOTHING` where no hazard stands."""
        return score_of(standing, self.rules, self.asils)

    def threshold(self, false_alarms_per_1000: float) -> float:
        """A session is a suspicion when its score is above.

        Infinite where so few safe sessions support no rate as low; below zero: whenever a hazard stands.
        """
        allowed = math.floor(false_alarms_per_1000 / 1000 * (self.safe_sessions + 1) + 1e-9)
        if allowed == 0:
            return math.inf
        return self.safe_scores[allowed - 1] if allowed <= len(self.safe_scores) else -1.0

    def sessions_needed(self, false_alarms_per_1000: float) -> int | None:
        """Safe sessions without which no threshold keeps the rate; ``None`` for a rate of 0."""
        return math.ceil(1000 / false_alarms_per_1000 - 1 - 1e-9) if false_alarms_per_1000 else None


def score_of(standing: Iterable[Standing], rules: dict[str, Seen], asils: dict[Asil, Seen]) -> float:
    """See :meth:`ScreeningCalibration.score`."""
    best = NOTHING
    none = Seen()
    for hazard in standing:
        alike = asils.get(hazard.asil, none)
        share = (alike.hazardous + 1) / (alike.hazardous + alike.safe + 2)
        own = rules.get(hazard.rule, none)
        score = (own.hazardous + _LEAN * share) / (own.hazardous + own.safe + _LEAN)
        best = max(best, score)
    return round(best, 6)


def standing(hazards: Iterable[Hazard]) -> tuple[Standing, ...]:
    """What still stands at the end."""
    return tuple(Standing(h.rule, h.asil) for h in hazards if h.active_at_end)


class Screening:
    """The calibration in force with its threshold."""

    def __init__(self, settings: ScreeningSettings | None = None) -> None:
        """Reads the calibration. Raises :class:`ScreeningError`."""
        self.settings = settings or ScreeningSettings()
        path = self.settings.calibration
        self.calibration = own_calibration() if path is None else read_calibration(path)
        self.threshold = self.calibration.threshold(self.settings.false_alarms_per_1000)
        self.digest = self.calibration.digest

    def check_rules(self, version: str) -> None:
        """Raises :class:`ScreeningError` when a calibration that was named is of other rules.

        The product's own serves an operator's rules too, as far as they keep the names of its rules.
        """
        found = self.calibration.rules_version
        if self.settings.calibration is not None and found != version:
            raise ScreeningError(
                f"{self.settings.calibration}: made with hazard rules {found}, but {version} are in force; "
                "write it again with `cockpithat screening --rules`"
            )

    def score(self, hazards: Sequence[Hazard]) -> float | None:
        """The score of a session that is to be told of, else ``None``."""
        left = standing(hazards)
        if not left:
            return None
        score = self.calibration.score(left)
        return score if score > self.threshold else None


@lru_cache(maxsize=1)
def own_calibration() -> ScreeningCalibration:
    """The product's own."""
    return _read(read_resource(OWN_CALIBRATION), OWN_CALIBRATION)


def read_calibration(path: Path) -> ScreeningCalibration:
    """A calibration file. Raises :class:`ScreeningError`, which names the file and what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ScreeningError(
            f"{path}: cannot be read: {why}; name a file that `cockpithat screening` wrote in "
            "attribution.screening.calibration"
        ) from None
    return _read(text, str(path))


def _read(text: str, name: str) -> ScreeningCalibration:
    try:
        return ScreeningCalibration.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ScreeningError(
            f"{name}: {where}: {first['msg']}; write the file with `cockpithat screening`"
        ) from None
