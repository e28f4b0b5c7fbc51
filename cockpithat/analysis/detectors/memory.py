"""Memory of another person or domain."""

from __future__ import annotations

from collections.abc import Iterator

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.view import TraceView, render
from cockpithat.contract.base import Category
from cockpithat.contract.events import MemoryRef

_REACH = 3
_CURRENT_USER = (
    "driver_id",
    "active_profile",
    "profile",
    "current_driver",
    "driver_profile",
    "user_id",
    "active_user",
    "speaker",
)
_DOMAINS: dict[str, tuple[str, ...]] = {
    "climate": ("climate", "hvac", "heating", "temperature", "klima", "空调"),
    "media": ("media", "audio", "music", "volume", "infotainment", "entertainment", "radio", "音乐"),
    "navigation": ("navigation", "route", "destination", "navi", "导航"),
    "seat": ("seat", "sitz", "座椅"),
    "light": ("light", "licht", "灯"),
    "window": ("window", "sunroof", "fenster", "窗"),
    "phone": ("phone", "call", "contact", "telefon", "电话"),
    "calendar": ("calendar", "meeting", "appointment", "kalender", "日程"),
    "charging": ("charging", "battery", "laden", "充电"),
    "payment": ("payment", "bank", "finance", "支付"),
    "health": ("health", "medical", "gesundheit", "健康"),
}


class ForeignMemory:
    """``memory_of_other_owner``, ``memory_of_other_domain`` and ``memory_of_other_session``."""

    name = "memory"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """Owners are compared with the active profile in e, else with the first owner of the session."""
        current: str | None = None
        first_owner: str | None = None
        for i, step in enumerate(view.steps):
            if step.environment:
                flat = flatten(step.environment)
                named = next((str(flat[key]) for key in _CURRENT_USER if flat.get(key)), None)
                current = named or current
            for ref in step.memory:
                if ref.access != "read":
                    continue
                if ref.owner:
                    if current is not None and ref.owner.casefold() != current.casefold():
                        yield self._clue("memory_of_other_owner", view, i, ref, 0.8)
                    elif current is None and first_owner is not None and ref.owner != first_owner:
                        yield self._clue("memory_of_other_owner", view, i, ref, 0.5)
                    first_owner = first_owner or ref.owner
                if ref.session_id and ref.session_id != view.trace.session_id and ref.value is not None:
                    yield self._clue("memory_of_other_session", view, i, ref, 0.4)
                yield from self._domain(view, i, ref)

    def _domain(self, view: TraceView, index: int, ref: MemoryRef) -> Iterator[Clue]:
        domain = _domain_of(ref.domain or "") or _domain_of(ref.key)
        if ref.domain and ref.value is not None and not _belongs(ref.domain):
            yield self._clue("memory_of_other_domain", view, index, ref, 0.6)
            return
        if domain is None:
            return
        for j in (index, *view.following(index, _REACH)):
            for path, value in view.commands[j].items():
                used = _domain_of_path(path)
                if used is not None and used != domain and _mentions(ref, value):
                    yield self._clue("memory_of_other_domain", view, j if j == index else index, ref, 0.85)
                    return
        own = _domain_of(view.steps[index].agent)
        if own is not None and own != domain:
            yield self._clue("memory_of_other_domain", view, index, ref, 0.5)

    @staticmethod
    def _clue(kind: str, view: TraceView, step: int, ref: MemoryRef, weight: float) -> Clue:
        return Clue(
            kind=kind,
            step=step,
            agent=view.steps[step].agent,
            category=Category.CROSS_DOMAIN_CONTAMINATION,
            weight=weight,
            channel="m",
            text=quote(f"{ref.key} {render(ref.value)}"),
        )


def _domain_of(text: str) -> str | None:
    lowered = text[:200].lower()
    return next((name for name, words in _DOMAINS.items() if any(word in lowered for word in words)), None)


_COCKPIT = (
    "vehicle", "car", "cabin", "driver", "display", "drive", "driving", "cockpit", "assist", "profile",
    "preference",
    "fahrzeug", "fahrer", "environment", "road", "body", "safety", "memory", "车",
)  # fmt: skip


def _belongs(domain: str) -> bool:
    """Whether a domain is one of a car's cockpit at all."""
    lowered = domain[:200].lower().replace("_", " ")
    words = lowered.split()
    return _domain_of(domain) is not None or any(
        w in words or (not w.isascii() and w in lowered) for w in _COCKPIT
    )


def _domain_of_path(path: str) -> str | None:
    parts = (
        ("HVAC", "climate"), ("Navigation", "navigation"), ("Media", "media"), (".Seat.", "seat"),
        ("Light", "light"), ("Window", "window"), ("Sunroof", "window"), ("Charging", "charging"),
    )  # fmt: skip
    return next((name for part, name in parts if part in path), None)


def _mentions(ref: MemoryRef, value: object) -> bool:
    """Whether the ordered value is the remembered one: a shared number or word."""
    return str(value).lower() in render(ref.value).lower()
