"""Hazard rules: a versioned data file, checked when it is loaded, that an operator may replace."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from cockpithat.analysis.classes import Classes, Modifier
from cockpithat.analysis.conditions import Condition
from cockpithat.contract.base import Asil, Category
from cockpithat.resources import resource

DEFAULT_RULES = "data/rules/hazards.yaml"
_FORMAT = 1

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{1,63}$")]
Text = Annotated[str, StringConstraints(min_length=5, max_length=600, strip_whitespace=True)]


class RulesError(ValueError):
    """A rules file that can't be used: which file, which place in it, what is wrong, what to do."""

    def __init__(self, path: str, place: str, what: str, what_to_do: str) -> None:
        self.path, self.place, self.what, self.what_to_do = path, place, what, what_to_do
        where = f"{path}: {place}" if place else path
        super().__init__(f"{where}: {what}; {what_to_do}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reading(_Strict):
    """A quantity by its VSS paths (any of them), by the keys that senders use for it in e, and by those that
    tools use for it in their answers."""

    signals: tuple[Annotated[str, StringConstraints(pattern=r"^Vehicle(\.[A-Za-z0-9]+)+$")], ...] = ()
    environment: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]*$")], ...] = ()
    outputs: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]*$")], ...] = Field(
        (), description="keys of this reading in what tools answer; only names that mean here and now"
    )
    understood: tuple[str, ...] = Field(
        (),
        description="words or terms that no rule asks for: a text with one of them is read and says "
        "something else, a text without any known word is unknown",
    )

    @model_validator(mode="after")
    def _some(self) -> Reading:
        if not (self.signals or self.environment or self.outputs):
            raise ValueError("a reading needs signals, environment keys or keys of outputs")
        return self


class Severity(_Strict):
    """S0 to S3 with the reason for the class."""

    value: int = Field(alias="class", ge=0, le=3)
    why: Text


class Exposure(_Strict):
    """E0 to E4 with the reason for the class."""

    value: int = Field(alias="class", ge=0, le=4)
    why: Text


class Controllability(_Strict):
    """C0 to C3 with the reason for the class."""

    value: int = Field(alias="class", ge=0, le=3)
    why: Text


class HazardRule(_Strict):
    """One hazardous event: a hazardous ``state`` in an operational situation ``when``, with its classes.

    The classes are those of the situation as far as ``when`` names it; ``modifiers`` say what else of it
    changes them.
    """

    id: Slug
    hazardous_event: Text
    situation: Text
    severity: Severity
    exposure: Exposure
    controllability: Controllability
    category: Category = Category.SAFETY_SAFEGUARD_FAILURE
    modifiers: tuple[Slug, ...] = Field((), description="names of modifiers of the same file")
    when: Condition
    state: Condition
    commanded_only: bool = Field(
        False, description="counts only if a step ordered it: what a driver does by hand is not a finding"
    )
    present_counts: bool = Field(
        False,
        description="counts even if the state was there before the session: not reacting is the failure",
    )
    reaction_ms: int = Field(
        0,
        ge=0,
        description="with present_counts: how long it must last, in milliseconds, before not reacting counts",
    )

    doubts: bool = Field(
        True,
        description="whether the hazard is told as not excluded where the situation is not known; false for "
        "events that someone reports when they happen, such as a breakdown",
    )

    @property
    def classes(self) -> Classes:
        """The rule's own classes, without any modifier."""
        return Classes(self.severity.value, self.exposure.value, self.controllability.value)

    @property
    def asil(self) -> Asil:
        """The rule's rating by the table, without any modifier."""
        return self.classes.asil

    @property
    def rationale(self) -> str:
        """Why these classes, in one line."""
        s, e, c = self.severity, self.exposure, self.controllability
        return f"S{s.value}: {s.why} E{e.value}: {e.why} C{c.value}: {c.why}"


