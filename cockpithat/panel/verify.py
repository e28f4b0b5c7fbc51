"""Checking what an analyst says against the trace: agents, steps and quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from cockpithat.channels.tags import Channel
from cockpithat.contract.reports import Evidence
from cockpithat.contract.trace import Trace
from cockpithat.slicing.content import channels, everything, verbatim
from cockpithat.slicing.marks import comparable

MIN_QUOTE = 4  # characters that say something; a shorter quote fits anywhere
MAX_QUOTE = 400
_WIDEST = 3  # a quote must not stand in more steps than this to be moved to the one it stands in


class TraceFacts:
    """What a trace holds, in the form that answers are compared with. Built once a trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._agents = {name: name for name in trace.agents}
        self._by_key: dict[str, list[str]] = {}
        for name in trace.agents:
            self._by_key.setdefault(comparable(name), []).append(name)
        self._texts = [comparable(everything(step)) for step in trace.steps]

    def agent(self, name: str) -> str | None:
        """The roster's or trace's spelling of a name, ``None`` if there is no such agent."""
        if name in self._agents:
            return name
        found = self._by_key.get(comparable(name), [])
        return found[0] if len(found) == 1 else None

    def has_step(self, step: int) -> bool:
        """Whether the step exists."""
        return 0 <= step < len(self._texts)

    def holds(self, step: int, quote: str) -> bool:
        """Whether the quote stands in the step."""
        wanted = comparable(quote)
        return self.has_step(step) and len(wanted) >= MIN_QUOTE and wanted in self._texts[step]

    def supports(self, evidence: Evidence) -> bool:
        """Whether a piece of evidence checks out: a quote that stands in the step it names."""
        return evidence.step is not None and self.holds(evidence.step, evidence.text)

    def locate(self, step: int | None, quote: str) -> int | None:
        """The step a quote stands in: the one named, else the nearest of at most three; ``None`` if nowhere.

        Models are often off by one in the number and right in the words.
        """
        if step is not None and self.holds(step, quote):
            return step
        wanted = comparable(quote)
        if len(wanted) < MIN_QUOTE:
            return None
        found = [index for index, text in enumerate(self._texts) if wanted in text]
        if not 1 <= len(found) <= _WIDEST:
            return None
        return min(found, key=lambda index: (abs(index - step) if step is not None else 0, index))

    def evidence(self, analyst: str, quotes: Sequence[tuple[int | None, str]]) -> tuple[Evidence, ...]:
        """Evidence for the quotes that stand in the trace; the others are dropped."""
        found: dict[tuple[int, str], Evidence] = {}
        for named, raw in quotes:
            quote = raw.strip()[:MAX_QUOTE]
            # Models shorten with dots; each part must stand there, and the longest is kept as the quote.
            part = max((p.strip(" \"'“”") for p in quote.replace("…", "...").split("...")), key=len)
            step = self.locate(named, part)
            if step is None:
                continue
            found.setdefault(
                (step, comparable(part)),
                Evidence(
                    kind=analyst,
                    step=step,
                    agent=self.trace.steps[step].agent,
                    channel=self._channel(step, part),
                    text=part,
                ),
            )
        return tuple(found.values())

    def _channel(self, step: int, quote: str) -> str:
        wanted, whole = comparable(quote), self.trace.steps[step]
        if wanted in comparable(verbatim(whole)):
            return "c"
        return next(
            (name for name in get_args(Channel) if wanted in comparable(channels(whole, (name,)))), "c"
        )
