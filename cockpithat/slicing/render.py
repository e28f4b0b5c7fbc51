"""The renderings of the layers (section 3.2), each a text that trace content cannot forge marks in.

L1 verbatim; L2 key actions, commitments and conclusions without routine narration; L3 an outcome of at most
20 words; L4 a milestone. All without a model: they are extracts, so that whatever an analyst quotes stands in
the trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from cockpithat.contract.trace import Step
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.slicing.content import calls, outputs, verbatim
from cockpithat.slicing.marks import clean, quoted, single_line
from cockpithat.slicing.milestones import Milestone

MAX_WORDS = 20  # section 3.2, L3
_MAX_WORD = 40  # characters; an unbroken run of more is cut, so that 20 words stay short
_MAX_MILESTONE_WORDS = 10
_MAX_SEGMENT = 320  # characters of one extract
_MAX_SEGMENTS = 3_000
GAP = "[...]"
_ROUTINE = 0.5  # merit up to which a part is narration

_SENTENCE_END = re.compile(r"[.!?]+(?=\s)|[。！？]+")
_CONCLUSION = re.compile(
    r"\b(?:therefore|thus|hence|conclu\w*|final|answer|result|total|found|confirm\w*|verified|means|because"
    r"|is not|are not|cannot|unable|missing|incorrect|wrong|correct|satisfied|complete|done|set to|turned"
    r"|opened|closed|has been|have been|changed)\b|因此|所以|结果|已|无法",
    re.IGNORECASE,
)
_COMMITMENT = re.compile(
    r"\b(?:will|shall|let's|let us|i'll|we'll|going to|need to|must|should|plan|next|first|then|please"
    r"|instruct|request|use|assum\w+|decid\w+|instead|verify|check|calculate|search|open|run)\b"
    r"|请|将|需要|\bbitte\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:error|exception|traceback|fail\w*|warning|denied|timeout|timed out|not found|no such|invalid"
    r"|unsafe|danger\w*|risk\w*|however|but|mistake|assum\w+|mock|sample|placeholder|unknown|unclear"
    r"|approximately)\b|错误|失败|警告",
    re.IGNORECASE,
)
_NARRATION = re.compile(
    r"^\W{0,8}(?:sure\b|certainly\b|of course\b|okay\b|ok\b|great\b|thank|hello\b|hi\b|i'm happy|i am happy"
    r"|glad\b|here is a screenshot|the viewport shows|automatic ocr|the following (?:text|metadata)"
    r"|next speaker\b|you're welcome|let me know|feel free|i clicked|i scrolled|i typed|好的|当然|gerne\b)",
    re.IGNORECASE,
)
_NUMBERISH = re.compile(r"\d|[\"“'`]")


@dataclass(frozen=True)
class Rendering:
    """A step's text in a prompt; ``kind`` is empty for verbatim, else what stands in the step's line."""

    kind: str
    text: str

    @cached_property
    def tokens(self) -> int:
        """Tokens by ``approx-1``."""
        return approximate_tokens(self.text)


def _segments(text: str) -> list[str]:
    """Sentences and lines of a text in order, blanks left out, long ones cut."""
    found: list[str] = []
    for line in clean(text).split("\n"):
        start = 0
        ends = [match.end() for match in _SENTENCE_END.finditer(line)]
        for end in (*ends, len(line)):
            piece = line[start:end].strip()
            start = end
            # A lone list number or initial says nothing by itself.
            if len(piece) > 2:
                found.append(piece if len(piece) <= _MAX_SEGMENT else piece[: _MAX_SEGMENT - 4] + " ...")
    if len(found) > _MAX_SEGMENTS:
        half = _MAX_SEGMENTS // 2
        found = found[:half] + found[-half:]
    return found


def _merit(segment: str, place: int, count: int) -> float:
    """How much a sentence tells about what was done, promised or concluded; 0 and less is narration."""
    if _NARRATION.match(segment):
        return 0.0
    merit = 0.4
    merit += 2.0 if _TROUBLE.search(segment) else 0.0
    merit += 1.5 if _CONCLUSION.search(segment) else 0.0
    merit += 1.0 if _COMMITMENT.search(segment) else 0.0
    merit += 0.3 if _NUMBERISH.search(segment) else 0.0
    merit += 1.0 if place == 0 else 0.0
    merit += 1.5 if place == count - 1 else 0.0
    if len(segment) < 12 or len(segment.split()) < 3:
        merit -= 0.8
    return merit


def _key_parts(step: Step) -> list[tuple[str, float]]:
    """Parts of a step in order, with how much each is worth keeping."""
    parts: list[tuple[str, float]] = []
    for text, weight in ((step.text, 1.0), (step.reasoning, 0.8)):
        segments = _segments(text)
        parts.extend(
            (segment, weight * _merit(segment, place, len(segments)))
            for place, segment in enumerate(segments)
        )
    parts.extend((f"plan {item.id}: {item.text}"[:_MAX_SEGMENT], 2.5) for item in step.plan if item.text)
    parts.extend((call[:_MAX_SEGMENT], 5.0) for call in calls(step))
    for output in outputs(step):
        segments = _segments(output)
        error = output.startswith("error")
        parts.extend(
            (segment, _merit(segment, place, len(segments)) + (3.0 if error else 1.0 if place == 0 else 0.0))
            for place, segment in enumerate(segments)
        )
    return parts


class StepText:
    """One step's renderings; what they share is worked out once, however many budgets ask."""

    def __init__(self, step: Step) -> None:
        self.step = step

    @cached_property
    def verbatim(self) -> Rendering:
        """L1: the step whole, reasoning and tool pairs included."""
        return Rendering("", quoted(verbatim(self.step)))

    @cached_property
    def _parts(self) -> list[tuple[str, float]]:
        return _key_parts(self.step)

    @cached_property
    def _costs(self) -> list[int]:
        return [approximate_tokens(text) + 2 for text, _ in self._parts]

    @cached_property
    def _order(self) -> list[int]:
        """Places of the parts, most telling first."""
        return sorted(range(len(self._parts)), key=lambda i: (-self._parts[i][1], i))

    def key(self, limit: int) -> Rendering:
        """L2: key actions, commitments and conclusions within ``limit`` tokens, in their order.

        The most telling parts are taken while they fit; ``[...]`` stands where something was left out.
        """
        chosen: set[int] = set()
        left = limit
        for i in self._order:
            if self._parts[i][1] <= _ROUTINE and chosen:
                break
            if self._costs[i] <= left:
                chosen.add(i)
                left -= self._costs[i]
            if left < 6:
                break
        if not chosen:
            return self.outcome
        lines: list[str] = []
        previous = -1
        for i in sorted(chosen):
            if i != previous + 1:
                lines.append(GAP)
            lines.append(self._parts[i][0])
            previous = i
        if previous != len(self._parts) - 1:
            lines.append(GAP)
        return Rendering("key", quoted(" ".join(lines)))

    def in_words(self, words: int) -> str:
        """The step in at most ``words`` words: a failure before a call before a conclusion."""
        errors = [output for output in outputs(self.step) if output.startswith("error")]
        made = calls(self.step)
        if errors:
            text = errors[0]
        elif made:
            text = "; ".join(made)
        elif self._order:
            text = self._parts[self._order[0]][0]
        else:
            return "(empty)"
        return single_line(first_words(text, words))

    @cached_property
    def outcome(self) -> Rendering:
        """L3: the step's outcome in at most 20 words."""
        return Rendering("20w", self.in_words(MAX_WORDS))

    def milestone(self, kind: Milestone | None) -> Rendering:
        """L4: what kind of milestone, and ten words of it; nothing for a step that is none."""
        if kind is None:
            return Rendering("", "")
        target = f" to {single_line(self.step.target)}" if self.step.target else ""
        return Rendering("4", f"{kind.value}{target}: {self.in_words(_MAX_MILESTONE_WORDS)}")


def first_words(text: str, count: int) -> str:
    """At most ``count`` words of a text on one line. In a script without spaces a character is a word."""
    words: list[str] = []
    for word in text.split():
        pieces = re.findall(
            r"[\u3040-\u30ff\u3400-\u9fff]|[^\u3040-\u30ff\u3400-\u9fff]+", word[: 4 * _MAX_WORD]
        )
        cjk = len(pieces) > 1 or (pieces and len(pieces[0]) == 1 and ord(pieces[0]) > 0x3000)
        if cjk:
            room = count - len(words)
            # One entry per character keeps the count honest; joined below without spaces.
            words.extend(pieces[:room])
        else:
            words.append(word if len(word) <= _MAX_WORD else word[: _MAX_WORD - 3] + "...")
        if len(words) >= count:
            break
    joined = ""
    for word in words[:count]:
        glue = "" if not joined or (ord(word[0]) > 0x3000 and ord(joined[-1]) > 0x3000) else " "
        joined += glue + word
    return joined
