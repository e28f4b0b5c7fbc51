"""What every call cost, the failed ones too."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cockpithat.contract.reports import TokenUsage
from cockpithat.llm.settings import Role, RoleSettings

OK = "ok"
CACHED = "cached"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One try of one call. ``outcome`` is ``ok``, ``cached`` or the error's kind.

    Tokens are the endpoint's own count, or ``estimated`` where it gave none: an answer without usage, and a
    request that was sent and never answered (the endpoint may well bill it). A request that was turned away
    or never reached the endpoint cost nothing.
    """

    role: Role
    model: str
    purpose: str
    attempt: int
    outcome: str
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    seconds: float = 0.0


def cost_of(settings: RoleSettings, input_tokens: int, output_tokens: int) -> float:
    """Price of a call in the currency of the settings, whose prices are for a million tokens."""
    return (input_tokens * settings.input_price + output_tokens * settings.output_price) / 1e6


@dataclass(slots=True)
class Ledger:
    """All calls made for one trace."""

    records: list[CallRecord] = field(default_factory=list)

    def add(self, record: CallRecord) -> None:
        """Book one try."""
        self.records.append(record)

    @property
    def tokens(self) -> TokenUsage:
        """Sum over all tries; what came from the cache is not paid again."""
        return TokenUsage(
            input=sum(record.input_tokens for record in self.records),
            output=sum(record.output_tokens for record in self.records),
        )

    @property
    def cost(self) -> float:
        """Sum of all costs."""
        return sum(record.cost for record in self.records)

    def outcomes(self) -> dict[str, int]:
        """How many tries ended in what way."""
        return dict(Counter(record.outcome for record in self.records))
