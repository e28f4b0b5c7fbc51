"""Features of what is said: position, length, novelty, reuse, cues; no roster or signal is needed."""

from __future__ import annotations

import math
import re
from collections import Counter

from cockpithat.analysis.detectors.cues import (
    ACKNOWLEDGED,
    APOLOGY,
    APPROVAL,
    ASSUMED,
    CANCELLED,
    CONDITION,
    DONE,
    ERROR,
    HARD_ERROR,
    OFFER,
    WARNING,
)
from cockpithat.analysis.ranking import first_effect, heaviest_agent, longest_step
from cockpithat.analysis.view import TraceView

Features = dict[str, float]

_TOKEN = re.compile(r"[^\W_]{3,}|[\u4e00-\u9fff]")
_MAX_TOKENS = 400
_CODE = "```"
_CUES = {
    "error": ERROR, "hard_error": HARD_ERROR, "assumed": ASSUMED, "acknowledged": ACKNOWLEDGED, "done": DONE,
    "approval": APPROVAL, "warning": WARNING, "offer": OFFER, "apology": APOLOGY, "cancelled": CANCELLED,
    "condition": CONDITION,
}  # fmt: skip


def text_features(view: TraceView, steps: list[int]) -> dict[int, Features]:
    """Features of each of ``steps``; work is linear in the trace's text, which is cut to a bound a step."""
    n = len(view.steps)
    tokens = [_tokens(text) for text in view.lowered]
    question, answer = _tokens(view.trace.task.lower()), _tokens(view.trace.final_answer.lower())
    if not answer and n:
        answer = tokens[-1]
    born, reuse = _novelty(tokens)
    lengths = view.lengths
    ranked = {i: rank for rank, i in enumerate(sorted(steps, key=lambda i: (-lengths[i], i)))}
    total = sum(lengths[i] for i in steps) or 1
    characters = view.characters
    all_characters = sum(characters.values()) or 1
    turns = Counter(view.keys[i] for i in steps)
    heaviest = heaviest_agent(view)
    working = heaviest_agent(view, without_coordinators=True)
    effect = first_effect(view, working)
    longest = longest_step(view)
    mean_log = sum(math.log1p(lengths[i]) for i in steps) / max(len(steps), 1)
    cues = [_cues(text) for text in view.words]
    nth: Counter[str] = Counter()
    seen_before: set[frozenset[str]] = set()
    result: dict[int, Features] = {}
    for place, i in enumerate(steps):
        key = view.keys[i]
        nth[key] += 1
        length = math.log1p(lengths[i])
        count = len(tokens[i]) or 1
        features: Features = {
            "position": i / max(n - 1, 1),
            "position_squared": (i / max(n - 1, 1)) ** 2,
            "log_position": math.log1p(place),
            "opening": float(i == 0),
            "second": float(place == 1),
            "third": float(place == 2),
            "last": float(place == len(steps) - 1),
            "length": length - mean_log,
            "length_share": lengths[i] / total,
            "longest": float(i == longest),
            "second_longest": float(ranked[i] == 1),
            "short": float(lengths[i] < 40),
            "agent_share": characters.get(key, 0) / all_characters,
            "agent_turns": turns[key] / len(steps),
            "agent_heaviest": float(key == heaviest),
            "agent_works_most": float(key == working),
            "first_effect": float(i == effect),
            "agent_first_turn": float(nth[key] == 1),
            "agent_later_turn": min(nth[key] - 1, 6) / 6,
            "agent_first_and_heaviest": float(nth[key] == 1 and key == working),
            "coordinator": float(key in view.coordinators),
            "same_agent_before": float(i > 0 and view.keys[i - 1] == key),
            "novelty": len(born[i]) / count,
            "log_new_tokens": math.log1p(len(born[i])) / 5,
            "reused_later": reuse[i] / max(len(born[i]), 1),
            "question_coverage": len(tokens[i] & question) / (len(question) or 1),
            "answer_overlap": len(tokens[i] & answer) / (len(answer) or 1),
            "says_again": float(tokens[i] in seen_before and len(tokens[i]) > 3),
            "code": float(_CODE in view.words[i]),
            "ran": float(i + 1 < n and view.keys[i + 1] in view.machines),
            "asks": float(view.words[i].rstrip()[-1:] in ("?", "？")),
        }
        seen_before.add(tokens[i])
        for name, hit in cues[i].items():
            features[f"says_{name}"] = hit
        if i + 1 < n:
            features.update({f"next_says_{name}": hit for name, hit in cues[i + 1].items() if hit})
        if i > 0:
            features.update({f"after_{name}": hit for name, hit in cues[i - 1].items() if hit})
        result[i] = {name: value for name, value in features.items() if value}
    return result


def _tokens(text: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(text[:8_000])[:_MAX_TOKENS])


def _novelty(tokens: list[frozenset[str]]) -> tuple[list[frozenset[str]], list[int]]:
    """Tokens that each step says first, and how many of them a later step says again."""
    first: dict[str, int] = {}
    again: set[str] = set()
    born: list[frozenset[str]] = []
    reuse = [0] * len(tokens)
    for i, own in enumerate(tokens):
        new = frozenset(token for token in own if token not in first)
        born.append(new)
        for token in own:
            at = first.setdefault(token, i)
            if at != i and token not in again:
                again.add(token)
                reuse[at] += 1
    return born, reuse


def _cues(text: str) -> dict[str, float]:
    head = text[:3_000]
    return {name: 1.0 for name, cue in _CUES.items() if cue.search(head)}