class RuleSet(_Strict):
    """A whole rules file."""

    format: int
    id: Slug
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    description: str = ""
    environment_max_age_ms: int = Field(
        60_000, gt=0, description="how long a value of the environment channel stands for later steps"
    )
    terms: dict[Slug, tuple[str, ...]] = Field(
        default_factory=dict, description="words for one thing, in any language, named in lists of words"
    )
    readings: dict[Slug, Reading]
    facts: dict[Slug, Condition] = Field(default_factory=dict)
    modifiers: dict[Slug, Modifier] = Field(
        default_factory=dict, description="circumstances that change classes, named in rules"
    )
    rules: tuple[HazardRule, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _terms(cls, data: Any) -> Any:
        terms = data.get("terms") if isinstance(data, dict) else None
        return _with_terms(data, terms) if isinstance(terms, dict) else data

    @cached_property
    def understood(self) -> dict[str, tuple[str, ...]]:
        """For each reading all words that tell that a text of it was read."""
        known: dict[str, dict[str, None]] = {
            name: dict.fromkeys(reading.understood) for name, reading in self.readings.items()
        }
        for _, condition in self._conditions():
            for node in condition.walk():
                if node.reading is not None and node.words:
                    known[node.reading].update(dict.fromkeys(node.words))
        return {name: tuple(words) for name, words in known.items()}

    @model_validator(mode="after")
    def _references(self) -> RuleSet:
        if self.format != _FORMAT:
            raise ValueError(f"format {self.format} is not supported; this product reads format {_FORMAT}")
        seen: set[str] = set()
        for rule in self.rules:
            if rule.id in seen:
                raise ValueError(f"rule {rule.id!r} is there twice")
            seen.add(rule.id)
            for name in rule.modifiers:
                if name not in self.modifiers:
                    raise ValueError(f"rule {rule.id!r} uses modifier {name!r}, which is not defined")
        for place, condition in self._conditions():
            for node in condition.walk():
                for name in node.readings:
                    if name not in self.readings:
                        raise ValueError(f"{place} uses reading {name!r}, which is not defined")
                if node.fact is not None and node.fact not in self.facts:
                    raise ValueError(f"{place} uses fact {node.fact!r}, which is not defined")
        self._no_cycle()
        return self

    def _conditions(self) -> Iterable[tuple[str, Condition]]:
        for name, condition in self.facts.items():
            yield f"fact {name!r}", condition
        for name, modifier in self.modifiers.items():
            yield f"modifier {name!r}", modifier.when
        for rule in self.rules:
            yield f"rule {rule.id!r}", rule.when
            yield f"rule {rule.id!r}", rule.state

    def _no_cycle(self) -> None:
        uses = {
            name: {node.fact for node in condition.walk() if node.fact is not None}
            for name, condition in self.facts.items()
        }
        done: set[str] = set()
        while len(done) < len(uses):
            ready = [name for name, used in uses.items() if name not in done and used <= done]
            if not ready:
                raise ValueError(
                    "facts refer to each other in a circle: " + ", ".join(sorted(uses.keys() - done))
                )
            done.update(ready)

    def readings_of(self, condition: Condition) -> frozenset[str]:
        """Names of the readings a condition rests on, facts included."""
        found: set[str] = set()
        pending = [condition]
        while pending:
            for node in pending.pop().walk():
                if node.reading is not None:
                    found.update(node.readings)
                elif node.fact is not None:
                    pending.append(self.facts[node.fact])
        return frozenset(found)

    def conditions_of(self, rule: HazardRule) -> tuple[Condition, ...]:
        """All conditions that a rule's finding or rating rests on."""
        return (rule.when, rule.state, *(self.modifiers[name].when for name in rule.modifiers))

    def paths_of(self, condition: Condition) -> frozenset[str]:
        """VSS paths a condition rests on, facts included."""
        return frozenset(path for name in self.readings_of(condition) for path in self.readings[name].signals)


def _with_terms(node: Any, terms: dict[Any, Any]) -> Any:
    """The file's data with each term in a list of words replaced by its words. Not recursive."""
    result: dict[Any, Any] = {}
    pending: list[tuple[Any, Any, Any]] = [(node, result, "root")]
    while pending:
        value, parent, key = pending.pop()
        if isinstance(value, dict):
            parent[key] = dict.fromkeys(value)
            pending.extend((inner, parent[key], name) for name, inner in value.items())
        elif isinstance(value, list) and key in ("words", "understood"):
            parent[key] = [w for word in value for w in _words_of(word, terms)]
        elif isinstance(value, list):
            parent[key] = [None] * len(value)
            pending.extend((inner, parent[key], place) for place, inner in enumerate(value))
        else:
            parent[key] = value
    return result["root"]


def _words_of(word: Any, terms: dict[Any, Any]) -> list[Any]:
    words = terms.get(word) if isinstance(word, str) else None
    return words if isinstance(words, list) else [word]


def watched_signals(rules: RuleSet) -> frozenset[str]:
    """Every VSS path that a rule looks at: what a trace must carry."""
    return frozenset(path for rule in rules.rules for path in watched_by(rules, rule))


def watched_by(rules: RuleSet, rule: HazardRule) -> frozenset[str]:
    """Every VSS path that one rule looks at, for its finding or for its rating."""
    return frozenset(path for condition in rules.conditions_of(rule) for path in rules.paths_of(condition))


def load_rules(path: Path | None = None) -> RuleSet:
    """The operator's rules file, or the product's own. Raises :class:`RulesError`."""
    if path is None:
        return _own_rules()
    return _load(path)


@lru_cache(maxsize=1)
def _own_rules() -> RuleSet:
    return _load(resource(DEFAULT_RULES))


def _load(path: Path) -> RuleSet:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(
            str(path), "", error.strerror or "cannot be read", "check the path and its rights"
        ) from None
    except UnicodeDecodeError:
        raise RulesError(str(path), "", "is not UTF-8 text", "save it as UTF-8") from None
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or "is not YAML"
        raise RulesError(str(path), place, f"not valid YAML ({what})", "correct the file there") from None
    if not isinstance(data, dict):
        raise RulesError(str(path), "", "holds no rules", "see docs/rules.md for the layout")
    try:
        return RuleSet.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise RulesError(
            str(path),
            _place(data, first["loc"]),
            first["msg"].removeprefix("Value error, "),
            "correct it there; docs/rules.md has the layout",
        ) from None


def _place(data: object, loc: tuple[int | str, ...]) -> str:
    """A place in words: the rule's own id in place of its number in the list."""
    parts: list[str] = []
    node: object = data
    for step in loc:
        try:
            node = node[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            node = None
        name = node.get("id") if isinstance(step, int) and isinstance(node, dict) else None
        parts.append(str(name or step))
    return ".".join(parts)
