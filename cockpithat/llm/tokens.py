"""Counting tokens without the endpoint: for budgets before a call and where an answer carries no usage.

Two named counters:

``o200k_base``
    The public byte-pair vocabulary, exact, where the package ``bpe-openai`` is installed (it carries the
    vocabulary; nothing is fetched). Benchmarks report with it.
``approx-1``
    Needs nothing and is the same everywhere, so prompts do not depend on what is installed. A word costs
    one token per started six letters, digits one per three, every other visible character one, a line
    break one; characters outside Latin script one each. How far it is from ``o200k_base``:
    ``tests/bench/bench_tokens.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Counter = Callable[[str], int]

APPROXIMATION = "approx-1"
_CHUNK = 100_000  # characters

_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]+|\n+", re.ASCII)


def approximate_tokens(text: str) -> int:
    """Tokens of a text by ``approx-1``; linear in its length."""
    total = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        first = piece[0]
        if first.isascii() and first.isalpha():
            total += (len(piece) + 5) // 6
        elif first.isdigit():
            total += (len(piece) + 2) // 3
        elif first == "\n":
            total += 1
        elif first.isascii():
            # Punctuation merges: "==========" or "})," are a token or two, not ten.
            total += (len(piece) + 1) // 2
        else:
            total += len(piece)
    return total


def message_tokens(contents: list[str], counter: Counter = approximate_tokens) -> int:
    """Tokens of a request: its messages and four for the frame of each, as chat templates add."""
    return sum(counter(content) + 4 for content in contents)


def named_counter(name: str) -> Counter:
    """The counter of that name. Raises ``ValueError`` that says what to install or which names exist."""
    if name == APPROXIMATION:
        return approximate_tokens
    if name == "o200k_base":
        try:
            import bpe_openai
        except ImportError:
            raise ValueError(
                "the o200k_base counter needs the package bpe-openai: pip install bpe-openai"
            ) from None
        encoding = bpe_openai.get_encoding("o200k_base")
        # The encoder refuses very long texts; a cut costs a token at most.
        return lambda text: sum(
            len(encoding.encode_ordinary(text[start : start + _CHUNK]))
            for start in range(0, len(text), _CHUNK)
        )
    raise ValueError(f"no token counter named {name!r}; there are {APPROXIMATION} and o200k_base")
