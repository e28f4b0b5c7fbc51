"""Plans against what was done: items skipped, out of order, by another agent, or a plan that was no good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cockpithat.analysis.clues import Clue, quote
from cockpithat.analysis.conditions import as_number
from cockpithat.analysis.detectors.cues import DEVIATION, STANDING
from cockpithat.analysis.hazards import HazardFindings
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.view import TraceView
from cockpithat.contract.base import Category
from cockpithat.contract.events import PlanItem

_ADHERENCE = Category.PLAN_ADHERENCE_FAILURE
_PLANNING = Category.PLANNING_FAILURE
_SPEED = "Vehicle.Speed"
_MOVING = 5.0  # km/h
_REACH = 40  # steps over which a plan's items are followed


@dataclass(slots=True)
class _Item:
    item: PlanItem
    position: int
    proposed_at: int
    done_at: int | None = None


class PlanAdherence:
    """Follows plan items by their ids; plans in free text are left to the graph."""

    name = "plans"

    def find(self, view: TraceView, hazards: HazardFindings) -> Iterator[Clue]:
        """Clues of adherence where they happen; of the plan itself where it was proposed."""
        items: dict[str, _Item] = {}
        blamed: set[str] = set()
        furthest = -1
        for i, step in enumerate(view.steps):
            for item in step.plan:
                if item.id not in items:
                    items[item.id] = _Item(item, len(items), i)
                    if item.agent and view.trace.roster and agent_key(item.agent) not in view.spelling:
                        yield _clue(
                            "plan_for_unknown_agent",
                            view,
                            i,
                            item.text or item.id,
                            0.5,
                            _PLANNING,
                        )
            if len(step.plan) >= 2 or (step.plan and view.acts(i)):
                yield from _order_of_work(view, i)
            if step.plan_item is None or not view.acts(i):
                continue
            yield from _deviations(view, i, items)
            current = items.get(step.plan_item)
            if current is None:
                if items:
                    yield _clue("item_not_in_plan", view, i, _said(view, i), 0.4, _ADHERENCE)
                continue
            first_time = current.done_at is None
            current.done_at = i if first_time else current.done_at
            if not first_time:
                continue
            skipped = [
                other
                for other in items.values()
                if other.position < current.position and other.done_at is None and other.item.id not in blamed
            ]
            if skipped:
                blamed.update(other.item.id for other in skipped)
                yield _clue("plan_item_skipped", view, i, _said(view, i), 0.7, _ADHERENCE)
            elif current.position < furthest and current.item.id not in blamed:
                yield _clue("plan_out_of_order", view, i, _said(view, i), 0.55, _ADHERENCE)
            furthest = max(furthest, current.position)
            if current.item.agent and agent_key(current.item.agent) != view.keys[i]:
                yield _clue("item_by_other_agent", view, i, _said(view, i), 0.35, _ADHERENCE)
        if items and view.trace.is_judged:
            yield from self._whole(view, items)

    @staticmethod
    def _whole(view: TraceView, items: dict[str, _Item]) -> Iterator[Clue]:
        done = [entry.done_at for entry in items.values()]
        where = next(iter(items.values())).proposed_at
        text = view.words[where].strip() or next(iter(items.values())).item.text
        if all(at is not None for at in done) and done == sorted(at for at in done if at is not None):
            # Followed to the letter and failed all the same: the plan is the first suspect.
            yield _clue("plan_followed_and_failed", view, where, text, 0.45, _PLANNING)
        elif any(at is not None for at in done) and done and done[-1] is None:
            last = max(at for at in done if at is not None)
            yield _clue("plan_left_unfinished", view, last, _said(view, last), 0.25, _ADHERENCE)


def _order_of_work(view: TraceView, at: int) -> Iterator[Clue]:
    """``plan_acts_before_check``: what the plan has changed comes before what it has looked up.

    ``plan_without_check``: something is changed out of a plan in which nothing is looked up, although the
    session's agents can look things up. Told from what is done under the items, not from their words.
    """
    order = {item.id: position for position, item in enumerate(view.steps[at].plan)}
    first_look: int | None = None
    first_write: int | None = None
    for j in range(at + 1, min(at + 1 + _REACH, len(view.steps))):
        position = order.get(view.steps[j].plan_item or "")
        if view.steps[j].plan:
            break
        if position is None:
            continue
        doing = view.doings[j]
        if doing.writes and first_write is None:
            first_write = position
        elif (doing.looks or view.keys[j] in view.safety_agents) and first_look is None:
            first_look = position
    text = view.words[at].strip() or view.steps[at].plan[0].text
    if first_write is not None and first_look is not None and first_write < first_look:
        yield _clue("plan_acts_before_check", view, at, text, 0.6, _PLANNING)
    elif first_write is not None and first_look is None and any(d.looks for d in view.doings):
        yield _clue("plan_without_check", view, at, text, 0.35, _PLANNING)


def _deviations(view: TraceView, index: int, items: dict[str, _Item]) -> Iterator[Clue]:
    """An order while the plan's own condition isn't met, or a step that says it departs from the plan."""
    if not items or not view.commands[index]:
        return
    state = view.steps[index].state
    speed = None
    if state is not None and _SPEED not in state.quality:
        speed = as_number(state.before.get(_SPEED))
    if (
        speed is not None
        and speed > _MOVING
        and any(STANDING.search(e.item.text[:500]) for e in items.values())
    ):
        agent = view.steps[index].agent
        shown = f"{_SPEED} = {speed:g}"
        yield Clue("plan_condition_unmet", index, agent, _ADHERENCE, 0.9, "sigma", shown, (_SPEED,))
    if DEVIATION.search(view.words[index]):
        yield _clue("deviation_admitted", view, index, _said(view, index), 0.5, _ADHERENCE)


def _said(view: TraceView, index: int) -> str:
    step = view.steps[index]
    return view.words[index].strip() or (step.tool_calls[0].name if step.tool_calls else step.plan_item or "")


def _clue(kind: str, view: TraceView, step: int, text: str, weight: float, category: Category) -> Clue:
    return Clue(kind, step, view.steps[step].agent, category, weight, "c", quote(text))
