"""Entities of a text: what one step introduces and a later one can refer to.

Deterministic and without a model: addresses, identifiers, file names, VSS paths, numbers with a unit
or of at least three digits, quoted strings, capitalised names, and Chinese or Japanese word runs.
Each has a key (case folded, units and separators normalised) and a weight from 1 (weak: an acronym,
a word that may only be capitalised) to 3 (strong: an address, an id, a path).

Trace text is untrusted, so each pattern consumes at least one character per match and every
repetition is bounded or possessive: time is linear in the length of the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

MAX_ENTITY_CHARS: Final = 80

WEAK: Final = 1
PLAIN: Final = 2
STRONG: Final = 3


class Mention(NamedTuple):
    """One entity in a text. ``introduces`` is false where it can only refer back, never be the first."""

    shown: str
    weight: int
    introduces: bool = True


_UP = "A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĖĘĚĞĢĪİĶĹĻĽŁŃŅŇŐŒŔŘŚŞŠŢŤŪŮŰŲŹŻŽΑ-ΩА-ЯЁ"
_LOW = "a-zß-öø-ÿāăąćčďđēėęěğģīıķĺļľłńņňőœŕřśşšţťūůűųźżžα-ωа-яё"
_L = rf"{_UP}{_LOW}0-9_"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_KATAKANA = "\u30a1-\u30fa\u30fc"
_UNIT = (
    r"°\s?[CF]?|℃|%|km/h|kmh|kph|mph|kWh|kW|km|min|USD|EUR|bar|psi"
    r"|degrees?|percent|kilomet(?:er|re)s?|met(?:er|re)s?|miles?|minutes?|hours?|dollars?|euros?"
    r"|Grad|Prozent|Kilometer|Minuten?|Stunden?|Euro"
    r"|摄氏度|度|公里|千米|米|分钟|小时|元|点|升"
)

# The unnamed first and last alternatives pass over running text in bulk: the engine is left only with
# places where an entity can start.
_TOKEN = re.compile(
    rf"""
    (?:(?<![{_L}])[{_LOW}]{{1,60}}+(?![._/\\@-]?[{_L}]|://)[^{_L}$€£¥{_HAN}{_KATAKANA}]*+)++
    |(?P<url>https?://[^\s<>"'`|\\^{{}}]{{2,400}}+)
    |(?P<vss>(?<![{_L}.])Vehicle(?:\.[{_UP}][{_L}]{{0,60}}+){{1,12}}+)
    |(?P<num>(?<![A-Za-z0-9_.])[$€£¥]?\d(?:[\d.,:/-]{{0,24}}\d)?(?:\s?(?:{_UNIT})(?![A-Za-z]))?(?![A-Za-z0-9_]))
    |(?P<name>(?<![{_L}])[{_UP}][{_L}'’&-]{{0,40}}
        (?:[ ](?:(?:of|the|de|la|van|von|am|der|des)[ ])?[{_UP}][{_L}'’&-]{{0,40}}){{0,5}}
        (?![._/\\@-]?[{_L}]))
    |(?P<ident>(?<![{_L}])[{_L}]{{1,64}}+(?:[._/\\@+-][{_L}]{{1,64}}+){{0,8}}+)
    |(?P<han>[{_HAN}]{{3,64}}+)
    |(?P<kana>[{_KATAKANA}]{{3,40}}+)
    |[{_L}]++
    """,
    re.VERBOSE,
)

_QUOTE_MARK = re.compile(r"""["“„«「《`']""")  # what any match of the next needs; most texts have none
_QUOTED = re.compile(
    r'"(?P<a>[^"\n]*+)"(?P<key>[ \t]{0,4}:)?'
    r"|“(?P<b>[^“”\n]{2,80}+)”|„(?P<c>[^„“”\n]{2,80}+)[“”]|«(?P<d>[^«»\n]{2,80}+)»"
    r"|「(?P<e>[^「」\n]{1,80}+)」|《(?P<f>[^《》\n]{1,80}+)》|`(?P<g>[^`\n]{2,80}+)`"
    r"|(?<!\w)'(?P<h>[^'\n]{2,80}+)'(?!\w)"
)

_FILE = re.compile(
    r"\.(?:py|ipynb|js|ts|sh|sql|csv|tsv|xlsx?|ods|json|jsonl|xml|ya?ml|toml|html?|md|txt|log|pdf|docx?|pptx?"
    r"|png|jpe?g|gif|svg|mp[34]|wav|zip|gz|pdb|fasta|dbc|parquet)$",
    re.IGNORECASE,
)

_HAN_SPLIT = re.compile(
    "打开|关闭|导航|前往|到达|抵达|设置|设定|调整|调节|调到|查询|查找|搜索|播放|显示|确认|开始|停止|需要|应该|当前|现在|已经|正在"
    "|如果|因为|所以|[的了在到去往从至是和与或请把将被给向对你我他她它们吗呢吧啊呀很就都也还要想有没不能会可以这那个为让使用并再先后]"
)

_WORDS = re.compile(r"\w+")
_GERMAN_TEXT: Final = """
der die das den dem und ist nicht ich bitte auf mit für ein eine einen zum zur im wird noch nach wir sie
"""
_GERMAN: Final = frozenset(_GERMAN_TEXT.split())
_ENGLISH_TEXT: Final = "the and is of to please you for with that this a we it are your"
_ENGLISH: Final = frozenset(_ENGLISH_TEXT.split())
_PLACE_BEFORE = re.compile(r"(?:\bnach|\bbei|\bvon|\bbis|\bvia|\büber)\s$")
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_DIGIT_OR_BAR = re.compile(r"[\d_]")
_OPENING: Final = " \t*_\"“„'([{#>|-•"
_SENTENCE_ENDS: Final = ".!?:;。！？：\n•"

_UNIT_NAMES: Final = {
    spelling: unit
    for unit, spellings in {
        "°": "° °c ℃ degree degrees grad 度 摄氏度",
        "%": "percent prozent",
        "km": "kilometer kilometers kilometre kilometres 公里 千米",
        "m": "meter meters metre metres 米",
        "mi": "mile miles",
        "km/h": "kmh kph",
        "min": "minute minutes minuten 分钟",
        "h": "hour hours stunde stunden 小时",
        "$": "dollar dollars usd",
        "€": "euro euros eur",
        "¥": "元",
    }.items()
    for spelling in spellings.split()
}

# Words that are capitalised for their place in the sentence or by habit, not because they name something.
_STOP_TEXT: Final = """
i a an the this that these those it he she we you they my your our their his her its there here and
or but if then so as at by for from in into of on to with without not no yes ok okay sure great good
thanks please thank hello hi hey sorry let let's now next first second third finally also however
therefore since because after before when while where what which who why how all any each every some
none both is are was were be been do does did done can could will would should shall may might must
have has had get set use using based given note step steps task plan answer question result results
output input error errors warning status success failure failed true false null nan json api url
http https html xml id ids uuid text code python user assistant system tool general initial updated
final summary here's i'll i'm i've it's that's we'll we've you'll you're don't terminate open close
closed off unknown import def class return print monday tuesday wednesday thursday friday saturday
sunday january february march april june july august september october november december am pm usa
us uk eu gmt utc english german chinese der die das den dem des ein eine einen und oder aber ich du
er sie es wir ihr ihnen ihre ihren mein dein bitte danke ja nein jetzt dann wenn weil nach vor mit
ohne auf im zum zur von bei ist sind war wird werden kann soll fehler ergebnis schritt frage antwort
"""
_STOP_WORDS: Final = frozenset(_STOP_TEXT.split())


def normal(text: str) -> str:
    """Key of a text: case folded, inner white space collapsed."""
    return " ".join(text.split()).casefold()


def clip(text: str, limit: int) -> str:
    """At most ``limit`` characters: three quarters from the head and the rest from the tail."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    return text[:head] + "\n" + text[-(limit - head - 1) :]


@lru_cache(maxsize=4)
def is_german(text: str) -> bool:
    """Whether nouns of this text are capitalised as German does, judged on its first 1,000 characters."""
    words = _WORDS.findall(text[:1000].casefold())
    german = sum(word in _GERMAN for word in words)
    return german >= 2 and german > sum(word in _ENGLISH for word in words)


def number_key(text: str) -> str | None:
    """Key of a number, or ``None`` for one too plain to refer to anything.

    A unit makes any number an entity; without one it needs three digits or a separator such as
    ``14:30`` or ``21.5``. ``1,234`` and ``1234`` are the same, and so are ``21,5 Grad`` and ``21.5 °C``.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    body, unit = match["body"], match["unit"].strip().replace(" ", "").casefold()
    unit = _UNIT_NAMES.get(unit, unit) or _UNIT_NAMES.get(match["sign"], match["sign"])
    body = _plain_digits(body)
    if not unit and _SEPARATORS.isdisjoint(body) and sum(map(str.isdigit, body)) < 3:
        return None
    return f"#{body} {unit}".rstrip()


_NUMBER = re.compile(r"(?P<sign>[$€£¥]?)(?P<body>\d(?:[\d.,:/-]{0,24}\d)?)(?P<unit>.{0,16})", re.DOTALL)
_SEPARATORS: Final = frozenset(":/.")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_GROUPED_BY_POINTS = re.compile(r"\d{1,3}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})$")
_DECIMAL_COMMA = re.compile(r"\d+,\d+$")


def _plain_digits(body: str) -> str:
    """``1,234.50`` and ``1.234,5`` as ``1234.5``; dates, times and anything else as it stands."""
    if _GROUPED.match(body):
        body = body.replace(",", "")
    elif _GROUPED_BY_POINTS.match(body):
        body = body.replace(".", "").replace(",", ".")
    elif _DECIMAL_COMMA.match(body):
        body = body.replace(",", ".")
    if body.count(".") == 1 and body.replace(".", "").isdigit():
        body = body.rstrip("0").rstrip(".")
    return body


def extract(text: str, into: dict[str, Mention], limit: int) -> int:
    """Add the text's entities to ``into`` (key to mention) until it holds ``limit``.

    The first mention of a key wins, save that a stronger one replaces a weaker. Returns the number of
    tokens looked at, which is the work done.
    """
    work = 0
    fields: set[str] = set()
    for match in _QUOTED.finditer(text) if _QUOTE_MARK.search(text) else ():
        work += 1
        body = match[match.lastgroup or "a"] if match["key"] is None else match["a"]
        if match["key"] is not None:  # a JSON key names a field, not a thing
            fields.add(body.casefold())
            continue
        body = body.strip()
        if 2 <= len(body) <= MAX_ENTITY_CHARS and says_something(body):
            _offer(into, normal(body), Mention(body, PLAIN))
            if len(into) >= limit:
                return work
    settled: set[str] = set()  # tokens that need no second look in this text
    for match in _TOKEN.finditer(text):
        work += 1
        kind = match.lastgroup
        if kind is None:
            continue
        token = match[0]
        if token in settled:
            continue
        settled.add(token)
        if kind == "name":
            if not _offer_name(into, token.split(), text, match.start()):
                settled.discard(token)
        elif kind == "num":
            key = number_key(token)
            if key is not None:
                _offer(into, key, Mention(token, PLAIN))
        elif kind == "ident":
            if token.casefold() not in fields:
                _offer_identifier(into, token)
        elif kind == "han":
            for part in _HAN_SPLIT.split(token):
                if 3 <= len(part) <= 12:
                    _offer(into, part, Mention(part, PLAIN))
        elif kind == "kana":
            _offer(into, token, Mention(token, PLAIN))
        else:
            token = token.rstrip(".,;:!?)]")
            _offer(into, token.casefold(), Mention(token, STRONG))
        if len(into) >= limit:
            break
    return work


def says_something(body: str) -> bool:
    """A quoted string that could be told from others: not one lower-case word, not one short number."""
    if " " in body:
        return any(c.isalpha() for c in body)
    return (
        len(body) >= 3
        and (not body.isascii() or any(c.isupper() or c.isdigit() for c in body))
        and (body.casefold() not in _STOP_WORDS and not body.isdigit())
    )


def _offer(into: dict[str, Mention], key: str, mention: Mention) -> None:
    known = into.get(key)
    if known is None or known.weight < mention.weight or (mention.introduces and not known.introduces):
        into[key] = mention


def _offer_name(into: dict[str, Mention], words: list[str], text: str, start: int) -> bool:
    """Names. Returns whether the same words elsewhere in the text would give nothing more."""
    cut = 0
    while words and words[0].casefold() in _STOP_WORDS:
        words = words[1:]
        cut += 1
    while words and words[-1].casefold() in _STOP_WORDS:
        words = words[:-1]
    if not words:
        return True
    shown = " ".join(words).strip("'’&-_").removesuffix("'s").removesuffix("’s")
    if len(shown) < 3 or len(shown) > MAX_ENTITY_CHARS:
        return True
    if len(words) > 1:
        _offer(into, shown.casefold(), Mention(shown, PLAIN))
    elif not shown.isalpha() and _DIGIT_OR_BAR.search(shown):
        _offer_identifier(into, shown)
    elif shown.isupper():
        _offer(into, shown.casefold(), Mention(shown, WEAK))
    elif not cut and _starts_sentence(text, start):
        _offer(into, shown.casefold(), Mention(shown, WEAK, introduces=False))
        return False
    elif is_german(text) and not _PLACE_BEFORE.search(text, max(0, start - 8), start):
        return False
    else:
        _offer(into, shown.casefold(), Mention(shown, PLAIN))
    return True


def _starts_sentence(text: str, start: int) -> bool:
    """Whether the word at ``start`` stands first in a sentence, line, list item or quotation."""
    for at in range(start - 1, max(-1, start - 12), -1):
        if text[at] in _SENTENCE_ENDS:
            return True
        if text[at] not in _OPENING:
            return False
    return start < 12


def _offer_identifier(into: dict[str, Mention], token: str) -> None:
    """Ids, file names, paths and names in code. A plain word with a hyphen is none."""
    token = token.strip("._/\\-")
    if not 3 <= len(token) <= MAX_ENTITY_CHARS or token.isdigit():
        return
    if "@" in token:
        _offer(into, token.casefold(), Mention(token, STRONG))
        return
    digits = _DIGIT.search(token) is not None
    letters = _LETTER.search(token) is not None
    if _FILE.search(token):
        _offer(into, token.casefold(), Mention(token, STRONG))
    elif digits and letters:
        strong = len(token) >= 6
        _offer(into, token.casefold(), Mention(token, STRONG if strong else WEAK))
    elif "_" in token or (token[0].islower() and token != token.lower()):
        _offer(into, token.casefold(), Mention(token, PLAIN))
    elif letters and ("/" in token or "." in token) and len(token) >= 6:
        _offer(into, token.casefold(), Mention(token, WEAK))
