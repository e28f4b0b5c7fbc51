"""The table of costs in its small form: every method with a model over HTTP, each request counted once."""

from __future__ import annotations

from typing import Any

import pytest

from cockpithat.contract.trace import Trace
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.methods.echo import Echo
from cockpithat.methods.registry import names
from cockpithat.methods.who_when import AllAtOnce
from cockpithat.panel.method import PanelAttribution
from tests.bench.bench_methods import METHODS, measure, spread

CALLS = {PanelAttribution: 8, AllAtOnce: 1, Echo: 6}


def test_the_table_has_every_method_with_a_model() -> None:
    assert {kind.name for kind in METHODS} == {name for name, analysts in names() if analysts == "llm"}


@pytest.mark.parametrize("kind", METHODS)
async def test_each_request_is_counted_once_however_many_are_out_at_a_time(
    kind: Any, whowhen: list[Trace]
) -> None:
    """Verdicts on runs of both splits, none degraded; what was counted is the same again."""
    short, middling = whowhen[0], whowhen[4]
    both = await measure(kind, [short, middling], approximate_tokens)
    alone = [await measure(kind, [trace], approximate_tokens) for trace in (short, middling)]
    assert both.runs == 2 and both.calls == sum(cost.calls for cost in alone)
    assert both.sent == sum(cost.sent for cost in alone) > both.received > 0
    assert both.received == sum(cost.received for cost in alone)
    if (calls := CALLS.get(kind)) is not None:
        assert both.calls == 2 * calls


def test_runs_are_spread_over_their_lengths(whowhen: list[Trace]) -> None:
    lengths = [sum(len(step.text) for step in trace.steps) for trace in spread(whowhen, 3)]
    every = [sum(len(step.text) for step in trace.steps) for trace in whowhen]
    assert lengths == sorted(lengths) and lengths[0] == min(every) and lengths[-1] == max(every)
    assert len(spread(whowhen, 99)) == len(whowhen)
