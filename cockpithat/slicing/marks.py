"""Marks that structure a prompt, and how trace text is kept from forging them.

A prompt is made of lines. Lines that begin with ``@`` and a number open a step, lines that begin with ``==``
name an agent, ``[SALIENT:tag]`` flags a step. Trace text is cleaned of invisible characters, and whatever in
it would read as one of those marks gets a backslash: the structure a model sees, and
:func:`cockpithat.slicing.index.recover_index` reads, is ours alone.
"""

from __future__ import annotations

import re
import sys
import unicodedata

SALIENT = "[SALIENT:"

_LINE_BREAKS = {ord(char): "\n" for char in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"}
# Format characters (zero width, direction overrides, tags) and controls are invisible to a reader but not
# to a model, and would let a mark be written so that the patterns below miss it.
_INVISIBLE = {
    code: None
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)) in ("Cf", "Cc", "Cs") and chr(code) not in "\n\t"
}
_CLEAN = {**_INVISIBLE, **_LINE_BREAKS}

# A bracket, a few characters, a colon: whether they spell the mark is decided on their skeleton.
_BRACKETED = re.compile(r"[\[［【〔⟦❲{(](?=([^\n:：\[［【〔⟦❲{(]{4,24})[:：])")
_LOOKALIKES = str.maketrans("ѕаіІеЕтТАαιετϲΑΙΕΤ5$1|!3@4", "saiieettaaietcaietssiiieaa")
_HEAD = re.compile(r"^(?=[ \t\u3000]{0,64}(?:[@＠][ \t]{0,8}\d|[=＝]{2}|LAYERS\b))", re.MULTILINE)


def clean(text: str) -> str:
    """Text without invisible characters, all line breaks as ``\\n``."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CLEAN)


def _escape_mark(match: re.Match[str]) -> str:
    letters = unicodedata.normalize("NFKD", match[1]).casefold().translate(_LOOKALIKES)
    skeleton = "".join(char for char in letters if char.isalpha()).replace("l", "i")
    return match[0] + "\\" if skeleton.startswith("saiient") else match[0]


def quoted(text: str) -> str:
    """Trace text made safe to stand in a prompt: cleaned, and forged marks escaped with a backslash."""
    return _HEAD.sub("\\\\", _BRACKETED.sub(_escape_mark, clean(text)))


def single_line(text: str) -> str:
    """Trace text on one line, for places where a line break would end the entry."""
    return quoted(" ".join(clean(text).split()))


def comparable(text: str) -> str:
    """Form in which a quote and the trace are compared: cleaned, unescaped, blanks collapsed, no case."""
    return " ".join(clean(text).replace("\\", "").split()).casefold()
