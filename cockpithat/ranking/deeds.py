"""Features of what is done: kinds of step, what is around it, the change that mattered, the graph."""

from __future__ import annotations

from cockpithat.analysis.detectors.cues import APOLOGY
from cockpithat.analysis.examination import Examination
from cockpithat.analysis.view import TraceView
from cockpithat.ranking.texts import Features

_MODES = frozenset({"message", "thought", "plan", "tool_call", "tool_output", "action", "observation"})
_FAR = 7


def deed_features(examination: Examination, steps: list[int]) -> dict[int, Features]:
    """Features of each of ``steps``; empty where nothing but words is known."""
    view = examination.view
    critical = critical_change(examination)
    depth = _story(examination, critical)
    before = _since(view)
    actors = {step: place for place, step in enumerate(view.actors)}
    result: dict[int, Features] = {}
    for i in steps:
        step, doing = view.steps[i], view.doings[i]
        previous = view.keys[i - 1] if i else ""
        following = i + 1 < len(view.steps) and view.keys[i + 1] in view.people
        features: Features = {
            f"mode_{step.mode if step.mode in _MODES else 'other'}": 1.0,
            "changes": float(doing.writes),
            "looks_up": float(doing.looks),
            "observes": float(step.mode == "observation"),
            "refused": float(doing.refused),
            "remembers": float(bool(step.memory)),
            "remembers_value": float(any(m.value is not None for m in step.memory)),
            "plans": float(bool(step.plan)),
            "plan_items": min(len(step.plan), 6) / 6,
            "short_plan": float(0 < len(step.plan) <= 2),
            "plan_without_safety": float(bool(step.plan) and not _has_safety(view, i)),
            "in_plan": float(step.plan_item is not None),
            "hands_over": float(step.target is not None),
            "safety_agent": float(view.keys[i] in view.safety_agents),
            "answers_person": float(previous in view.people),
            "person_follows": float(following),
            "own_answer_before": float(
                bool(i) and previous == view.keys[i] and view.doings[i - 1].answers is not None
            ),
            "answers_own_look": float(_just_looked(view, i)),
            "change_after_person": float(doing.writes and before[i][0] <= 2),
            "handed_over_at_once": float(
                previous in view.people and _changes_next(view, i) and not before[i][1]
            ),
            "looked_since_person": float(before[i][1]),
        }
        if critical is not None:
            ahead = actors.get(critical, critical) - actors.get(i, i)
            features["critical_change"] = float(i == critical)
            features["before_critical"] = float(ahead > 0)
            features["after_critical"] = float(ahead < 0)
            features[f"critical_in_{min(ahead, _FAR)}"] = float(ahead > 0)
            features["agent_of_critical"] = float(view.keys[i] == view.keys[critical])
            if depth is not None:
                far = depth.get(i)
                features["leads_to_critical"] = float(far is not None)
                if far is not None:
                    features[f"leads_in_{min(far, 4)}"] = 1.0
        result[i] = {name: value for name, value in features.items() if value}
    return result


def critical_change(examination: Examination) -> int | None:
    """The change that mattered: a rated hazard's order, else one undone, else the last before regret.

    Without any of these the last change of the session; ``None`` if nothing was changed.
    """
    view = examination.view
    for found in examination.hazards.rated:
        if found.commanded and view.acts(found.step):
            return found.step
    writes = [i for i, doing in enumerate(view.doings) if doing.writes and view.acts(i) and not doing.refused]
    if not writes:
        return None
    latest: dict[str, tuple[int, object]] = {}
    people = [i for i in range(len(view.steps)) if view.keys[i] in view.people]
    for i in writes:
        for path in (*view.doings[i].targets, *view.doings[i].moved):
            value = view.doings[i].targets.get(path)
            if path in latest and (value is None or latest[path][1] != value):
                spoken = any(latest[path][0] < p < i for p in people[-4:])
                if spoken:
                    return latest[path][0]
            latest[path] = (i, value)
    regret = next((i for i in range(len(view.steps) - 1, -1, -1) if APOLOGY.search(view.words[i])), None)
    earlier = [i for i in writes if regret is None or i < regret]
    return (earlier or writes)[-1]


def _story(examination: Examination, critical: int | None) -> dict[int, int] | None:
    """Edges of the graph between each step and the critical change that depends on it."""
    graph = examination.trace.graph
    if graph is None or critical is None:
        return None
    sources: dict[int, list[int]] = {}
    for edge in graph.edges:
        sources.setdefault(edge.target, []).append(edge.source)
    depth = {critical: 0}
    layer = [critical]
    while layer:
        following: list[int] = []
        for step in layer:
            for source in sources.get(step, ()):
                if source not in depth:
                    depth[source] = depth[step] + 1
                    following.append(source)
        layer = following
    return depth


def _since(view: TraceView) -> list[tuple[int, bool]]:
    """For each step: how many steps since a person spoke, and whether anyone looked something up since."""
    result: list[tuple[int, bool]] = []
    count, looked = len(view.steps), False
    for i in range(len(view.steps)):
        result.append((count, looked))
        count += 1
        if view.keys[i] in view.people:
            count, looked = 0, False
        elif view.doings[i].looks or view.steps[i].mode == "observation" or view.steps[i].memory:
            looked = True
    return result


def _just_looked(view: TraceView, index: int) -> bool:
    if view.steps[index].tool_calls:
        return False
    earlier = range(max(0, index - 2), index)
    return any(view.keys[j] == view.keys[index] and view.doings[j].data for j in earlier)


def _changes_next(view: TraceView, index: int) -> bool:
    return any(view.doings[j].writes for j in (index, *view.following(index, 2)))


def _has_safety(view: TraceView, index: int) -> bool:
    keys = view.safety_agents
    from cockpithat.analysis.roles import agent_key

    return any(item.agent is not None and agent_key(item.agent) in keys for item in view.steps[index].plan)
