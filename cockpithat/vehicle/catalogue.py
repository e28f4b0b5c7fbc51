"""What is known of the signals that a session's safety may hang on: type, range, unit, age.

The shipped catalogue (``data/vss/signals.yaml``) holds only such signals, for VSS 4.0 and 6.0; an
operator adds the whole of a VSS version, or an overlay of their own, from its JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from cockpithat.contract.vehicle import SignalQuality, VssValue
from cockpithat.resources import read_resource

SHIPPED = "data/vss/signals.yaml"
VERSIONS = ("4.0", "6.0")
DEFAULT_AGE_MS = 60_000

_INTEGERS = {
    "uint8": (0, 2**8 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "uint16": (0, 2**16 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint32": (0, 2**32 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint64": (0, 2**64 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_FLOATS = frozenset({"float", "double"})
_LARGEST_FLOAT = sys.float_info.max
_DATATYPES = frozenset(_INTEGERS) | _FLOATS | {"boolean", "string"}
_BRACES = re.compile(r"\{([^{}]*)\}")


Bounds = tuple[float, float]
PlainBound = tuple[float, float, frozenset[Any]]  # lowest, highest, and what of that stands for no reading
PlainBounds = dict[type, dict[str, PlainBound]]


class CatalogueError(ValueError):
    """A signal file cannot be used; the message says which file, where in it and what to do."""


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """One signal in one VSS version. ``minimum`` and ``maximum`` are the standard's, in ``unit``;
    ``plausible`` is narrower and ours; ``not_available`` are readings that stand for no reading."""

    path: str
    datatype: str
    unit: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    allowed: frozenset[Any] | None = None
    plausible: tuple[float, float] | None = None
    not_available: frozenset[Any] = frozenset()
    max_age_ms: int = DEFAULT_AGE_MS

    def check(self, value: Any) -> tuple[VssValue, SignalQuality]:
        """The value to use and its quality. What cannot be used comes back as ``None``, ``INVALID``.

        An integral float (``50.0``) is taken for an integer datatype. A number is never taken for a
        boolean or the other way round, and text is never parsed: reading formats is the importer's work.
        """
        if self.datatype.endswith("[]"):
            return self._check_list(value)
        good = self._scalar(self.datatype, value)
        return (None, SignalQuality.INVALID) if good is None else (good, SignalQuality.VALID)

    def _check_list(self, value: Any) -> tuple[VssValue, SignalQuality]:
        if not isinstance(value, list):
            return None, SignalQuality.INVALID
        items: list[bool | int | float | str] = []
        for item in value:
            good = self._scalar(self.datatype[:-2], item)
            if good is None:
                return None, SignalQuality.INVALID
            items.append(good)
        return items, SignalQuality.VALID

    def _scalar(self, datatype: str, value: Any) -> bool | int | float | str | None:
        if datatype == "boolean":
            return value if isinstance(value, bool) else None
        if datatype == "string":
            return value if isinstance(value, str) and self._is_listed(value) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        if datatype in _INTEGERS:
            if isinstance(value, float):
                if not value.is_integer():
                    return None
                value = int(value)
            low, high = _INTEGERS[datatype]
            if not low <= value <= high:
                return None
        return value if self._is_in_range(value) and self._is_listed(value) else None

    def bounds(self) -> Bounds:
        """What a number must lie in (inclusive): the standard's range, the datatype's, the plausible one."""
        low, high = _INTEGERS.get(self.datatype, (-_LARGEST_FLOAT, _LARGEST_FLOAT))
        lows = [low, *(x for x in (self.minimum, (self.plausible or (None,))[0]) if x is not None)]
        highs = [high, *(x for x in (self.maximum, (self.plausible or (None,))[-1]) if x is not None)]
        return max(lows), min(highs)

    def _is_listed(self, value: Any) -> bool:
        if value in self.not_available:
            return False
        return self.allowed is None or value in self.allowed

    def _is_in_range(self, value: float) -> bool:
        if self.minimum is not None and value < self.minimum:
            return False
        if self.maximum is not None and value > self.maximum:
            return False
        return self.plausible is None or self.plausible[0] <= value <= self.plausible[1]


class SignalCatalogue:
    """Signals by VSS version and path. Immutable; :meth:`with_vss` returns a larger one."""

    def __init__(
        self,
        signals: Mapping[str, Mapping[str, SignalSpec]],
        *,
        default_age_ms: int = DEFAULT_AGE_MS,
        catalogue_id: str = "",
        version: str = "",
    ) -> None:
        self._signals = {name: dict(specs) for name, specs in signals.items()}
        self._order = sorted(self._signals, key=_version_key, reverse=True)
        self._resolved: dict[str, dict[str, SignalSpec]] = {}
        self._bounds: dict[str, PlainBounds] = {}
        self.default_age_ms = default_age_ms
        self.catalogue_id = catalogue_id
        self.version = version

    @classmethod
    def shipped(cls) -> SignalCatalogue:
        """The product's own catalogue. Raises ``FileNotFoundError`` when the installation lacks it."""
        return _shipped()

    @classmethod
    def load(cls, path: Path | None = None) -> SignalCatalogue:
        """An operator's catalogue file, or the shipped one. Raises :class:`CatalogueError`."""
        if path is None:
            return _shipped()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogueError(f"{path}: cannot be read ({error}); check the path and its rights") from None
        return cls.from_text(text, where=str(path))

    @classmethod
    def from_text(cls, text: str, *, where: str) -> SignalCatalogue:
        """Read a file in the shipped one's form. Raises :class:`CatalogueError`."""
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise CatalogueError(f"{where}: not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(data, dict) or not isinstance(data.get("signals"), list):
            raise CatalogueError(f"{where}: expected a mapping with a list under 'signals'")
        default_age = int(data.get("default_age_ms", DEFAULT_AGE_MS))
        ages = data.get("ages") or {}
        signals: dict[str, dict[str, SignalSpec]] = {version: {} for version in VERSIONS}
        for number, entry in enumerate(data["signals"]):
            place = f"{where}: signals[{number}]"
            if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                raise CatalogueError(f"{place}: expected a mapping with a 'path'")
            for version in VERSIONS:
                override = (entry.get("versions") or {}).get(version)
                if override is False:
                    continue
                fields = {**entry, **(override or {})}
                for path in expand_braces(entry["path"]):
                    signals[version][path] = _spec(path, fields, ages, default_age, place)
        return cls(
            signals,
            default_age_ms=default_age,
            catalogue_id=str(data.get("id", "")),
            version=str(data.get("version", "")),
        )

    def with_vss(self, file: Path, version: str) -> SignalCatalogue:
        """This catalogue with all leaves of a VSS JSON file, a tree or a flat ``path: leaf`` object.

        Where both know a signal, type, range and unit are the file's, and the age, plausible range
        and not-available codes stay. Raises :class:`CatalogueError` for a file that is neither form.
        """
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CatalogueError(
                f"{file}: cannot be read as JSON ({error}); give a VSS tree or leaves"
            ) from None
        if not isinstance(data, dict):
            raise CatalogueError(f"{file}: expected a JSON object, a VSS tree or leaves by path")
        name = _clean(version)
        known = self._signals.get(name, {})
        specs = dict(known)
        found = 0
        for path, leaf in iter_vss_leaves(data):
            found += 1
            own = known.get(path)
            spec = _spec(path, leaf, {}, self.default_age_ms, f"{file}: {path}")
            if own is not None:
                spec = replace(
                    spec,
                    plausible=own.plausible,
                    not_available=own.not_available,
                    max_age_ms=own.max_age_ms,
                )
            specs[path] = spec
        if not found:
            raise CatalogueError(f"{file}: no VSS leaves in it; each needs a 'datatype'")
        return SignalCatalogue(
            {**self._signals, name: specs},
            default_age_ms=self.default_age_ms,
            catalogue_id=self.catalogue_id,
            version=self.version,
        )

    @property
    def versions(self) -> tuple[str, ...]:
        """VSS versions it knows, newest first."""
        return tuple(self._order)

    def paths(self, version: str | None = None) -> frozenset[str]:
        """Paths of one version, or of all."""
        if version is not None:
            return frozenset(self._signals.get(_clean(version), ()))
        return frozenset(itertools.chain.from_iterable(self._signals.values()))

    def spec(self, path: str, version: str) -> SignalSpec | None:
        """The signal as ``version`` has it; else as its major version, else the newest that knows it."""
        return self._specs(version).get(path)

    def _specs(self, version: str) -> dict[str, SignalSpec]:
        resolved = self._resolved.get(version)
        if resolved is None:
            if (
                len(self._resolved) >= 64
            ):  # versions come from the wire: a bound on what they can make us keep
                self._resolved.clear()
            resolved = self._resolved[version] = self._resolve(version)
        return resolved

    def _resolve(self, version: str) -> dict[str, SignalSpec]:
        name = _clean(version)
        major = name.split(".", 1)[0]
        rank = {
            known: (known == name, known.split(".", 1)[0] == major, _version_key(known))
            for known in self._signals
        }
        merged: dict[str, SignalSpec] = {}
        for known in sorted(self._signals, key=rank.__getitem__):
            merged.update(self._signals[known])
        return merged

    def check(self, path: str, value: Any, version: str) -> tuple[VssValue, SignalQuality]:
        """Value and quality of one reading. ``None`` is the sender's "not available": ``INVALID``.

        A signal the catalogue does not know is taken as it is if it is a scalar or a list of scalars.
        """
        if value is None:
            return None, SignalQuality.INVALID
        spec = self.spec(path, version)
        if spec is not None:
            return spec.check(value)
        if isinstance(value, list):
            usable = all(isinstance(item, bool | int | float | str) for item in value)
        else:
            usable = isinstance(value, bool | int | float | str)
        return (value, SignalQuality.VALID) if usable else (None, SignalQuality.INVALID)

    def plain_bounds(self, version: str) -> PlainBounds:
        """Of bare numbers and booleans: what a float, an integer, a boolean may be (inclusive), and may not.

        A reading within is ``VALID`` as it stands, which is what :meth:`check` says too; for all else
        ask that. Most readings are such, and three comparisons are a tenth of its work.
        """
        known = self._bounds.get(version)
        if known is None:
            if len(self._bounds) >= 64:
                self._bounds.clear()
            floats: dict[str, PlainBound] = {}
            integers: dict[str, PlainBound] = {}
            for path, spec in self._specs(version).items():
                if spec.allowed is None and spec.datatype in _FLOATS | _INTEGERS.keys():
                    bounds = (*spec.bounds(), spec.not_available)
                    integers[path] = bounds
                    if spec.datatype in _FLOATS:
                        floats[path] = bounds
            booleans: dict[str, PlainBound] = {
                path: (False, True, frozenset())
                for path, spec in self._specs(version).items()
                if spec.datatype == "boolean"
            }
            known = self._bounds[version] = {float: floats, int: integers, bool: booleans}
        return known

    def max_age_ms(self, path: str, version: str) -> int:
        """How long a reading holds after the vehicle's last snapshot."""
        spec = self.spec(path, version)
        return self.default_age_ms if spec is None else spec.max_age_ms


def expand_braces(pattern: str) -> Iterator[str]:
    """``A.{B,C}.D`` gives ``A.B.D`` and ``A.C.D``; several pairs multiply, none nests."""
    parts = _BRACES.split(pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    for combination in itertools.product(*choices):
        yield "".join(combination)


def iter_vss_leaves(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Leaves of a VSS JSON tree or flat object, without recursion."""
    stack: list[tuple[str, Any]] = list(data.items())
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        children = node.get("children")
        if isinstance(children, dict):
            stack.extend((f"{path}.{name}", child) for name, child in children.items())
        elif isinstance(node.get("datatype"), str):
            yield path, node


def _spec(
    path: str, fields: Mapping[str, Any], ages: Mapping[str, Any], default_age: int, place: str
) -> SignalSpec:
    datatype = fields.get("datatype")
    if not isinstance(datatype, str) or datatype.removesuffix("[]") not in _DATATYPES:
        raise CatalogueError(f"{place}: datatype {datatype!r} is not one that VSS has")
    age = fields.get("age")
    if age is not None and age not in ages:
        raise CatalogueError(f"{place}: age {age!r} is not among 'ages'")
    plausible = fields.get("plausible")
    if plausible is not None and not (isinstance(plausible, list) and len(plausible) == 2):
        raise CatalogueError(f"{place}: 'plausible' is [low, high]")
    return SignalSpec(
        path=path,
        datatype=datatype,
        unit=fields.get("unit"),
        minimum=fields.get("min"),
        maximum=fields.get("max"),
        allowed=_frozen(fields.get("allowed")),
        plausible=(plausible[0], plausible[1]) if plausible else None,
        not_available=_frozen(fields.get("not_available")) or frozenset(),
        max_age_ms=int(ages[age]) if age is not None else default_age,
    )


def _frozen(values: Iterable[Any] | None) -> frozenset[Any] | None:
    return None if values is None else frozenset(values)


def _clean(version: str) -> str:
    return version.strip().removeprefix("v")


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


@lru_cache(maxsize=1)
def _shipped() -> SignalCatalogue:
    return SignalCatalogue.from_text(read_resource(SHIPPED), where=SHIPPED)
