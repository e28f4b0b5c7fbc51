"""The condition language of the hazard rules: data, not code, evaluated in three values.

A condition is one of

* ``{reading: speed, gt: 60}``: compares a named reading (``is``, ``in``, ``gt``, ``ge``, ``lt``, ``le``,
  ``words``, ``between``, ``above``, ``changed``);
* ``{fact: dark}``: a named condition of the same file;
* ``{all: [...]}``, ``{any: [...]}``, ``{not: ...}``: Kleene's three-valued logic;
* ``{sources: [...]}``: several ways to know one thing: true if one says so, else false if one says so;
* ``{agree: [...]}``: the same for sensors that must not contradict each other: unknown where they do.

A comparison with a value that is missing, stale, invalid or of another kind is unknown (``None``), never
false: it can't make anything safe. So is ``words`` over a text of which no word is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Truth = bool | None
"""True, false, or ``None`` for unknown."""

_NUMBER = re.compile(r"\s*([-+]?\d{1,9}(?:\.\d{1,6})?)")
_CLOCK = re.compile(r"(?:^|[T ])([01]?\d|2[0-3]):([0-5]\d)")
_SPACES = re.compile(r"[\s_\-]+")
_CJK = re.compile(r"[\u3400-\u9fff]")
_NEGATED = re.compile(
    r"(?:(?:^|[^\w])(?:no|not|non|without|never|isn't|kein|keine|keinen|keiner|nicht|ohne)\s|没有|沒有|未|无|無|不)$"
)
_TRUE_WORDS = frozenset({"true", "on", "yes", "open", "opened", "active", "enabled", "engaged"})
_FALSE_WORDS = frozenset({"false", "off", "no", "closed", "inactive", "disabled", "none"})
_MAX_TEXT = 200
_SHOWN = 6  # words of a list that an explanation names
_MPH = 1.609344


def _clock(value: Any) -> Any:
    # YAML 1.1 reads an unquoted 21:00 as the number 1260, which would be minutes by luck only.
    if not isinstance(value, str) or not (match := _CLOCK.match(value)):
        raise ValueError("a time of day must be quoted, such as '21:00'")
    return int(match[1]) * 60 + int(match[2])


Clock = Annotated[int, BeforeValidator(_clock)]
Scalar = bool | int | float | str


class Bound(BaseModel):
    """Another reading that a comparison goes by, such as the speed limit of the road."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reading: str = Field(description="name of the reading to compare with")
    by: float = Field(0.0, description="how much more than it, in the readings' unit")


