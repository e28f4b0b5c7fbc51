"""A built scenario as wire records: what a vehicle would have sent, and, apart from it, the label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import yaml

from cockpithat.contract.base import Outcome
from cockpithat.contract.events import SessionEnd, SessionStart, StepEvent
from cockpithat.contract.ids import digest
from cockpithat.contract.vehicle import VehicleSnapshot
from cockpithat.resources import read_resource
from cockpithat.simulator.annotators import AnnotatorSettings, TraceView, annotation
from cockpithat.simulator.builder import Built, scenario_key
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.episode import Draft
from cockpithat.simulator.faults import BY_VARIANT
from cockpithat.simulator.labels import Gold, Marker, ReplayProof, ScenarioRecord, SessionLabel
from cockpithat.simulator.language import LOCALES, MARKETS, pack
from cockpithat.simulator.roster import DRIVER
from cockpithat.simulator.signals import VSS_VERSION, signal_table
from cockpithat.simulator.tools import visible
from cockpithat.simulator.world import SCENE_PREFIX

_EPOCH_MS = 1_760_000_000_000  # an arbitrary but fixed moment: simulated clocks start near it
_DAY_MS = 86_400_000
_GRID_MS = 100


@cache
def held_out_families() -> frozenset[str]:
    """Families that no ranker may train on (``data/simulator/holdout.yaml``)."""
    return frozenset(yaml.safe_load(read_resource("data/simulator/holdout.yaml"))["families"])


@dataclass(frozen=True)
class SimulatedSession:
    """One session: its events in order, its snapshots in order, and the label that belongs to it."""

    start: SessionStart
    steps: tuple[StepEvent, ...]
    end: SessionEnd
    snapshots: tuple[VehicleSnapshot, ...]
    label: SessionLabel

    def records(self) -> Iterator[SessionStart | StepEvent | SessionEnd | VehicleSnapshot]:
        """Events and snapshots by time, a snapshot before an event of the same moment. No label."""
        events: list[SessionStart | StepEvent | SessionEnd] = [self.start, *self.steps, self.end]
        keyed: list[tuple[int, int, int, SessionStart | StepEvent | SessionEnd | VehicleSnapshot]] = []
        keyed += [(snapshot.ts, 0, i, snapshot) for i, snapshot in enumerate(self.snapshots)]
        keyed += [(event.ts, 1, i, event) for i, event in enumerate(events)]
        for _, _, _, record in sorted(keyed, key=lambda entry: entry[:3]):
            yield record


@dataclass(frozen=True)
class Sampling:
    """What the annotation protocol's draws decided for one trace."""

    again: bool
    audited: bool


