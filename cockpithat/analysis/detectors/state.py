"""Intended against actual state changes: what was ordered, what the bus shows, how long after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.conditions import as_bool, as_number
from cockpithat.analysis.detectors.cues import DONE
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.tool_signals import Value, from_tool_call
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category
from cockpithat.contract.trace import Step
from cockpithat.contract.vehicle import SignalQuality, VssValue

LATE_MS = 10_000
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class _Order:
    step: int
    value: Value
    ts: int


class StateMismatch:
    """Orders that were not carried out, late, turned round, or claimed as done without effect."""

    name = "state"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """One pass: open orders by path, closed by the bus."""
        open_orders: dict[str, _Order] = {}
        done: dict[str, _Order] = {}
        known: dict[str, VssValue] = {}
        for i, step in enumerate(view.steps):
            yield from _call_against_intent(view, i)
            if view.acts(i):
                for path, value in view.commands[i].items():
                    if path in known and same(known[path], value):
                        done[path] = _Order(i, value, step.ts)
                    else:
                        open_orders[path] = _Order(i, value, step.ts)
            if step.state is None:
                continue
            for change in step.state.changes:
                yield from self._change(view, i, change.path, change.after, change.ts, open_orders, done)
            for path, after in step.state.after.items():
                if step.state.after_quality.get(path) in (None, SignalQuality.VALID) and after is not None:
                    known[path] = after
                    order = open_orders.get(path)
                    if order is not None and same(after, order.value):
                        done[path] = open_orders.pop(path)
                else:
                    known.pop(path, None)
        for path, order in sorted(open_orders.items(), key=lambda item: (item[1].step, item[0])):
            if path in known:
                yield from self._not_done(view, path, order, known[path])

    def _change(
        self,
        view: TraceView,
        at: int,
        path: str,
        after: VssValue,
        ts: int,
        open_orders: dict[str, _Order],
        done: dict[str, _Order],
    ) -> Iterator[Clue]:
        order = open_orders.get(path)
        if order is not None and after is not None:
            if same(after, order.value):
                done[path] = open_orders.pop(path)
                if ts - order.ts > LATE_MS:
                    text = f"{path} = {after} {(ts - order.ts) / 1000:.1f} s after the order"
                    yield _sigma(
                        "change_came_late", view, order.step, path, text, 0.3, Category.PLANNING_FAILURE
                    )
            elif as_number(after) is None:
                text = f"ordered {path} = {order.value}, bus shows {after}"
                yield _sigma(
                    "change_against_order", view, order.step, path, text, 0.6, Category.PLAN_ADHERENCE_FAILURE
                )
            return
        earlier = done.get(path)
        if earlier is not None and after is not None and not same(after, earlier.value):
            del done[path]
            ordered_now = path in view.commands[at]
            if not ordered_now:
                text = f"{path} was ordered {earlier.value} and went to {after} without an order"
                yield _sigma(
                    "order_undone", view, earlier.step, path, text, 0.35, Category.DRIVER_AGENT_INTERACTION
                )

    @staticmethod
    def _not_done(view: TraceView, path: str, order: _Order, actual: VssValue) -> Iterator[Clue]:
        text = f"ordered {path} = {order.value}, bus still shows {actual}"
        claim = next(
            (i for i in view.following(order.step, 8) if view.acts(i) and DONE.search(view.words[i])), None
        )
        if claim is None:
            yield _sigma(
                "order_without_effect", view, order.step, path, text, 0.5, Category.PLAN_ADHERENCE_FAILURE
            )
            return
        yield _sigma(
            "order_without_effect", view, order.step, path, text, 0.35, Category.PLAN_ADHERENCE_FAILURE
        )
        match = DONE.search(view.words[claim])
        yield Clue(
            kind="claimed_without_effect",
            step=claim,
            agent=view.steps[claim].agent,
            category=Category.MISINTERPRETATION_OF_TOOL_OUTPUT,
            weight=0.75,
            channel="c",
            text=quote(view.words[claim], match.start() if match else 0),
            paths=(path,),
        )


def _call_against_intent(view: TraceView, index: int) -> Iterator[Clue]:
    step: Step = view.steps[index]
    if not step.intended or not step.tool_calls:
        return
    intended = {change.path: change.value for change in step.intended}
    called: dict[str, Value] = {}
    for call in step.tool_calls:
        called.update(from_tool_call(call))
    for path, value in called.items():
        if path in intended and not same(intended[path], value):
            text = f"meant {path} = {intended[path]}, called with {value}"
            yield _sigma("call_against_intent", view, index, path, text, 0.7, Category.PLAN_ADHERENCE_FAILURE)


def _sigma(
    kind: str, view: TraceView, step: int, path: str, text: str, weight: float, category: Category
) -> Clue:
    return Clue(kind, step, view.steps[step].agent, category, weight, "sigma", text, (path,))


def same(actual: object, wanted: object) -> bool:
    """Whether a bus value is the ordered one: words for booleans count, numbers within 2 percent."""
    if isinstance(actual, bool) or isinstance(wanted, bool):
        known = as_bool(actual), as_bool(wanted)
        return None not in known and known[0] == known[1]
    left, right = as_number(actual), as_number(wanted)
    if left is not None and right is not None:
        return abs(left - right) <= _TOLERANCE * max(abs(left), abs(right), 1.0)
    return str(actual).casefold() == str(wanted).casefold()
