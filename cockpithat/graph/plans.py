"""Plans and commitments: what a step proposes, and which later step carries it out.

Items with an id are followed by the id. In free text, the items of a numbered or bulleted plan and
sentences that commit ("I will ...", "Shall I ...", "Please look up ...") are remembered by the stems
of their words; a later step that shares most of them carries the item out or refines it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

SCANNED_CHARS: Final = 6_000
"""Of a text, what is read for items and what is compared with them: long web pages are no plans."""

_ITEMS_PER_STEP: Final = 16
_STEMS_PER_ITEM: Final = 24
_STEMS_PER_STEP: Final = 160
_ITEMS_PER_STEM: Final = 12
_EXECUTIONS: Final = 4
_MIN_SHARED: Final = 3
_MIN_SHARE: Final = 0.6

_CUE = re.compile(
    r"\b(?:plan|steps?|approach|strategy|to-?do|procedure|schritte?|vorgehen|ablauf)\b|计划|步骤|方案",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^[ \t]{0,8}(?:\d{1,2}[.):、]|[-*•])[ \t]*(?P<item>[^\n]{4,300})", re.MULTILINE)
_COMMITMENT = re.compile(
    r"""(?:^|[.!?:;\n"“。！？；：])\s{0,3}(?P<item>(?:
        I(?:['’]ll|\ will|['’]m\ going\ to|\ am\ going\ to|\ need\ to|\ should)
        |We(?:['’]ll|\ will|\ need\ to|\ should)|Let(?:['’]s|\ us|\ me)|Please|Next,|Now\ I|Then\ I
        |(?:Shall|Should|May|Can)\ I|(?:Do|Would)\ you\ (?:want|like)\ me\ to|Just\ to\ confirm
        |Ich\ (?:werde|möchte|öffne|schließe|schalte|stelle)|(?:Soll|Darf|Kann)\ ich|Bitte
        |Wir\ (?:werden|müssen|sollten)
        |我(?:将|会|来|要|需要|先|帮您|帮你|为您)|(?:要不要|需要|是否)我?|请(?!问)|接下来|首先|然后
    )[^.!?\n"”。！？]{4,240})""",
    re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]{3,40}|\d{2,12}")
_HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,24}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_EMPTY_TEXT: Final = """
the and for with that this these those from into onto will shall should would could can may might
must you your yours our ours their they them then than have has had are was were been being not but
any all its his her she who what which when where why how there here let please next now need needs
want like just confirm right going also first second third finally step steps plan task user request
using use used make sure provide get set via about und der die das den dem ein eine einen ich sie
wir werde soll bitte mit für auf von zum zur nicht ist sind
"""
_EMPTY: Final = frozenset(_EMPTY_TEXT.split())


class Proposal(NamedTuple):
    """A remembered item: who proposed it where, its text and the stems of its words."""

    step: int
    agent: str
    shown: str
    stems: frozenset[str]
    serial: int


def stems(text: str, limit: int = _STEMS_PER_STEP) -> dict[str, None]:
    """Stems of the content words in order, at most ``limit``; Chinese as pairs of characters."""
    found: dict[str, None] = {}
    if not text.isascii():
        for match in _HAN_RUN.finditer(text):
            run = match[0]
            found.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
            if len(found) >= limit:
                return found
    for match in _WORD.finditer(_CAMEL.sub(" ", text) if not text.islower() else text):
        word = match[0].casefold()
        if word not in _EMPTY:
            found[_stem(word)] = None
            if len(found) >= limit:
                break
    return found


def _stem(word: str) -> str:
    """The word without common endings, so that ``opens`` and ``opening`` meet; 8 letters at most."""
    for ending in ("ing", "ed", "es", "s", "en", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:8]


def proposals(text: str, *, is_plan: bool) -> list[str]:
    """Plan items and commitments found in the text, in order, without doubles, at most sixteen.

    A list counts as a plan where the step is one (``is_plan``) or its text speaks of a plan or of steps.
    """
    text = text[:SCANNED_CHARS]
    found: dict[str, None] = {}
    if is_plan or _CUE.search(text):
        found.update((m["item"].strip(), None) for m in _LISTED.finditer(text))
    found.update((m["item"].strip(), None) for m in _COMMITMENT.finditer(text))
    return list(found)[:_ITEMS_PER_STEP]


class PlanText:
    """The newest proposals of a session, indexed by stem; work per step is bounded by its constants."""

    def __init__(self, max_items: int) -> None:
        self._items: deque[Proposal] = deque()
        self._max_items = max_items
        self._by_stem: dict[str, deque[Proposal]] = {}
        self._executions: dict[int, int] = {}
        self._serial = 0

    def propose(self, step: int, agent: str, items: Iterable[str]) -> int:
        """Remember the items. Returns the work done."""
        work = 0
        for shown in items:
            words = frozenset(stems(shown, _STEMS_PER_ITEM))
            work += len(words)
            if len(words) < _MIN_SHARED:
                continue
            if len(self._items) >= self._max_items:
                self._forget(self._items.popleft())
            proposal = Proposal(step, agent, shown, words, self._serial)
            self._serial += 1
            self._items.append(proposal)
            self._executions[proposal.serial] = 0
            for word in words:
                self._by_stem.setdefault(word, deque(maxlen=_ITEMS_PER_STEM)).append(proposal)
        return work

    def _forget(self, proposal: Proposal) -> None:
        del self._executions[proposal.serial]
        for word in proposal.stems:
            listed = self._by_stem.get(word)
            while listed and listed[0].serial <= proposal.serial:
                listed.popleft()
            if listed is not None and not listed:
                del self._by_stem[word]

    def carried_out(self, text: str) -> tuple[list[Proposal], int]:
        """Proposals that the text carries out or refines, the best of each proposing step, and the work done.

        Best is the largest share of the item's stems, then the newest. An item is carried out at most
        four times: what everybody repeats is no longer a lead.
        """
        if not self._items:
            return [], 0
        words = stems(text[:SCANNED_CHARS])
        work = len(words)
        shared: dict[int, int] = {}
        seen: dict[int, Proposal] = {}
        for word in words:
            for proposal in self._by_stem.get(word, ()):
                work += 1
                shared[proposal.serial] = shared.get(proposal.serial, 0) + 1
                seen[proposal.serial] = proposal
        best: dict[int, tuple[float, int]] = {}
        for serial, count in shared.items():
            proposal = seen[serial]
            share = count / len(proposal.stems)
            if count >= _MIN_SHARED and share >= _MIN_SHARE and self._executions[serial] < _EXECUTIONS:
                best[proposal.step] = max(best.get(proposal.step, (0.0, -1)), (share, serial))
        chosen = sorted(serial for _, serial in best.values())
        for serial in chosen:
            self._executions[serial] += 1
        return [seen[serial] for serial in chosen], work
