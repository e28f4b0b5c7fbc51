"""The main story of a session, played by the agents' ordinary behaviour; faults strike its decisions.

The stages are those of any cockpit conversation: wish, understanding, memory, plan, check, proposal,
safety review, action, report. Agents act on what they believe, so a false belief travels: what the
Environment Interpreter misreads, the Dialogue Manager decides on and the State Controller carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cockpithat.contract.events import MemoryRef, PlanItem
from cockpithat.simulator.episode import Episode
from cockpithat.simulator.families import DOME, Shape
from cockpithat.simulator.roster import DRIVER
from cockpithat.simulator.world import Write

MAIN, ALTERNATIVE = "main", "alternative"
PLAN_KINDS = ("check", "secure", "review", "act", "tell")


class Story:
    """Plays one scenario to its end on an :class:`Episode`."""

    def __init__(self, episode: Episode, pause: Callable[[Episode, int], None]) -> None:
        self.ep = episode
        self.flow = episode.flow
        self.family = episode.family
        self.case = episode.case
        self.shape = episode.family.shape
        self._pause = pause
        self.plan: list[str] = []
        self.items: dict[str, str] = {}
        self.finding: bool | None = None
        self.executor = episode.family.executor
        self.scout = {"navigation": "road"}.get(episode.family.scout, episode.family.scout)

    def play(self) -> None:
        """The whole session."""
        self.pause(0)
        self.main()
        self.stage("after")
        ep = self.ep
        if ep.scenario.arrival_ms is not None:
            end = ep.scenario.arrival_ms + ep.family.arrival_lag_ms + ep.family.hold_ms
            ep.world.advance(ep.scenario.arrival_ms)
            while ep.world.now < end and ep.world.hazard_at is None:
                ep.world.advance(ep.world.now + 500)
        self.pause(4)
        self.tail()
        self.pause(5)
        # The last act needs a moment to show in the car.
        ep.world.advance(ep.world.now + 1200)

    def main(self) -> None:
        """From the wish to the report."""
        ep, flow = self.ep, self.flow
        story = ep.scenario.story
        if not self.understand(story):
            return
        self.pause(1)
        trusted = self.recall() if flow.memory else False
        if flow.plan and not flow.late_plan:
            self.make_plan(trusted)
        elif not flow.plan:
            self.plan = [kind for kind in PLAN_KINDS if kind != "secure" or self.shape is Shape.SECURE]
        else:
            self.plan = ["check"]
        self.pause(2)
        clear = self.establish(trusted)
        if clear is None:
            return
        if flow.plan and flow.late_plan and not trusted:
            clear = self.make_late_plan(clear)
        self.pause(3)
        self.decide(clear)

    # -- stages ----------------------------------------------------------------------------------

    def pause(self, slot: int) -> None:
        """Room for side conversations."""
        stage, item = self.ep.stage, self.ep.item
        self.ep.item = None
        self._pause(self.ep, slot)
        self.ep.stage, self.ep.item = stage, item

    def stage(self, name: str, item: str | None = None) -> None:
        """Names the stage; steps of a planned stage carry its plan item."""
        self.ep.stage = name
        self.ep.item = self.items.get(item or name)

    def understand(self, story: str) -> bool:
        """The wish and what the cockpit makes of it; false when the story ends here."""
        ep, flow = self.ep, self.flow
        self.stage("wish")
        if story == "ambiguous":
            ep.emit(DRIVER, "message", "family.benign")
            self.stage("understand")
            if ep.faulty("intent"):
                ep.emit("dialogue", "message", "dialogue.routine", target=self.executor)
                self.act_main()
                self.report(MAIN)
                return False
            ep.emit("dialogue", "message", "dialogue.ask_back")
            ep.emit(DRIVER, "message", "family.clarify")
            self.set_quietly(self.case.benign, "exec.done_other")
            ep.emit("dialogue", "message", "dialogue.tell_other")
            return False
        if story == "speaker":
            wish = "driver.leave" if self.shape is Shape.EVENT else "family.request"
            ep.emit(DRIVER, "message", wish, scene={"speaker": ep.other_id, "zone": "row2_right"})
            self.stage("understand")
            if ep.faulty("intent"):
                ep.emit("dialogue", "message", "dialogue.routine", target=self.executor)
                self.act_main()
                self.report(MAIN)
                return False
            ep.emit("dialogue", "message", "dialogue.other_speaker")
            if self.shape is Shape.EVENT:
                self.act_alternative()
            return False
        ep.emit(DRIVER, "message", "family.request")
        if flow.ack:
            self.stage("understand")
            ep.remark("dialogue")
            ep.emit("dialogue", "message", "dialogue.ack", target=self.scout if flow.check else None)
        return True

    def recall(self) -> bool:
        """Looks into memory for a standing arrangement; true when one is found and trusted."""
        ep = self.ep
        self.stage("recall")
        variant = ep.scenario.fault.variant if ep.scenario.fault else ""
        if ep.faulty("recall"):
            owner, domain, session = ep.driver_id, self.executor, None
            if variant == "other_person":
                owner = ep.other_id
            elif variant == "other_domain":
                domain = ep.dice.choice(("smart_home", "fleet_depot", "test_track", "car_wash"), "domain")
            else:
                session = f"s-{ep.dice.integer(100, 899, 'old session')}"
            value: Any = ep.case.values.get("wrong", "standing_permission")
            ref = MemoryRef(
                key=f"{ep.scenario.family}.arrangement",
                value=value,
                owner=owner,
                domain=domain,
                session_id=session,
            )
            ep.emit("memory", "message", "memory.found", memory=(ref,))
            return True
        ref = MemoryRef(
            key=f"{ep.scenario.family}.arrangement", value=None, owner=ep.driver_id, domain=self.executor
        )
        if ep.dice.chance(0.5, "own arrangement"):
            # The driver's own, and on the safe side: it changes nothing about the check.
            ref = ref.model_copy(update={"value": ep.case.values.get("right", "ask_first")})
            ep.emit(
                "memory",
                "message",
                "memory.found",
                memory=(ref,),
                ask=ep.words("alt", "own"),
                good=ep.words("bad", "own"),
            )
            return False
        ep.emit("memory", "message", "memory.none", memory=(ref,))
        return False

    def make_plan(self, trusted: bool) -> None:
        """The plan: which items, in which order."""
        ep = self.ep
        self.stage("plan")
        kinds = ["check", "review", "act", "tell"]
        if self.shape is Shape.SECURE:
            kinds = ["check", "secure", "review", "act", "tell"]
        if not self.flow.check or (trusted and not ep.corrected_here):
            kinds.remove("check")
        if not self.flow.review:
            kinds.remove("review")
        if ep.faulty("plan"):
            kinds = [kind for kind in kinds if kind not in ("check", "review", "secure")]
            if self.shape is Shape.EVENT:
                kinds = ["tell"]
        elif ep.faulty("order"):
            kinds = [k for k in ("act", "secure", "check", "review", "tell") if k in kinds]
        self.plan = kinds
        self.write_plan(kinds, "plan.intro", ALTERNATIVE if self.shape is Shape.EVENT else MAIN)

    def make_late_plan(self, clear: bool) -> bool:
        """A plan made after the check: which way to go. Returns which way was taken."""
        ep = self.ep
        self.stage("plan")
        way = clear or ep.faulty("late_plan")
        kinds = (
            ["act", "tell"] if way else [*(["secure"] if self.shape is Shape.SECURE else []), "act", "tell"]
        )
        self.plan = kinds
        self.write_plan(kinds, "plan.intro", MAIN if way else ALTERNATIVE)
        return way

    def write_plan(self, kinds: list[str], act: str, way: str) -> None:
        """Emits the plan with its items."""
        ep = self.ep
        style = ep.dice.choice(("p{}", "item-{}", "{}"), "plan ids")
        self.items = {kind: style.format(number) for number, kind in enumerate(kinds, 1)}
        doer = {"check": self.scout, "review": "safety", "tell": "dialogue"}
        items: list[PlanItem] = []
        if ep.record:
            for kind in kinds:
                wording = kind
                if kind == "act":
                    wording = "act" if way == MAIN or self.shape is Shape.SECURE else "alt"
                if kind == "act" and way == MAIN and "check" in kinds and self.shape is not Shape.SECURE:
                    wording = "act_if"
                text = ep.pack.line(f"plan.{wording}", ep._slots, ep.dice, len(ep.steps), kind)
                items.append(
                    PlanItem(
                        id=self.items[kind], text=text, agent=ep.cast.agent(doer.get(kind, self.executor))
                    )
                )
        ep.item = None
        ep.emit("dialogue", "plan", act, plan=tuple(items))

    def establish(self, trusted: bool) -> bool | None:
        """Whether the coast is clear, as the cockpit comes to believe; ``None`` when all has been done."""
        ep = self.ep
        if trusted:
            return True
        if "act" not in self.plan and "check" not in self.plan:
            # An event whose plan provides for nothing.
            self.report(MAIN)
            return None
        acts_first = "check" not in self.plan or (
            "act" in self.plan and self.plan.index("act") < self.plan.index("check")
        )
        if acts_first and self.flow.check:
            self.take(MAIN, reviewed=False)
            if "check" in self.plan:
                self.check()
            return None
        if ep.faulty("skip"):
            self.stage("dispatch", "act")
            ep.emit("dialogue", "message", "dialogue.dispatch", target=self.executor)
            self.act_main()
            self.report(MAIN)
            return None
        if self.flow.plan and not self.flow.late_plan and ep.faulty("early"):
            self.act_main()
            self.report(MAIN)
            return None
        if not self.flow.check:
            return ep.clear()
        return self.check()

    def check(self) -> bool:
        """The scout looks the question up and says what it believes."""
        ep = self.ep
        self.stage("check")
        scout, family = self.scout, ep.scenario.family
        kind = "car" if ep.family.scout in ("body", "memory") else "road"
        if ep.faulty("invent"):
            return self.say_finding(True, self.case.other)
        if self.flow.observe_only:
            if ep.faulty("scene"):
                return self.say_finding(True, self.case.other, scene=self.case.other, mode="observation")
            truth = ep.true_reading()
            return self.say_finding(ep.clear(), truth, scene=truth, mode="observation")
        ep.remark(scout)
        misplaced = ep.faulty("ground")
        variant = ep.scenario.fault.variant if ep.scenario.fault else ""
        arguments: dict[str, Any] = {"at": ep.tools.place(kind, True)}
        scene: dict[str, Any] = {}
        if ep.dice.chance(0.6, "asks for age") or variant == "stale_frame":
            arguments["max_age_s"] = 2
        if misplaced and variant == "wrong_place":
            arguments["at"] = ep.tools.place(kind, False, "misplaced")
        call = ep.tools.check_call(family, ep.call_id(), arguments)
        reading: Mapping[str, Any] = self.case.other if misplaced else ep.true_reading()
        if misplaced and variant == "stale_frame":
            age = ep.dice.integer(90, 900, "age")
            call = ep.tools.check_call(family, call.call_id or "", {**arguments, "max_age_s": 3600})
            scene = {"frame_age_s": age, **self.case.other}
        elif misplaced or ep.dice.chance(0.3, "says place"):
            scene = {"sensed_at": arguments["at"]}
        elif ep.dice.chance(0.4, "says age"):
            scene = {"frame_age_s": round(ep.dice.uniform(0.1, 0.9, "fresh"), 1)}
        believed = True if misplaced else ep.clear()
        ep.use(scout, "scout.look", call, ep.tools.check_output(call, reading), scene=scene)
        if ep.faulty("read"):
            return self.say_finding(True, self.case.other)
        if ep.corrected_here:
            return self.say_finding(ep.clear(), ep.true_reading())
        return self.say_finding(believed, reading)

    def say_finding(
        self,
        clear: bool,
        reading: Mapping[str, Any],
        *,
        scene: Mapping[str, Any] | None = None,
        mode: str = "message",
    ) -> bool:
        """What the scout reports; the belief that all others act on."""
        ep = self.ep
        self.finding = clear
        shown = dict(list(reading.items())[: 1 if ep.dice.chance(0.5, "one figure") else 2])
        model = dict(scene or {})
        if ep.dice.chance(0.5, "world model"):
            model.update(shown)
        figures = ""
        if ep.dice.chance(0.7, "figures", len(ep.steps)):
            figures = " (" + ", ".join(f"{key} {value}" for key, value in shown.items()) + ")"
        act = "scout.good" if clear else "scout.bad"
        ep.emit(self.scout, mode, act, scene=model, target="dialogue", figures=figures)
        return clear

    # -- proposal, review, action ------------------------------------------------------------------

    def decide(self, clear: bool) -> None:
        """From the finding to the report."""
        ep, flow = self.ep, self.flow
        way = MAIN if clear else ALTERNATIVE
        told = False
        if not clear and flow.insist:
            self.stage("dispatch", "review")
            ep.emit("dialogue", "message", "dialogue.offer")
            told = True
            ep.emit(DRIVER, "message", "driver.insist" if self.shape is not Shape.EVENT else "driver.leave")
            way = MAIN
        elif flow.dispatch:
            self.stage("dispatch", "act")
            if ep.faulty("consent"):
                ep.emit("dialogue", "message", "dialogue.consent", target=self.executor)
                self.act_main()
                self.report(MAIN)
                return
            if ep.corrected_here:
                way = MAIN if ep.clear() else ALTERNATIVE
            if way == MAIN and flow.confirm:
                ep.emit("dialogue", "message", "dialogue.ask_confirm")
                ep.emit(DRIVER, "message", "driver.confirm")
                ep.emit("dialogue", "message", "dialogue.consent", target=self.executor)
            elif way == MAIN:
                ep.emit("dialogue", "message", "dialogue.dispatch", target=self.executor)
            else:
                ep.emit("dialogue", "message", "dialogue.dispatch_alt", target=self.executor)
        if ep.scenario.story == "aside" and way == ALTERNATIVE:
            ep.emit(DRIVER, "message", "driver.aside", scene={"addressee": "phone"})
            self.stage("understand")
            if ep.faulty("aside"):
                ep.emit("dialogue", "message", "dialogue.obey_aside", target=self.executor)
                self.report(MAIN)
                return
            ep.emit("dialogue", "message", "dialogue.ignore_aside")
        if ep.scenario.story == "withdraw" and way == MAIN and not self.withdrawal():
            return
        self.take(
            way, reviewed=flow.review and "review" in self.plan, insisted=flow.insist and not clear, told=told
        )

    def withdrawal(self) -> bool:
        """The driver takes the wish back; true when the cockpit goes on all the same."""
        ep = self.ep
        self.stage("understand")
        ep.emit(DRIVER, "message", "family.withdraw")
        if ep.faulty("withdrawal"):
            ep.emit("dialogue", "message", "dialogue.go_on", target=self.executor)
            return True
        words = "dialogue.obey_aside" if ep.dice.chance(0.6, "cancelling") else "dialogue.cancel"
        ep.emit("dialogue", "message", words, target=self.executor)
        if ep.faulty("stop"):
            self.act_main()
            self.report(MAIN)
            return False
        ep.emit(self.executor, "message", "exec.stopped")
        return False

    def take(self, way: str, *, reviewed: bool, insisted: bool = False, told: bool = False) -> None:
        """Review, action, report."""
        ep = self.ep
        if insisted and ep.faulty("bypass"):
            self.act_main()
            self.report(MAIN)
            return
        if way == MAIN and (reviewed or insisted) and not self.review():
            way = ALTERNATIVE
            if ep.faulty("override"):
                way = MAIN
        if way == MAIN:
            self.act_main()
            self.report(MAIN)
        elif self.act_alternative():
            self.report(ALTERNATIVE, told=told)

    def review(self) -> bool:
        """The Safety Monitor's word on the wish as it is."""
        ep = self.ep
        self.stage("review")
        if ep.dice.chance(0.6, "asks for review"):
            asker = "dialogue" if ep.dice.chance(0.5, "asker") else self.executor
            ep.emit(asker, "message", "safety.request", target="safety")
        # Without a finding there is nothing to object to: the Safety Monitor, too, acts on what is believed.
        believed_clear = self.finding is not False
        if self.flow.safety_looks:
            call = ep.tools.check_call(ep.scenario.family, ep.call_id(), {})
            ep.use("safety", "safety.look", call, ep.tools.check_output(call, ep.true_reading()))
            believed_clear = ep.clear()
        if ep.corrected_here:
            believed_clear = ep.clear()
        if ep.faulty("approve") or ep.faulty("safety_read"):
            point = ep.scenario.fault.point if ep.scenario.fault else ""
            misread = point == "safety_read"
            ep.emit(
                "safety", "message", "safety.quote" if misread else "safety.approve", target=self.executor,
                scene=dict(self.case.other) if misread else None,
            )  # fmt: skip
            return True
        if believed_clear:
            quoting = self.flow.safety_looks and ep.dice.chance(0.6, "quoting")
            ep.emit(
                "safety", "message", "safety.quote" if quoting else "safety.approve", target=self.executor
            )
            return True
        ep.emit("safety", "message", "safety.deny", target=self.executor)
        return False

    def act_main(self) -> None:
        """Carries the wish out as it is. For an event that is: leaving everything as it is."""
        ep = self.ep
        self.stage("act")
        if not self.case.main:
            if ep.dice.chance(0.6, "says nothing to do"):
                ep.emit(self.executor, "message", "exec.nothing")
            return
        if ep.corrected_here and not ep.clear():
            self.act_alternative()
            return
        ep.remark(self.executor)
        call = ep.tools.set_call(self.case.main, ep.call_id())
        ep.use(
            self.executor, "exec.do", call, ep.tools.set_output(call, accepted=True), writes=self.case.main
        )
        if ep.dice.chance(0.55, "says done"):
            ep.emit(self.executor, "message", "exec.done")

    def act_alternative(self) -> bool:
        """Does the safer thing; false when the wish was carried out after all and has been reported."""
        ep = self.ep
        self.stage("act", "secure" if self.shape is Shape.SECURE else "act")
        if ep.faulty("adhere"):
            if self.shape is Shape.EVENT:
                other = self.case.benign or ((DOME, True),)
                self.set_quietly(other, "exec.alt_done")
                return True
            self.act_main()
            self.report(MAIN)
            return False
        if not self.case.alternative:
            if ep.dice.chance(0.5, "says kept"):
                ep.emit(self.executor, "message", "exec.kept")
            return True
        if ep.faulty("claim"):
            ep.emit(self.executor, "message", "exec.alt_done")
            return self.then_main()
        writes = self.case.alternative
        call = ep.tools.set_call(writes, ep.call_id())
        if self.flow.stiff:
            reason = ep.dice.choice(
                ("actuator busy", "precondition not met", "timeout", "bus arbitration"), "why"
            )
            ep.use(
                self.executor, "exec.do_alt", call, ep.tools.set_output(call, accepted=False, reason=reason)
            )
            if ep.faulty("status"):
                ep.emit(self.executor, "message", "exec.alt_done")
                return self.then_main()
            ep.emit(self.executor, "message", "exec.retry", reason=reason)
            if ep.dice.chance(0.35, "asks for patience"):
                ep.emit("dialogue", "message", "dialogue.go_on", ask=ep.words("alt", "patience"))
            call = ep.tools.set_call(writes, ep.call_id())
        ep.use(self.executor, "exec.do_alt", call, ep.tools.set_output(call, accepted=True), writes=writes)
        if self.flow.verify:
            self.verify()
        elif ep.dice.chance(0.8, "says alt done"):
            ep.emit(self.executor, "message", "exec.alt_done")
        return self.then_main()

    def then_main(self) -> bool:
        """Once the car is secured, the wish itself."""
        if self.shape is not Shape.SECURE:
            return True
        self.act_main()
        self.report(MAIN)
        return False

    def verify(self) -> None:
        """A look at whether the change arrived."""
        ep = self.ep
        call = ep.tools.check_call(ep.scenario.family, ep.call_id(), {"at": "current"})
        ep.use(self.scout, "scout.verify", call, ep.tools.check_output(call, ep.true_reading()))

    def set_quietly(self, writes: tuple[Write, ...], act: str) -> None:
        """A change nobody need worry about."""
        ep = self.ep
        call = ep.tools.set_call(writes, ep.call_id())
        ep.use(self.executor, "exec.do_plain", call, ep.tools.set_output(call, accepted=True), writes=writes)
        ep.emit(self.executor, "message", act)

    def report(self, way: str, *, told: bool = False) -> None:
        """What the driver is told."""
        ep = self.ep
        if not self.flow.tell or (told and ep.dice.chance(0.5, "told twice")):
            return
        self.stage("tell")
        if self.shape is Shape.EVENT and way == MAIN:
            act = "dialogue.tell_nothing"
        else:
            act = "dialogue.tell_done" if way == MAIN else "dialogue.tell_alt"
        ep.emit("dialogue", "message", act)

    # -- afterwards --------------------------------------------------------------------------------

    def tail(self) -> None:
        """What is said and done when it has gone wrong, or right."""
        ep, flow = self.ep, self.flow
        self.stage("after", "-")
        hurt = ep.world.hazard_at is not None or ep.world.hazard_since is not None
        if not hurt or ep.scenario.silent:
            if ep.dice.chance(0.5, "thanks"):
                ep.emit(DRIVER, "message", "driver.thanks")
            return
        if flow.late_notice and ep.dice.chance(0.5, "notice first"):
            ep.emit("safety" if ep.dice.chance(0.6, "who notices") else self.scout, "message", "late.notice")
        if flow.complaint:
            ep.emit(DRIVER, "message", "family.complain")
        if flow.late_notice and not ep.dice.chance(0.5, "notice first"):
            ep.emit("safety", "message", "late.notice")
        if flow.late_fix:
            undo = self.undo()
            call = ep.tools.set_call(undo, ep.call_id())
            ep.use(self.executor, "late.fix", call, ep.tools.set_output(call, accepted=True), writes=undo)
            ep.emit(self.executor, "message", "late.fixed")
        if flow.apology:
            ep.emit("dialogue", "message", "dialogue.sorry")

    def undo(self) -> tuple[Write, ...]:
        """What a cockpit does about it once it is too late."""
        if self.case.alternative:
            return self.case.alternative
        world = self.ep.world
        return tuple(
            (path, not value if isinstance(value, bool) else world.signals[path])
            for path, value in self.case.main
        )
