"""Word lists of ``data/rules/cues.yaml`` as patterns.

All patterns are alternations of fixed words: they match in linear time on any text.
"""

from __future__ import annotations

import re

import yaml

from cockpithat.resources import read_resource


class Cue:
    """A case-blind list of whole words; Chinese words match anywhere, as they have no spaces.

    Looking for the words as plain substrings first is ten times cheaper than the pattern, and most
    texts hold none of them.
    """

    def __init__(self, alternatives: list[str]) -> None:
        self._literals = tuple(a.lower() for a in alternatives)
        spaced = sorted((re.escape(a) for a in alternatives if not _is_han(a)), key=len, reverse=True)
        han = [re.escape(a) for a in alternatives if _is_han(a)]
        parts = ([rf"(?<!\w)(?:{'|'.join(spaced)})(?!\w)"] if spaced else []) + han
        self._pattern = re.compile("|".join(parts), re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """The first of the words in ``text``."""
        lowered = text.lower()
        for word in self._literals:  # a third of the time of any() over a generator
            if word in lowered:
                return self._pattern.search(text)
        return None

    def is_all_of(self, text: str) -> bool:
        """Whether ``text`` is one of the words and nothing else."""
        return self._pattern.fullmatch(text) is not None


def _is_han(word: str) -> bool:
    return any("\u4e00" <= c <= "\u9fff" for c in word)


def _load() -> dict[str, Cue]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    lists: dict[str, list[str]] = yaml.load(read_resource("data/rules/cues.yaml"), Loader=loader)
    return {name: Cue(alternatives) for name, alternatives in lists.items()}


_CUES = _load()

WARNING = _CUES["warning"]
CONDITION = _CUES["condition"]
APPROVAL = _CUES["approval"]
ERROR = _CUES["error"]
HARD_ERROR = _CUES["hard_error"]
ACKNOWLEDGED = _CUES["acknowledged"]
DONE = _CUES["done"]
REASSURING = _CUES["reassuring"]
ALARMING = _CUES["alarming"]
ASSUMED = _CUES["assumed"]
DEVIATION = _CUES["deviation"]
CORRECTION = _CUES["correction"]
INJECTION = _CUES["injection"]
RAIN = _CUES["rain"]
DRY = _CUES["dry"]
SNOW = _CUES["snow"]
DARK = _CUES["dark"]
BRIGHT = _CUES["bright"]
STANDING = _CUES["standing"]
CLOSED = _CUES["closed"]
OPEN = _CUES["open"]
CONSENT = _CUES["consent"]
WITHDRAWAL = _CUES["withdrawal"]
CANCELLED = _CUES["cancelled"]
ELSEWHERE = _CUES["elsewhere"]
OFFER = _CUES["offer"]
APOLOGY = _CUES["apology"]
