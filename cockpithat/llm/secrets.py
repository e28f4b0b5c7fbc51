"""Keys come from the environment at the moment of a call and leave it in a request header only."""

from __future__ import annotations

from collections.abc import Callable

from cockpithat.llm.errors import KeyMissingError
from cockpithat.llm.settings import RoleSettings

REDACTED = "[key removed]"


class ApiKey:
    """A key that cannot be printed by accident: ``repr``, ``str`` and formatting show a placeholder."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "ApiKey(***)"

    __str__ = __repr__

    def header(self, settings: RoleSettings) -> dict[str, str]:
        """The request header that carries the key."""
        return {settings.api_key_header: settings.api_key_prefix + self._value}

    def redact(self, text: str) -> str:
        """``text`` without the key: servers echo it, in error messages and elsewhere."""
        return text.replace(self._value, REDACTED)


def find_key(settings: RoleSettings, variable: Callable[[str], str | None]) -> ApiKey | None:
    """The role's key. ``variable`` looks up the environment.

    Raises :class:`KeyMissingError` that names the variable when it is not set."""
    if settings.api_key_env is None:
        return None
    value = (variable(settings.api_key_env) or "").strip()
    if not value:
        raise KeyMissingError(f"no API key: set the environment variable {settings.api_key_env}")
    if not value.isascii() or not value.isprintable():
        raise KeyMissingError(
            f"the API key in {settings.api_key_env} holds characters that no header can carry"
        )
    return ApiKey(value)
