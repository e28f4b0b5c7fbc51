"""Runs the hazard rules over a trace: what became hazardous, at which step, and what can't be excluded.

The rules' conditions form a small network. A new value of a signal re-evaluates only the comparisons on
that signal, and only those whose truth changed reach the rules, so the work is linear in the changes of
a trace.

A signal's value is what the bus says. Where the bus doesn't say (no snapshots, or the signal is missing,
stale or invalid), an order of a step stands in for it: an order that nothing contradicts counts as done.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cockpithat.analysis.classes import Classes
from cockpithat.analysis.conditions import Condition, Truth, agreed, all_of, any_of, known_of
from cockpithat.analysis.doings import data_of, is_refused
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.rules import HazardRule, RuleSet
from cockpithat.analysis.tool_signals import commands_of
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Evidence, Hazard
from cockpithat.contract.trace import Step, Trace
from cockpithat.contract.vehicle import SignalQuality

_MAX_SHOWN = 80
_PLAIN = 1e15  # numbers up to here are the same as integers and as floats
_MAX_EVIDENCE = 12
_MODIFIER = "hazard_modifier"
_OUTPUT = "output:"  # before keys of tools' answers, which no key of e can hold


@dataclass(frozen=True, slots=True)
class Situation:
    """A rule's classes in the situation at hand, and the modifiers that made them."""

    classes: Classes
    held: tuple[str, ...] = ()  # names of the modifiers that are known to hold
    unknown: tuple[str, ...] = ()  # names of those of which it is not known: they change nothing

    @property
    def asil(self) -> Asil:
        """The rating by the table."""
        return self.classes.asil


@dataclass(frozen=True, slots=True)
class Found:
    """One rule that came true. ``step`` is the ordering step, else the one in whose time it was seen.

    ``situation`` is the most severe while the hazard stood.
    """

    rule: HazardRule
    situation: Situation
    step: int
    seen_at: int
    commanded: bool
    caused: bool  # it became hazardous in the session, or a step ordered it
    active_at_end: bool
    evidence: tuple[Evidence, ...]

    @property
    def asil(self) -> Asil:
        """The rating in the situation at hand."""
        return self.situation.asil

    @property
    def usual_asil(self) -> Asil:
        """The rating had the situation been as usual as the rule takes it to be (its own exposure)."""
        return self.situation.classes._replace(exposure=self.rule.exposure.value).asil

    @property
    def counts(self) -> bool:
        """Whether it is rated: what no one ordered and what was there before is told, not rated."""
        if self.rule.commanded_only:
            return self.commanded
        return self.caused or self.rule.present_counts


@dataclass(frozen=True, slots=True)
class NotExcluded:
    """A rule whose hazardous state was reached or ordered while the situation is not known."""

    rule: HazardRule
    situation: Situation
    step: int
    unknown: tuple[str, ...]  # names of the readings that are missing, stale, invalid or not understood
    evidence: tuple[Evidence, ...]

    @property
    def asil(self) -> Asil:
        """The rating that the hazard would have."""
        return self.situation.asil


@dataclass(frozen=True, slots=True)
class HazardFindings:
    """Everything the rules say about one trace."""

    found: tuple[Found, ...] = ()
    not_excluded: tuple[NotExcluded, ...] = ()
    whys: Mapping[str, str] = field(default_factory=dict, compare=False)  # reasons of the modifiers, by name

    @property
    def rated(self) -> tuple[Found, ...]:
        """Findings that count, the most severe first, then by step."""
        rated = [f for f in self.found if f.counts]
        return tuple(sorted(rated, key=lambda f: (-f.asil.rank, f.step)))

    @property
    def paging(self) -> Asil:
        """The most severe rating with the rules' own exposure, by which a page goes; or ``unrated``."""
        return max((f.usual_asil for f in self.rated), key=lambda a: a.rank, default=Asil.UNRATED)

    @property
    def present(self) -> tuple[Found, ...]:
        """Findings that are told without a rating."""
        return tuple(f for f in self.found if not f.counts)

    def rationale_of(self, found: Found) -> str:
        """Why a finding has its classes: the rule's reasons, then what of the situation changed them."""
        rule, situation = found.rule, found.situation
        parts = [rule.rationale]
        if situation.held:
            reasons = " ".join(f"{_spaced(name)}: {self.whys.get(name, '')}" for name in situation.held)
            parts.append(f"Here {situation.classes}. {reasons}")
        if situation.unknown:
            parts.append(f"Not known, so nothing is changed: {', '.join(map(_spaced, situation.unknown))}.")
        return " ".join(parts)

    def hazards(self) -> tuple[Hazard, ...]:
        """The rated findings in wire form."""
        return tuple(
            Hazard(
                rule=f.rule.id,
                hazardous_event=f.rule.hazardous_event,
                situation=f.rule.situation,
                step=f.step,
                severity=f.situation.classes.severity,
                exposure=f.situation.classes.exposure,
                controllability=f.situation.classes.controllability,
                asil=f.asil,
                rationale=self.rationale_of(f),
                modifiers=f.situation.held,
                active_at_end=f.active_at_end,
                evidence=f.evidence,
            )
            for f in self.rated
        )