class Condition(BaseModel):
    """One node of a condition; exactly one of reading, fact, all, any, not, sources and agree is set."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    reading: str | None = Field(None, description="name of a reading to compare")
    fact: str | None = Field(None, description="name of a fact of the same file")
    all: tuple[Condition, ...] | None = Field(None, min_length=1, description="true if all are")
    any: tuple[Condition, ...] | None = Field(None, min_length=1, description="true if one is")
    not_: Condition | None = Field(None, alias="not", description="the opposite")
    sources: tuple[Condition, ...] | None = Field(
        None, min_length=1, description="several ways to know the same: true if one says so, else false"
    )

    agree: tuple[Condition, ...] | None = Field(
        None, min_length=2, description="several sensors of one thing: unknown where they contradict"
    )

    is_: Scalar | None = Field(
        None, alias="is", description="equals this; on, off, open, closed count as booleans"
    )
    in_: tuple[Scalar, ...] | None = Field(None, alias="in", description="equals one of these")
    gt: float | None = Field(None, description="greater than")
    ge: float | None = Field(None, description="at least")
    lt: float | None = Field(None, description="less than")
    le: float | None = Field(None, description="at most")
    words: tuple[str, ...] | None = Field(
        None, description="a text holds one of these words, or words of these terms, not negated"
    )
    between: tuple[Clock, Clock] | None = Field(
        None, description="time of day, first included, second not; may run over midnight"
    )
    above: Bound | None = Field(None, description="greater than another reading; unknown without both")
    changed: bool | None = Field(None, description="true at the moment the value changes or is set")

    @model_validator(mode="after")
    def _one_kind(self) -> Condition:
        kinds = [self.reading, self.fact, self.all, self.any, self.not_, self.sources, self.agree]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("a condition needs exactly one of reading, fact, all, any, not, sources, agree")
        comparators = [
            value
            for value in (
                self.is_,
                self.in_,
                self.gt,
                self.ge,
                self.lt,
                self.le,
                self.words,
                self.between,
                self.above,
                self.changed,
            )
            if value is not None
        ]
        if self.reading is None and comparators:
            raise ValueError("only a reading can be compared")
        if self.reading is not None and not comparators:
            raise ValueError(f"reading {self.reading!r} needs a comparison such as is, in, gt or words")
        if self.changed is False:
            raise ValueError("changed can only be true; use 'not' for its opposite")
        return self

    def children(self) -> tuple[Condition, ...]:
        """The conditions directly below this one."""
        nested = self.all or self.any or self.sources or self.agree or ()
        return (*nested, self.not_) if self.not_ is not None else nested

    def walk(self) -> Iterator[Condition]:
        """This condition and all below it."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children())

    @property
    def readings(self) -> tuple[str, ...]:
        """Names of the readings that this node compares: its own, then the one it goes by."""
        if self.reading is None:
            return ()
        return (self.reading,) if self.above is None else (self.reading, self.above.reading)

    def compare(
        self, value: Any, understood: tuple[str, ...] = (), bounds: Sequence[Any] | None = None
    ) -> Truth:
        """This comparison for one known value; unknown when the value is of another kind.

        ``understood``: words that tell a text which says something else from one that can't be read.
        ``bounds``: known values of the reading that ``above`` names.
        """
        results: list[Truth] = []
        if self.is_ is not None:
            results.append(_equals(value, self.is_))
        if self.in_ is not None:
            # One kind among the wanted is enough to know: "FAST" is not "OFF", whatever it is as a boolean.
            results.append(known_of([_equals(value, wanted) for wanted in self.in_]))
        if (self.gt, self.ge, self.lt, self.le) != (None, None, None, None):
            number = as_number(value)
            if number is None:
                results.append(None)
            else:
                results.append(
                    (self.gt is None or number > self.gt)
                    and (self.ge is None or number >= self.ge)
                    and (self.lt is None or number < self.lt)
                    and (self.le is None or number <= self.le)
                )
        if self.words is not None:
            results.append(_has_word(value, self.words, understood))
        if self.between is not None:
            results.append(_in_clock(value, self.between))
        if self.above is not None:
            results.append(known_of([_exceeds(value, bound, self.above.by) for bound in bounds or ()]))
        return all_of(results)

    def cuts(self) -> tuple[float, ...] | None:
        """Numbers at which this comparison of a number can change; ``None`` if more than a number decides."""
        if self.words or self.between or self.above or self.changed:
            return None
        equal = (*(() if self.is_ is None else (self.is_,)), *(self.in_ or ()))
        if any(isinstance(wanted, bool | str) for wanted in equal):
            return None
        bounds = (self.gt, self.ge, self.lt, self.le)
        return tuple(float(cut) for cut in (*equal, *bounds) if cut is not None)

    def describe(self) -> str:
        """This condition in words, for explanations."""
        if self.reading is not None:
            parts = []
            if self.is_ is not None:
                parts.append(f"is {_show(self.is_)}")
            if self.in_ is not None:
                parts.append("is one of " + ", ".join(_show(v) for v in self.in_))
            parts += [
                f"{sign} {bound:g}"
                for sign, bound in ((">", self.gt), (">=", self.ge), ("<", self.lt), ("<=", self.le))
                if bound is not None
            ]
            if self.words is not None:
                parts.append(
                    "says " + " or ".join(self.words[:_SHOWN]) + (" ..." if len(self.words) > _SHOWN else "")
                )
            if self.between is not None:
                start, end = self.between
                parts.append(f"between {start // 60:02}:{start % 60:02} and {end // 60:02}:{end % 60:02}")
            if self.above is not None:
                more = f" + {self.above.by:g}" if self.above.by else ""
                parts.append(f"> {self.above.reading}{more}")
            if self.changed:
                parts.append("changes")
            return f"{self.reading} {' and '.join(parts)}"
        if self.fact is not None:
            return self.fact
        if self.not_ is not None:
            return f"not ({self.not_.describe()})"
        joint = " and " if self.all else " or "
        return joint.join(f"({c.describe()})" if c.children() else c.describe() for c in self.children())


