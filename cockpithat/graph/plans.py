"""Plans and commitments: what a step proposes, and which later step carries it out.

Items with an id are followed by the id. In free text, the items of a numbered or bulleted plan and
sentences that commit ("I will ...", "Shall I ...", "Please look up ...") are remembered by the stems
of their words; a later step that shares most of them carries the item out or refines it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

SCANNED_CHARS: Final = 6_000
"""Characters of a text that are read for items."""

COMPARED_CHARS: Final = 1_600
"""Characters of a text that are compared with items: what a step does stands at its head."""

_ITEMS_PER_STEP: Final = 16
_STEMS_PER_ITEM: Final = 24
_STEMS_PER_STEP: Final = 96
_ITEMS_PER_STEM: Final = 8
_MIN_STEMS: Final = 3
_MIN_NEW: Final = 2
_MIN_SHARE: Final = 0.7
_MATCHES_PER_STEP: Final = 3

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
_WORD = re.compile("[^\\W\\d_\u3400-\u4dbf\u4e00-\u9fff]{3,40}|[0-9]{2,12}")
_HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,24}")
_HAN_EMPTY = re.compile(
    "接下来|首先|然后|是否|需要|要不要|帮您|帮你|为您|[我将会来要请并把的了吗呢吧您你先和与]"
)
_ENDINGS: Final = ("ing", "ed", "es", "s", "en", "e")

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
            for run in _HAN_EMPTY.split(match[0]):
                found.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
            if len(found) >= limit:
                return found
    for word in _WORD.findall(text.casefold()):
        if word not in _EMPTY:
            found[_stem(word)] = None
            if len(found) >= limit:
                break
    return found


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    """The word without common endings, so that ``opens`` and ``opening`` meet; 8 letters at most."""
    for ending in _ENDINGS:
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
    # A text of one line has at most one item, at its head: no need to look at every place for it.
    lists = _LISTED.finditer(text) if "\n" in text else filter(None, (_LISTED.match(text),))
    listed = [match["item"].strip() for match in lists]
    if listed and (is_plan or _CUE.search(text)):
        found.update(dict.fromkeys(listed))
    found.update((m["item"].strip(), None) for m in _COMMITMENT.finditer(text))
    return list(found)[:_ITEMS_PER_STEP]


class PlanText:
    """The newest proposals of a session, indexed by stem; work per step is bounded by its constants.

    ``common`` is a text whose words say little here: the task, which every step is about.
    """

    def __init__(self, max_items: int, common: str = "") -> None:
        self._items: dict[int, Proposal] = {}
        self._max_items = max_items
        self._common = frozenset(stems(common, 1024))
        self._by_stem: dict[str, deque[int]] = {}
        self._retired: set[int] = set()
        self._serial = 0

    def carried_out(self, text: str) -> tuple[list[Proposal], int]:
        """Proposals that the text carries out or refines, oldest first, and the work done.

        A proposal matches when the text has 70% of its stems and at least two that the task does not
        have. Of each proposing step the best match counts, and of these the best three: by share, then
        the newest.
        """
        if not self._items:
            return [], 0
        words = stems(text[:COMPARED_CHARS])
        work = len(words)
        shared: dict[int, int] = {}
        for word in words:
            listed = self._by_stem.get(word)
            if listed:
                work += len(listed)
                for serial in listed:
                    shared[serial] = shared.get(serial, 0) + 1
        best: dict[int, tuple[float, int]] = {}
        for serial, count in shared.items():
            proposal = self._items[serial]
            share = count / len(proposal.stems)
            if share < _MIN_SHARE or serial in self._retired:
                continue
            new = sum(1 for word in proposal.stems if word in words and word not in self._common)
            if new >= _MIN_NEW:
                best[proposal.step] = max(best.get(proposal.step, (0.0, -1)), (share, serial))
        chosen = sorted(best.values(), reverse=True)[:_MATCHES_PER_STEP]
        return [self._items[serial] for serial in sorted(serial for _, serial in chosen)], work

    def propose(self, step: int, agent: str, items: Iterable[str], carried: Iterable[Proposal] = ()) -> int:
        """Remember the step's items. Returns the work done.

        An item of ``carried`` that one of them restates is retired: what follows carries out the newer.
        """
        work = 0
        restated = list(carried)
        for shown in items:
            words = frozenset(stems(shown, _STEMS_PER_ITEM))
            work += len(words)
            if len(words) < _MIN_STEMS:
                continue
            for old in restated:
                if len(old.stems & words) >= _MIN_SHARE * len(old.stems):
                    self._retired.add(old.serial)
            if len(self._items) >= self._max_items:
                self._forget(self._serial - len(self._items))
            proposal = Proposal(step, agent, shown, words, self._serial)
            self._items[self._serial] = proposal
            for word in words:
                self._by_stem.setdefault(word, deque(maxlen=_ITEMS_PER_STEM)).append(self._serial)
            self._serial += 1
        return work

    def _forget(self, serial: int) -> None:
        self._retired.discard(serial)
        for word in self._items.pop(serial).stems:
            listed = self._by_stem.get(word)
            while listed and listed[0] <= serial:
                listed.popleft()
            if listed is not None and not listed:
                del self._by_stem[word]