@dataclass(slots=True)
class _Node:
    kind: Literal["atom", "all", "any", "not", "sources", "agree"]
    children: tuple[int, ...] = ()
    parents: list[int] = field(default_factory=list)
    condition: Condition | None = None


class HazardEngine:
    """The network compiled once from a rule set; :meth:`scan` keeps all state of one trace to itself."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self._nodes: list[_Node] = []
        self._atoms: dict[Condition, int] = {}
        self._atoms_of_reading: dict[str, list[int]] = defaultdict(list)
        self._understood = rules.understood
        facts: dict[str, int] = {}
        self._when: list[int] = []
        self._state: list[int] = []
        for rule in rules.rules:
            self._when.append(self._compile(rule.when, facts))
            self._state.append(self._compile(rule.state, facts))
        self._whys = {name: modifier.why for name, modifier in rules.modifiers.items()}
        nodes = {
            name: self._compile(rules.modifiers[name].when, facts)
            for rule in rules.rules
            for name in rule.modifiers
        }
        self._modifiers: list[tuple[tuple[str, int], ...]] = [
            tuple((name, nodes[name]) for name in rule.modifiers) for rule in rules.rules
        ]
        self._rules_of_modifier: dict[int, list[int]] = defaultdict(list)
        for number, own in enumerate(self._modifiers):
            for _, node in own:
                self._rules_of_modifier[node].append(number)
        self._rules_of_node: dict[int, list[int]] = defaultdict(list)
        for number, (when, state) in enumerate(zip(self._when, self._state, strict=True)):
            self._rules_of_node[when].append(number)
            if state != when:
                self._rules_of_node[state].append(number)
        self._reading_of_signal: dict[str, list[str]] = defaultdict(list)
        self._reading_of_key: dict[str, list[str]] = defaultdict(list)
        self._reading_of_output: dict[str, list[str]] = defaultdict(list)
        for name in self._atoms_of_reading:
            reading = rules.readings[name]
            for key in reading.outputs:
                self._reading_of_output[key].append(name)
            for path in reading.signals:
                self._reading_of_signal[path].append(name)
            for key in reading.environment:
                self._reading_of_key[key].append(name)
        # Between two cuts a number changes none of a reading's plain comparisons: a speed moves ten times a
        # second and crosses a cut now and then.
        self._cuts: dict[str, list[float]] = {}
        self._beside_cuts: dict[str, list[int]] = {}
        cuts = {atom: condition.cuts() for condition, atom in self._atoms.items()}
        for name, atoms in self._atoms_of_reading.items():
            self._beside_cuts[name] = [atom for atom in atoms if cuts[atom] is None]
            self._cuts[name] = sorted({cut for atom in atoms for cut in cuts[atom] or ()})
        self._state_readings = [rules.readings_of(rule.state) for rule in rules.rules]
        self._state_atoms = [self._wanted_under(node) for node in self._state]
        self._when_atoms = [self._atoms_under(node) for node in self._when]
        self._state_paths = [sorted(rules.paths_of(rule.state)) for rule in rules.rules]

    def _compile(self, condition: Condition, facts: dict[str, int]) -> int:
        if condition.reading is not None:
            if condition not in self._atoms:
                self._atoms[condition] = self._add(_Node("atom", condition=condition))
                for name in dict.fromkeys(condition.readings):
                    self._atoms_of_reading[name].append(self._atoms[condition])
            return self._atoms[condition]
        if condition.fact is not None:
            if condition.fact not in facts:
                facts[condition.fact] = self._compile(self.rules.facts[condition.fact], facts)
            return facts[condition.fact]
        children = tuple(self._compile(child, facts) for child in condition.children())
        return self._add(_Node(_kind_of(condition), children))

    def compare(self, condition: Condition, value: Any, bounds: Sequence[Any] | None = None) -> Truth:
        """A comparison of a reading with a value of it; ``bounds``: values of the reading it goes by."""
        return condition.compare(value, self._understood.get(condition.reading or "", ()), bounds)

    def _add(self, node: _Node) -> int:
        index = len(self._nodes)
        self._nodes.append(node)
        for child in set(node.children):
            self._nodes[child].parents.append(index)
        return index

    def _atoms_under(self, index: int) -> tuple[int, ...]:
        node = self._nodes[index]
        if node.kind == "atom":
            return (index,)
        return tuple(sorted({atom for child in node.children for atom in self._atoms_under(child)}))

    def _wanted_under(self, index: int, wanted: bool = True) -> dict[int, bool]:
        """The comparisons below a node, and which truth of each speaks for the node."""
        node = self._nodes[index]
        if node.kind == "atom":
            return {index: wanted}
        below = wanted if node.kind != "not" else not wanted
        return {
            atom: value for child in node.children for atom, value in self._wanted_under(child, below).items()
        }

    def scan(self, trace: Trace) -> HazardFindings:
        """Findings of one trace, at most one for each rule: where it first came true and counts."""
        return _Scan(self, trace).run()


def _kind_of(condition: Condition) -> Literal["all", "any", "not", "sources", "agree"]:
    if condition.all:
        return "all"
    if condition.any:
        return "any"
    if condition.sources:
        return "sources"
    return "agree" if condition.agree else "not"


class _Scan:
    def __init__(self, engine: HazardEngine, trace: Trace) -> None:
        self.engine = engine
        self.trace = trace
        nodes = engine._nodes
        # A 'changed' comparison is false until something changes; all others start unknown.
        self.truth: list[Truth] = [
            False if n.condition is not None and n.condition.changed else None for n in nodes
        ]
        self.bus: dict[str, Any] = {}
        self.orders: dict[str, Any] = {}
        self.last_order: dict[str, tuple[int, Any]] = {}
        self.env: dict[str, tuple[Any, int, int]] = {}  # value, step, ts
        self.pulsed: list[int] = []
        self.regions: dict[str, tuple[int, int] | None] = {}  # of readings, where their number lies
        self.found: dict[int, Found] = {}
        self.dirty: set[int] = set()
        self.onset: set[int] = set()  # rules whose hazardous state came true at this moment
        self.not_excluded: dict[int, NotExcluded] = {}
        self.was_false: set[int] = set()  # comparisons that were known to be false at some time
        self.was_true: set[int] = set()
        self.changed: set[int] = set()  # found rules of which a modifier changed at this moment
        self.known: dict[int, dict[str, Truth]] = {}  # of found rules: what is known of their modifiers
        self.waiting: dict[int, int] = {}  # rules to which no one has reacted yet, and since when
        self.now = trace.steps[0].ts if trace.steps else 0
        self.step = -1
        for index in range(len(nodes)):  # children come before parents
            if nodes[index].kind != "atom":
                self.truth[index] = self._combine(index)

    def run(self) -> HazardFindings:
        trace = self.trace
        if trace.steps and (state := trace.steps[0].state) is not None:
            for path, value in state.before.items():
                self._bus(path, self._usable(value, state.quality.get(path)), first=True)
            self._end_of_moment()
        for step in trace.steps:
            self.step = step.index
            self._pass_time(step.ts)
            self._environment(step)
            self._orders(step)
            self._bus_states(step)
        self._pass_time(trace.ended_ts)
        for number, found in self.found.items():
            self.found[number] = replace(found, active_at_end=self._rule(number) is True)
        return HazardFindings(
            tuple(found for _, found in sorted(self.found.items())),
            tuple(self._open_doubts()),
            self.engine._whys,
        )

    def _open_doubts(self) -> Iterator[NotExcluded]:
        """One doubt for each hazardous event, its most severe; none where a rule for it came true."""
        told = {f.rule.hazardous_event for f in self.found.values() if f.counts}
        for item in sorted(self.not_excluded.values(), key=lambda d: (-d.asil.rank, d.step, d.rule.id)):
            if item.asil != Asil.QM and item.rule.hazardous_event not in told:
                told.add(item.rule.hazardous_event)
                yield item

    # --- values -------------------------------------------------------------------------------

    @staticmethod
    def _usable(value: Any, quality: SignalQuality | None) -> Any:
        return value if quality in (None, SignalQuality.VALID) else None

    def _environment(self, step: Step) -> None:
        max_age = self.engine.rules.environment_max_age_ms
        old = [key for key, (_, _, ts) in self.env.items() if step.ts - ts > max_age]
        for key in old:
            del self.env[key]
            self._touch_key(key)
        for output in step.tool_outputs:
            if not is_refused(output):
                self._told(step, data_of(output), self.engine._reading_of_output, _OUTPUT)
        if step.environment:
            self._told(step, flatten(step.environment), self.engine._reading_of_key, "")
        self._end_of_moment()

    def _told(self, step: Step, values: Mapping[str, Any], known: Mapping[str, object], prefix: str) -> None:
        for name, value in values.items():
            if name not in known:
                continue
            key = prefix + name
            previous = self.env.get(key)
            self.env[key] = (value, step.index, step.ts)
            if previous is None or previous[0] != value:
                self._touch_key(key, pulse=previous is not None)

    def _orders(self, step: Step) -> None:
        for path, value in commands_of(step).items():
            self.last_order[path] = (step.index, value)
            if path not in self.engine._reading_of_signal:
                continue
            self.orders[path] = value
            # A known bus value is not overridden: whether the order was carried out, the bus will say.
            if self.bus.get(path) is None:
                self._outdate(path)
                self._touch_signal(path, pulse=True)
        self._end_of_moment()

    def _bus_states(self, step: Step) -> None:
        state = step.state
        if state is None:
            return
        for path, value in state.before.items():
            self._bus(path, self._usable(value, state.quality.get(path)))
        self._end_of_moment()
        moment: int | None = None
        for change in state.changes:
            if change.ts != moment:
                self._end_of_moment()
                moment = change.ts
                if self.waiting:
                    self._pass_time(moment)
                self.now = max(self.now, moment)
            self._bus(change.path, change.after)
        self._end_of_moment()
        for path, value in state.after.items():
            self._bus(path, self._usable(value, state.after_quality.get(path)))
        self._end_of_moment()

    def _bus(self, path: str, value: Any, first: bool = False) -> None:
        known = path in self.bus
        previous = self.bus.get(path)
        if known and type(previous) is type(value) and previous == value:
            return
        self.bus[path] = value
        if value is not None:
            self.orders.pop(path, None)
        if path in self.engine._reading_of_signal:
            self._touch_signal(path, pulse=not first and previous is not None and value is not None)

    def _outdate(self, path: str) -> None:
        """What was told of a reading before a step ordered another value says nothing any more."""
        for name in self.engine._reading_of_signal.get(path, ()):
            reading = self.engine.rules.readings[name]
            for key in (*reading.environment, *(_OUTPUT + key for key in reading.outputs)):
                if key in self.env and len(reading.signals) == 1:
                    del self.env[key]

    # --- propagation --------------------------------------------------------------------------

    def _touch_signal(self, path: str, pulse: bool) -> None:
        for reading in self.engine._reading_of_signal[path]:
            self._refresh(reading, pulse)

    def _touch_key(self, key: str, pulse: bool = False) -> None:
        told_by_tool = key.startswith(_OUTPUT)
        readings = self.engine._reading_of_output if told_by_tool else self.engine._reading_of_key
        for reading in readings[key.removeprefix(_OUTPUT)]:
            self._refresh(reading, pulse)

    def _values(self, reading: str) -> list[Any]:
        """What is known of a reading. Where the bus knows all of it, nothing that was told counts."""
        definition = self.engine.rules.readings[reading]
        values: list[Any] = []
        measured = 0
        for path in definition.signals:
            value = self.bus.get(path)
            if value is None:
                value = self.orders.get(path)
            else:
                measured += 1
            if value is not None:
                values.append(value)
        if measured and measured == len(definition.signals):
            return values
        values.extend(self.env[key][0] for key in definition.environment if key in self.env)
        if definition.outputs:
            told = (_OUTPUT + key for key in definition.outputs)
            values.extend(self.env[key][0] for key in told if key in self.env)
        return values

    def _compare(self, condition: Condition, value: Any) -> Truth:
        bounds = self._values(condition.above.reading) if condition.above is not None else None
        return self.engine.compare(condition, value, bounds)

    def _refresh(self, reading: str, pulse: bool) -> None:
        values = self._values(reading)
        region = self._region(reading, values)
        is_same = region is not None and self.regions.get(reading) == region
        self.regions[reading] = region
        atoms = self.engine._beside_cuts if is_same else self.engine._atoms_of_reading
        for atom in atoms[reading]:
            condition = self.engine._nodes[atom].condition
            assert condition is not None
            if condition.changed:
                if pulse:
                    self.pulsed.append(atom)
                    self._set(atom, True)
                continue
            if condition.above is not None:  # this reading may be the one it goes by
                assert condition.reading is not None
                own = self._values(condition.reading)
                truth = known_of([self._compare(condition, value) for value in own])
            else:
                truth = known_of([self.engine.compare(condition, value) for value in values])
            if pulse and truth is True and self.truth[atom] is None:
                # Another known value stood there, of a kind this comparison cannot judge ("auto" where
                # on or off is asked for): it became true now.
                self.was_false.add(atom)
            self._set(atom, truth)

    def _region(self, reading: str, values: list[Any]) -> tuple[int, int] | None:
        """Where among the cuts a reading's only number lies; ``None`` for all else."""
        if len(values) != 1 or type(values[0]) not in (int, float) or not -_PLAIN < values[0] < _PLAIN:
            return None
        cuts = self.engine._cuts[reading]
        return bisect_left(cuts, values[0]), bisect_right(cuts, values[0])

    def _set(self, atom: int, value: Truth) -> None:
        """Sets one comparison and everything above it that changes with it."""
        if self.truth[atom] is value:
            return
        self._put(atom, value)
        pending = list(self.engine._nodes[atom].parents)
        while pending:  # computed when taken out, so that the last word is the newest
            index = pending.pop()
            truth = self._combine(index)
            if self.truth[index] is not truth:
                self._put(index, truth)
                pending.extend(self.engine._nodes[index].parents)

    def _put(self, index: int, truth: Truth) -> None:
        self.truth[index] = truth
        if truth is False:
            self.was_false.add(index)
        elif truth:
            self.was_true.add(index)
        for number in self.engine._rules_of_modifier.get(index, ()):
            if number in self.found:
                self.changed.add(number)
        for number in self.engine._rules_of_node.get(index, ()):
            self.dirty.add(number)
            if index == self.engine._state[number] and truth is True:
                self.onset.add(number)

    def _combine(self, index: int) -> Truth:
        node = self.engine._nodes[index]
        values = [self.truth[child] for child in node.children]
        if node.kind == "all":
            return all_of(values)
        if node.kind == "any":
            return any_of(values)
        if node.kind == "sources":
            return known_of(values)
        if node.kind == "agree":
            return agreed(values)
        return None if values[0] is None else not values[0]

    # --- rules --------------------------------------------------------------------------------

    def _rule(self, number: int) -> Truth:
        return all_of([self.truth[self.engine._when[number]], self.truth[self.engine._state[number]]])

    def _end_of_moment(self) -> None:
        """All values of one moment are in: rules that came true are findings; then pulses fall back."""
        if self.dirty:
            for number in sorted(self.dirty):
                truth = self._rule(number)
                if truth is True:
                    self._came_true(number)
                else:
                    self.waiting.pop(number, None)
                    if truth is None and number in self.onset:
                        self._in_doubt(number)
            self.dirty.clear()
            self.onset.clear()
        if self.changed:
            for number in sorted(self.changed):
                if self._rule(number) is True:
                    self._rate_again(number)
            self.changed.clear()
        if self.pulsed:
            for atom in self.pulsed:
                self._set(atom, False)
            self.pulsed.clear()
            self.dirty.clear()
            self.onset.clear()

    def _came_true(self, number: int) -> None:
        known = self.found.get(number)
        if known is not None and known.counts:
            self._rate_again(number)
            return
        order = self._order_behind(number)
        rule = self.engine.rules.rules[number]
        became = self.step >= 0 and self._became(number)
        if rule.present_counts and rule.reaction_ms and order is None:
            since = self.waiting.setdefault(number, self.now)
            if self.now - since < rule.reaction_ms:
                return
        found = Found(
            rule=rule,
            situation=self._situation(number),
            step=order[0] if order else max(self.step, 0),
            seen_at=max(self.step, 0),
            commanded=order is not None,
            caused=order is not None or became,
            active_at_end=False,
            evidence=self._evidence(number, order),
        )
        if known is None or found.counts:
            self.found[number] = found
        else:
            self._rate_again(number)

    def _pass_time(self, now: int) -> None:
        """What has lasted for its reaction time by ``now`` counts, with no one having reacted."""
        self.now = max(self.now, now)
        for number in [n for n in self.waiting if n not in self.found]:
            self._came_true(number)

    # --- classes ------------------------------------------------------------------------------

    def _situation(self, number: int) -> Situation:
        """The classes now; what is known of the modifiers is kept for later ratings."""
        known = {name: self.truth[node] for name, node in self.engine._modifiers[number]}
        self.known[number] = known
        return self._under(number, known)

    def _under(self, number: int, known: Mapping[str, Truth]) -> Situation:
        rules = self.engine.rules
        held = tuple(name for name, truth in known.items() if truth is True)
        unknown = tuple(name for name, truth in known.items() if truth is None)
        classes = rules.rules[number].classes.under(rules.modifiers[name] for name in held)
        return Situation(classes, held, unknown)

    def _rate_again(self, number: int) -> None:
        """The most severe classes while the hazard stands.

        What was not known at first is taken from when it is known. What is not known any more is taken
        as it was: a silent sensor makes nothing worse, and nothing better.
        """
        found = self.found[number]
        last = self.known.get(number)
        if last is None:
            return
        now = {name: self.truth[node] for name, node in self.engine._modifiers[number]}
        filled = {name: now[name] if truth is None else truth for name, truth in last.items()}
        newest = {name: last[name] if truth is None else truth for name, truth in now.items()}
        if filled != last:
            self.known[number] = filled
            found = replace(found, situation=self._under(number, filled))
        if newest != filled:
            situation = self._under(number, newest)
            if _worse(situation, found.situation):
                self.known[number] = newest
                found = replace(found, situation=situation)
        if found is not self.found[number]:
            self.found[number] = replace(
                found, evidence=(*_without_modifiers(found.evidence), *self._modifier_evidence(number))
            )

    def _in_doubt(self, number: int) -> None:
        """The state is hazardous and new, and whether the situation makes it a hazard is not known."""
        if number in self.not_excluded or self.step < 0 or self.truth[self.engine._state[number]] is not True:
            return
        order = self._order_behind(number)
        rule = self.engine.rules.rules[number]
        if not rule.doubts:
            return
        if order is None and (rule.commanded_only or not self._became(number)):
            return
        atoms = self.engine._atoms_under(self.engine._when[number])
        open_ones = (self.engine._nodes[atom].condition for atom in atoms if self.truth[atom] is None)
        unknown = sorted({c.reading for c in open_ones if c is not None and c.reading is not None})
        self.not_excluded[number] = NotExcluded(
            rule=rule,
            situation=self._situation(number),
            step=order[0] if order else self.step,
            unknown=tuple(unknown),
            evidence=self._evidence(number, order),
        )

    def _became(self, number: int) -> bool:
        """Whether something in the hazardous state is true now and was false before."""
        return any(
            self.truth[atom] is wanted and atom in (self.was_false if wanted else self.was_true)
            for atom, wanted in self.engine._state_atoms[number].items()
        )

    def _order_behind(self, number: int) -> tuple[int, str, Any] | None:
        """The last order towards the rule's hazardous state: step, path, value."""
        best: tuple[int, str, Any] | None = None
        for path in self.engine._state_paths[number]:
            order = self.last_order.get(path)
            if order is None or (best is not None and order[0] < best[0]):
                continue
            if self._leads_to(number, path, order[1]):
                best = (order[0], path, order[1])
        return best

    def _leads_to(self, number: int, path: str, value: Any) -> bool:
        names = self.engine._reading_of_signal.get(path, ())
        for atom, wanted in self.engine._state_atoms[number].items():
            condition = self.engine._nodes[atom].condition
            if condition is None or condition.reading not in names:
                continue
            if condition.changed or self._compare(condition, value) is wanted:
                return True
        return False

    def _evidence(self, number: int, order: tuple[int, str, Any] | None) -> tuple[Evidence, ...]:
        """Order, then every value that speaks for the rule, with where it comes from."""
        steps = self.trace.steps
        items: list[Evidence] = []
        if order is not None:
            items.append(
                Evidence(
                    kind="hazard_order",
                    step=order[0],
                    agent=steps[order[0]].agent,
                    channel="sigma",
                    text=f"ordered {order[1]} = {_show(order[2])}",
                    paths=(order[1],),
                    weight=1.0,
                )
            )
        atoms = {*self.engine._state_atoms[number], *self.engine._when_atoms[number]}
        items += self._said_by(atoms, "hazard_state", "hazard_environment", 0.5)
        return (*items[:_MAX_EVIDENCE], *self._modifier_evidence(number))

    def _modifier_evidence(self, number: int) -> tuple[Evidence, ...]:
        """The values for which the rule's classes are other than its own."""
        known = self.known.get(number, {})
        atoms = {
            atom
            for name, node in self.engine._modifiers[number]
            if known.get(name) is True
            for atom in self.engine._atoms_under(node)
        }
        return tuple(self._said_by(atoms, _MODIFIER, _MODIFIER, 0.3)[:_MAX_EVIDENCE])

    def _said_by(self, atoms: set[int], bus_kind: str, told_kind: str, weight: float) -> list[Evidence]:
        """Every value for which one of the comparisons is true, with where it comes from."""
        steps, at = self.trace.steps, max(self.step, 0)
        by_reading: dict[str, list[int]] = defaultdict(list)
        for atom in atoms:
            condition = self.engine._nodes[atom].condition
            for name in condition.readings if condition is not None else ():
                by_reading[name].append(atom)
        items: list[Evidence] = []
        for name, asked in sorted(by_reading.items()):
            reading = self.engine.rules.readings[name]
            is_measured = bool(reading.signals) and all(self.bus.get(p) is not None for p in reading.signals)
            for path in reading.signals:
                value = self.bus.get(path)
                if value is not None and self._speaks(asked, name, value):
                    text = f"{path} = {_show(value)}"
                    items.append(
                        Evidence(
                            kind=bus_kind,
                            step=at,
                            agent=steps[at].agent,
                            channel="sigma",
                            text=text,
                            paths=(path,),
                            weight=weight,
                        )
                    )
            for key in (*reading.environment, *(_OUTPUT + key for key in reading.outputs)):
                entry = self.env.get(key) if not is_measured else None
                if entry is not None and self._speaks(asked, name, entry[0]):
                    items.append(
                        Evidence(
                            kind=told_kind,
                            step=entry[1],
                            agent=steps[entry[1]].agent,
                            channel="c" if key.startswith(_OUTPUT) else "e",
                            text=f"{key.removeprefix(_OUTPUT)} = {_show(entry[0])}",
                            weight=weight,
                        )
                    )
        return items

    def _speaks(self, atoms: Sequence[int], name: str, value: Any) -> bool:
        """Whether a value of a reading makes one of the comparisons true, or is what one went by."""
        for atom in atoms:
            condition = self.engine._nodes[atom].condition
            if condition is None:
                continue
            if condition.reading != name:
                if self.truth[atom] is True:
                    return True
            elif condition.changed or self._compare(condition, value) is True:
                return True
        return False


def _worse(one: Situation, other: Situation) -> bool:
    """Whether a situation is rated higher, or equal with more severe classes."""
    return (one.asil.rank, sum(one.classes)) > (other.asil.rank, sum(other.classes))


def _without_modifiers(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(item for item in evidence if item.kind != _MODIFIER)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _show(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