def _show(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_bool(value: Any) -> bool | None:
    """A boolean, or a word that senders use for one such as ``on`` or ``closed``; else ``None``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE_WORDS:
            return True
        if word in _FALSE_WORDS:
            return False
    return None


def as_number(value: Any) -> float | None:
    """A number, or a text that begins with one, such as ``82 km/h``; miles per hour become km/h."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # an integer of hundreds of digits
            return None
    if isinstance(value, str) and (match := _NUMBER.match(value[:_MAX_TEXT])):
        number = float(match[1])
        return number * _MPH if "mph" in value[:_MAX_TEXT].lower() else number
    return None


def _exceeds(value: Any, bound: Any, by: float) -> Truth:
    number, limit = as_number(value), as_number(bound)
    return None if number is None or limit is None else number > limit + by


def _equals(value: Any, wanted: Scalar) -> Truth:
    if isinstance(wanted, bool):
        return None if (known := as_bool(value)) is None else known == wanted
    if isinstance(wanted, (int, float)):
        return None if (number := as_number(value)) is None else number == wanted
    if isinstance(value, str):
        return value.strip().lower() == wanted.lower()
    return None


def _has_word(value: Any, words: tuple[str, ...], understood: tuple[str, ...]) -> Truth:
    if isinstance(value, (list, tuple)):
        items = [item for item in value[:20] if not isinstance(item, (list, tuple))]
        return any_of([_has_word(item, words, understood) for item in items])
    if not isinstance(value, str):
        return None
    return _says(_SPACES.sub(" ", value[:_MAX_TEXT].lower()), words, understood)


@lru_cache(maxsize=4_096)
def _says(text: str, words: tuple[str, ...], understood: tuple[str, ...]) -> Truth:
    """True with one of ``words``, not negated; false if the text is understood without; else unknown."""
    is_read = False
    for match in _pattern(words).finditer(text):
        if not _NEGATED.search(text[: match.start()]):
            return True
        is_read = True
    if is_read or (understood and _pattern(understood).search(text)):
        return False
    return None


@lru_cache(maxsize=512)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words in scripts with spaces between words; anywhere in those without."""
    forms = sorted({_SPACES.sub(" ", word.lower()) for word in words}, key=lambda form: (-len(form), form))
    parts = [re.escape(f) if _CJK.search(f) else rf"(?<!\w){re.escape(f)}(?!\w)" for f in forms]
    return re.compile("|".join(parts))


def _in_clock(value: Any, span: tuple[int, int]) -> Truth:
    if not isinstance(value, str) or not (match := _CLOCK.search(value[:_MAX_TEXT])):
        return None
    minute, (start, end) = int(match[1]) * 60 + int(match[2]), span
    return start <= minute < end if start <= end else minute >= start or minute < end


def all_of(values: list[Truth]) -> Truth:
    """Kleene's and: false if one is false, else unknown if one is unknown."""
    if False in values:
        return False
    return None if None in values else True


def any_of(values: list[Truth]) -> Truth:
    """Kleene's or: true if one is true, else unknown if one is unknown."""
    if True in values:
        return True
    return None if None in values else False


def known_of(values: list[Truth]) -> Truth:
    """Several sources for one thing: true if one says so, else false if one says so, else unknown."""
    if True in values:
        return True
    return False if False in values else None


def agreed(values: list[Truth]) -> Truth:
    """What all that is known says; unknown where it contradicts itself."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
