"""One run of a scenario: the stage on which the agents act, and the record of what they did.

A run is a pure function of the scenario and of ``correct_at``, the step (if any) whose decision is
taken rightly. Everything before that step comes out the same; everything after it is played anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpithat.contract.events import IntendedChange, MemoryRef, PlanItem, ToolCall, ToolOutput
from cockpithat.contract.vehicle import VssValue
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import Case, Family
from cockpithat.simulator.language import Pack, pack
from cockpithat.simulator.roster import DRIVER, Cast, cast
from cockpithat.simulator.scenario import Scenario
from cockpithat.simulator.situations import situation_state
from cockpithat.simulator.tools import Toolbox, intended
from cockpithat.simulator.world import SCENE_PREFIX, World, Write

IDENTITY = "Vehicle.Driver.Identifier.Subject"
_ACTUATOR_MS = 200
_DURATION_MS = {
    "message": 1900,
    "thought": 900,
    "plan": 2100,
    "tool_call": 700,
    "tool_output": 600,
    "action": 1200,
    "observation": 1300,
}


@dataclass(slots=True)
class Draft:
    """A step as it is played. ``part`` is the part of the cast that acts, ``act`` what it does."""

    index: int
    ts: int
    part: str
    agent: str
    mode: str
    act: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    outputs: tuple[ToolOutput, ...] = ()
    scene: dict[str, Any] = field(default_factory=dict)
    memory: tuple[MemoryRef, ...] = ()
    plan: tuple[PlanItem, ...] = ()
    plan_item: str | None = None
    target: str | None = None
    reply_to: int | None = None
    intended: tuple[IntendedChange, ...] = ()
    stage: str = ""  # part of the story; "side:..." for side conversations


class Episode:
    """The stage: beliefs, world, cast, and the steps so far."""

    def __init__(self, scenario: Scenario, *, correct_at: int | None = None, record: bool = False) -> None:
        self.scenario = scenario
        self.family: Family = scenario.of_family
        self.case: Case = scenario.case()
        self.flow = scenario.flow
        self.dice = Dice(scenario.seed, "episode")
        self.record = record
        self.correct_at = correct_at
        self.cast: Cast = cast(scenario.roster, Dice(scenario.seed, "cast"))
        self.tools = Toolbox.of(Dice(scenario.seed, "tools"), unseen=self.family.unseen)
        self.pack: Pack = pack(scenario.language, self.family.unseen)
        self.steps: list[Draft] = []
        self.fault_step: int | None = None
        self.struck = False
        self.stage = "open"
        self.item: str | None = None
        self.snapshots: list[tuple[int, dict[str, VssValue]]] = []
        people = self.dice.shuffled(self.pack.names, "people")
        self.driver_name, self.other_name = people[0], people[1]
        self.driver_id = f"profile-{self.dice.integer(1000, 4999, 'profile')}"
        self.other_id = f"profile-{self.dice.integer(5000, 9999, 'other profile')}"
        self.world = self._world()
        self._call_style = self.dice.choice(("call_{}", "tc-{:03d}", "c{}"), "call ids")
        self._calls = 0
        self._last_driver: int | None = None
        self._slots = self._family_slots()

    def _world(self) -> World:
        s, case = self.scenario, self.case
        signals, scene = situation_state(s.situation, Dice(s.seed, "situation"))
        start = [*case.start, *(case.calm if s.calm else case.danger)]
        for path, value in start:
            if path.startswith(SCENE_PREFIX):
                scene[path[len(SCENE_PREFIX) :]] = value
            else:
                signals[path] = value
        scene.setdefault("pace_kmh", signals["Vehicle.Speed"])
        if scene["pace_kmh"] and signals["Vehicle.Speed"] != scene["pace_kmh"]:
            scene["pace_kmh"] = signals["Vehicle.Speed"]
        signals[IDENTITY] = self.driver_id
        schedule: list[tuple[int, Sequence[Write]]] = []
        if s.change_ms is not None:
            schedule.append((s.change_ms, self._dangerous_again(signals, scene)))
        if s.arrival_ms is not None:
            schedule.append((s.arrival_ms, case.arrival))
        return World(
            signals,
            scene,
            hazard=case.hazard,
            hold_ms=self.family.hold_ms,
            schedule=schedule,
            ripple=Dice(s.seed, "ripple").uniform(0.2, 0.9, "ripple"),
            recorder=self._snapshot if self.record else None,
            follow=case.follow,
            extended=self.family.unseen,
        )

    def _dangerous_again(self, signals: Mapping[str, VssValue], scene: Mapping[str, Any]) -> list[Write]:
        """What turns a clear coast dangerous: the situation's own values where the calm ones differ."""
        own, own_scene = situation_state(self.scenario.situation, Dice(self.scenario.seed, "situation"))
        writes: list[Write] = []
        for path, _ in self.case.calm:
            if path.startswith(SCENE_PREFIX):
                key = path[len(SCENE_PREFIX) :]
                if key in own_scene:
                    writes.append((path, own_scene[key]))
            elif path in own:
                writes.append((path, own[path]))
        return [*writes, *self.case.danger]

    def _snapshot(self, ts: int, signals: dict[str, VssValue]) -> None:
        self.snapshots.append((ts, signals))

    # -- decisions -------------------------------------------------------------------------------

    @property
    def corrected_here(self) -> bool:
        """Whether the next step is the one that replay corrects."""
        return len(self.steps) == self.correct_at

    def faulty(self, point: str) -> bool:
        """Whether the fault strikes this decision, which the next step carries out.

        It strikes once. If replay corrects that very step, it does not strike at all.
        """
        fault = self.scenario.fault
        if fault is None or fault.point != point or self.struck:
            return False
        self.struck = True
        if self.corrected_here:
            return False
        self.fault_step = len(self.steps)
        return True

    def clear(self) -> bool:
        """Whether the wish may be carried out as it is, in truth."""
        return self.case.clear(self.world.signals, self.world.scene)

    def true_reading(self) -> dict[str, Any]:
        """What the family's check reads here and now."""
        reading: dict[str, Any] = {}
        for name, source in self.case.reading.items():
            if source.startswith(SCENE_PREFIX):
                reading[name] = self.world.scene.get(source[len(SCENE_PREFIX) :])
            else:
                reading[name] = self.world.signals[source]
        return reading

    # -- acting ----------------------------------------------------------------------------------

    def call_id(self) -> str:
        """The next call id, in this cockpit's style."""
        self._calls += 1
        return self._call_style.format(self._calls)

    def emit(
        self,
        part: str,
        mode: str,
        act: str,
        *,
        calls: tuple[ToolCall, ...] = (),
        outputs: tuple[ToolOutput, ...] = (),
        scene: Mapping[str, Any] | None = None,
        memory: tuple[MemoryRef, ...] = (),
        plan: tuple[PlanItem, ...] = (),
        target: str | None = None,
        writes: Sequence[Write] = (),
        silent: bool = False,
        **slots: Any,
    ) -> int:
        """Plays one step, lets its time pass, and returns its index. ``silent`` steps carry no text."""
        index = len(self.steps)
        step = Draft(
            index=index,
            ts=self.world.now,
            part=part,
            agent=self.cast.agent(part),
            mode=mode,
            act=act,
            calls=calls,
            outputs=outputs,
            memory=memory,
            plan=plan,
            plan_item=self.item,
            target=self._addressee(part, mode, target, index),
            stage=self.stage,
        )
        if self.record:
            self._dress(step, scene, writes, silent, slots)
        self.steps.append(step)
        if part == DRIVER:
            self._last_driver = index
        length = _DURATION_MS[mode] * self.scenario.pace * self.dice.uniform(0.7, 1.35, "length", index)
        self.world.advance(self.world.now + max(120, 10 * round(length / 10)))
        return index

    def _addressee(self, part: str, mode: str, target: str | None, index: int) -> str | None:
        """Who a step is addressed to. Cockpits log that often, not always, and for answers as well."""
        if target is not None:
            return self.cast.agent(target) if self.dice.chance(0.8, "addressed", index) else None
        if mode != "message" or part in (DRIVER, "dialogue") or not self.dice.chance(0.5, "answers", index):
            return None
        agent = self.cast.agent("dialogue")
        return agent if agent != self.cast.agent(part) else None

    def use(
        self,
        part: str,
        act: str,
        call: ToolCall,
        output: ToolOutput,
        *,
        writes: Sequence[Write] = (),
        scene: Mapping[str, Any] | None = None,
    ) -> int:
        """Calls a tool and gets its answer, in one step or in two; returns the index of the call.

        Accepted writes take effect an actuator's delay after the call.
        """
        if writes:
            self.world.after(_ACTUATOR_MS, writes)
        quiet = self.dice.chance(0.55, "quiet", len(self.steps))
        if self.dice.chance(0.45, "one step a call"):
            return self.emit(
                part,
                "action",
                act,
                calls=(call,),
                outputs=(output,),
                writes=writes,
                scene=scene,
                silent=quiet,
            )
        index = self.emit(part, "tool_call", act, calls=(call,), writes=writes, scene=scene, silent=quiet)
        self.emit(part, "tool_output", "output", outputs=(output,), silent=True)
        return index

    def remark(self, part: str) -> None:
        """A thought before an act, where this cockpit has thoughts; never in place of a faulty act."""
        if self.fault_step == len(self.steps):
            return
        if self.flow.thoughts and self.dice.chance(0.45, "thought", len(self.steps)):
            self.emit(part, "thought", "thought")

    # -- words -----------------------------------------------------------------------------------

    def _family_slots(self) -> dict[str, Any]:
        slots: dict[str, Any] = {**self.case.values, "driver": self.driver_name, "other": self.other_name}
        if not self.record:
            return slots
        slots.setdefault("wrong", "")
        slots.setdefault("right", "")
        for kind in ("ask", "alt", "good", "bad", "look"):
            phrase = self.pack.phrase(self.scenario.family, kind, self.dice)
            slots[kind] = phrase.format_map(slots)
        return slots

    def words(self, kind: str, *name: object) -> str:
        """One wording of a family phrase, its values filled in."""
        if not self.record:
            return ""
        return self.pack.phrase(self.scenario.family, kind, self.dice, *name).format_map(self._slots)

    def _dress(
        self,
        step: Draft,
        scene: Mapping[str, Any] | None,
        writes: Sequence[Write],
        silent: bool,
        slots: Mapping[str, Any],
    ) -> None:
        index, dice, source = step.index, self.dice, self.scenario.source
        fresh = {
            kind: self.words(kind, index // 4)
            for kind in ("ask", "alt", "good", "bad", "look")
            if dice.chance(0.35, "reworded", kind, index)
        }
        if step.act.startswith("family."):
            step.text = self.words(step.act.removeprefix("family."), index)
        elif not silent:
            step.text = self.pack.line(step.act, {**self._slots, **fresh, **slots}, dice, index)
        step.text = step.text[:1].upper() + step.text[1:]
        if (
            source == "telemetry_style"
            and step.text
            and step.part != DRIVER
            and dice.chance(0.3, "tag", index)
        ):
            speed = self.world.signals["Vehicle.Speed"]
            step.text = f"{step.text} [v={speed}, t+{step.ts / 1000:.1f}s]"
        if (
            self.flow.thoughts
            and step.part != DRIVER
            and step.mode != "thought"
            and dice.chance(0.25, "why", index)
        ):
            step.reasoning = self.pack.line("thought", {**self._slots, **fresh, **slots}, dice, "why", index)
        if dice.chance(0.65, "intended", index):
            step.intended = intended(writes)
        step.scene = dict(scene or {})
        share = {"telemetry_style": 0.6, "adversarial": 0.3}.get(source, 0.2)
        if step.mode != "tool_output" and dice.chance(share, "scene", index):
            for key in dice.shuffled(("road", "light", "weather", "visibility_m"), "scene keys", index)[:2]:
                step.scene.setdefault(key, self.world.scene[key])
        if step.part == DRIVER and dice.chance(0.6, "speaker", index):
            step.scene.setdefault("speaker", self.driver_id)
        if step.part != DRIVER and step.mode == "message" and dice.chance(0.5, "reply", index):
            step.reply_to = self._last_driver
