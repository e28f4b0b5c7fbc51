"""The one way to read a file that ships with the product: prompts, schemas, rules, templates.

In a wheel they lie under ``cockpithat/_resources``; in a checkout ``prompts/`` and ``schemas/`` lie
beside the package, and ``data/`` inside it in both.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOTS = (_PACKAGE / "_resources", _PACKAGE, _PACKAGE.parent)
_TOP_LEVEL = {"prompts", "schemas", "data"}


def resource(name: str) -> Path:
    """Path of a shipped file or folder, such as ``prompts/safety.md`` or ``data/rules.yaml``.

    Raises ``FileNotFoundError`` naming the resource when the installation lacks it.
    """
    parts = Path(name).parts
    if not parts or parts[0] not in _TOP_LEVEL or ".." in parts:
        raise FileNotFoundError(f"no such resource: {name!r}")
    for root in _ROOTS:
        if (path := root / name).exists():
            return path
    raise FileNotFoundError(f"resource {name!r} is missing from this installation; reinstall it")


def read_resource(name: str) -> str:
    """Text of a shipped file, UTF-8."""
    return resource(name).read_text(encoding="utf-8")