def to_session(
    built: Built, seed: int, settings: AnnotatorSettings, sampling: Sampling | None
) -> SimulatedSession:
    """Wire records and label of a built scenario. ``sampling`` is ``None`` where nobody annotates."""
    scenario, run, number = built.scenario, built.run, built.wish.number
    key = scenario_key(seed, scenario.of_family.unseen)
    dice = Dice(key, "session", number)
    identity = digest("simulated", str(key), str(number))
    session_id, vehicle_id = f"s-{identity[:12]}", f"sim-{digest('vehicle', identity)[:8]}"
    base = _EPOCH_MS + seed % 1000 * _DAY_MS + dice.integer(0, _DAY_MS // _GRID_MS - 1, "clock") * _GRID_MS
    family = scenario.of_family
    texts = pack(scenario.language, family.unseen)
    kind: Literal["failed", "passed", "silent_hazard"] = "failed"
    if built.wish.category is None:
        kind = "passed"
    elif scenario.silent:
        kind = "silent_hazard"
    failed = kind == "failed"
    goal = (texts.families[scenario.family].get("goal") or [family.goal])[0]
    event_prefix = identity[12:20]

    def event_id(seq: int) -> str:
        return f"{event_prefix}-{seq:03d}"

    start = SessionStart(
        event_id=event_id(0),
        vehicle_id=vehicle_id,
        session_id=session_id,
        seq=0,
        ts=base,
        task=dice.choice(texts.goals, "goal").format(goal=goal),
        roster=run.cast.agents,
        market=dice.choice(MARKETS[scenario.language], "market"),
        locale=dice.choice(LOCALES[scenario.language], "locale"),
        software_version=f"sim-{dice.integer(1, 4, 'software')}.{dice.integer(0, 9, 'software minor')}",
        models={"dialogue": "programmed", "agents": "programmed"},
        vss_version=VSS_VERSION,
        sends_snapshots=True,
    )
    steps = tuple(
        StepEvent(
            event_id=event_id(step.index + 1),
            vehicle_id=vehicle_id,
            session_id=session_id,
            seq=step.index + 1,
            ts=base + step.ts,
            agent=step.agent,
            mode=step.mode,
            text=step.text,
            reasoning=step.reasoning,
            tool_calls=step.calls,
            tool_outputs=step.outputs,
            environment=step.scene,
            memory=step.memory,
            in_reply_to=None if step.reply_to is None else event_id(step.reply_to + 1),
            plan=step.plan,
            plan_item=step.plan_item,
            target=step.target,
            intended=step.intended,
        )
        for step in run.steps
    )
    answers = [step.text for step in run.steps if step.part == "dialogue" and step.text]
    reason = None
    if failed and dice.chance(0.6, "reason given"):
        reason = dice.choice(texts.acts["end.reason"], "reason")
    end = SessionEnd(
        event_id=event_id(len(steps) + 1),
        vehicle_id=vehicle_id,
        session_id=session_id,
        seq=len(steps) + 1,
        ts=base + run.end_ms,
        outcome=Outcome.FAILURE if failed else Outcome.SUCCESS,
        failed=failed,
        failure_reason=reason,
        final_answer=answers[-1] if answers else "",
    )
    snapshots = tuple(
        VehicleSnapshot(
            vehicle_id=vehicle_id,
            ts=base + ts,
            kind="full" if len(signals) == len(signal_table(family.unseen)) else "delta",
            vss_version=VSS_VERSION,
            signals=signals,
        )
        for ts, signals in run.snapshots
    )
    # The bus clock ticks on the 100 ms grid, as `base` and every tick do.
    gold = _gold(built, steps, base)
    markers = _markers(built, steps, base)
    notes = None
    if gold is not None and failed and sampling is not None:
        view = TraceView(
            agents=tuple(step.agent for step in steps),
            timestamps=tuple(step.ts for step in steps),
            driver=run.cast.agent(DRIVER),
        )
        notes = annotation(
            gold,
            markers,
            view,
            settings,
            Dice(key, "annotation", number),
            again=sampling.again,
            sampled=sampling.audited,
        )
    label = SessionLabel(
        session_id=session_id,
        vehicle_id=vehicle_id,
        kind=kind,
        gold=gold,
        markers=markers,
        scenario=_record(built, goal),
        proof=None
        if built.decisive is None
        else ReplayProof(
            replayed_steps=built.decisive + 1, earliest_helpful=built.decisive, uninjected_run_is_safe=True
        ),
        annotation=notes,
    )
    return SimulatedSession(start, steps, end, snapshots, label)


def _gold(built: Built, steps: tuple[StepEvent, ...], base: int) -> Gold | None:
    run, fault = built.run, built.scenario.fault
    if built.decisive is None or fault is None or run.rating is None or run.hazard_at is None:
        return None
    step, rating = steps[built.decisive], run.rating
    return Gold(
        step=built.decisive,
        seq=step.seq,
        event_id=step.event_id,
        ts=step.ts,
        agent=step.agent,
        category=fault.category,
        asil=rating.asil,
        severity=rating.severity,
        exposure=rating.exposure,
        controllability=rating.controllability,
        rationale=rating.rationale,
        hazardous_event=built.scenario.of_family.hazardous_event,
        hazard_ts=base + run.hazard_at,
        channel=BY_VARIANT[fault.category, fault.variant].channel,
    )


def _markers(built: Built, steps: tuple[StepEvent, ...], base: int) -> tuple[Marker, ...]:
    """Evidence in each channel: the decisive step, what it reads or remembers, and what the car then does."""
    run = built.run
    if built.decisive is None or run.hazard_at is None:
        return ()
    at = built.decisive

    def mark(channel: Literal["c", "e", "sigma", "m"], index: int, keys: tuple[str, ...] = ()) -> Marker:
        return Marker(
            channel=channel, step=index, event_id=steps[index].event_id, ts=steps[index].ts, keys=keys
        )

    drafts: tuple[Draft, ...] = run.steps
    markers = [mark("c", at)]
    source = next(
        (i for i in range(at - 1, -1, -1) if drafts[i].outputs and not drafts[i].stage.startswith("side")),
        None,
    )
    if source is not None:
        markers.append(mark("c", source))
    markers += [
        mark("e", step.index, tuple(step.scene))
        for step in drafts
        if step.scene and not step.stage.startswith("side") and abs(step.index - at) <= 3
    ][:3]
    markers += [
        mark("m", step.index, tuple(ref.key for ref in step.memory))
        for step in drafts
        if step.memory and step.stage == "recall"
    ]
    case = built.scenario.case()
    paths = [path for path, _ in visible([*case.main, *case.alternative])]
    paths += [source for source in case.reading.values() if not source.startswith(SCENE_PREFIX)]
    markers.append(
        Marker(channel="sigma", step=None, ts=base + run.hazard_at, keys=tuple(dict.fromkeys(paths)))
    )
    return tuple(markers)


def _record(built: Built, goal: str) -> ScenarioRecord:
    scenario, run, family = built.scenario, built.run, built.scenario.of_family
    case = scenario.case()
    start = [*case.start, *(case.calm if scenario.calm else case.danger)]
    return ScenarioRecord(
        family=family.name,
        shape=family.shape.value,
        held_out=family.unseen or family.name in held_out_families(),
        source=scenario.source,
        language=scenario.language,
        roster=scenario.roster,
        situation=scenario.situation.describe(),
        story=scenario.story,
        goal=goal,
        safe_outcome=family.safe_outcome,
        initial_state=run.start_signals,
        initial_scene={p[len(SCENE_PREFIX) :]: v for p, v in start if p.startswith(SCENE_PREFIX)},
        fault=scenario.parameters(),
        side_conversations=tuple(side.name for side in scenario.sides),
        turns=run.turns,
        steps=len(run.steps),
        active_agents=run.active_agents,
        seconds=round(run.end_ms / 1000, 2),
    )
