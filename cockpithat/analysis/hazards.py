"""Runs the hazard rules over a trace: what became hazardous, at which step, and what can't be excluded.

The rules' conditions form a small network. A new value of a signal re-evaluates only the comparisons on
that signal, and only those whose truth changed reach the rules, so the work is linear in the changes of
a trace.

A signal's value is what the bus says. Where the bus doesn't say (no snapshots, or the signal is missing,
stale or invalid), an order of a step stands in for it: an order that nothing contradicts counts as done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cockpithat.analysis.conditions import Condition, Truth, agreed, all_of, any_of, known_of
from cockpithat.analysis.environment import flatten
from cockpithat.analysis.rules import HazardRule, RuleSet
from cockpithat.analysis.tool_signals import commands_of
from cockpithat.contract.reports import Evidence, Hazard
from cockpithat.contract.trace import Step, Trace
from cockpithat.contract.vehicle import SignalQuality

_MAX_SHOWN = 80
_MAX_EVIDENCE = 12


@dataclass(frozen=True, slots=True)
class Found:
    """One rule that came true. ``step`` is the ordering step, else the one in whose time it was seen."""

    rule: HazardRule
    step: int
    seen_at: int
    commanded: bool
    caused: bool  # it became hazardous in the session, or a step ordered it
    active_at_end: bool
    evidence: tuple[Evidence, ...]

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
    step: int
    unknown: tuple[str, ...]  # names of the readings that are missing, stale, invalid or not understood
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class HazardFindings:
    """Everything the rules say about one trace."""

    found: tuple[Found, ...] = ()
    not_excluded: tuple[NotExcluded, ...] = ()

    @property
    def rated(self) -> tuple[Found, ...]:
        """Findings that count, the most severe first, then by step."""
        rated = [f for f in self.found if f.counts]
        return tuple(sorted(rated, key=lambda f: (-f.rule.asil.rank, f.step)))

    @property
    def present(self) -> tuple[Found, ...]:
        """Findings that are told without a rating."""
        return tuple(f for f in self.found if not f.counts)

    def hazards(self) -> tuple[Hazard, ...]:
        """The rated findings in wire form."""
        return tuple(
            Hazard(
                rule=f.rule.id,
                hazardous_event=f.rule.hazardous_event,
                situation=f.rule.situation,
                step=f.step,
                severity=f.rule.severity.value,
                exposure=f.rule.exposure.value,
                controllability=f.rule.controllability.value,
                asil=f.rule.asil,
                rationale=f.rule.rationale,
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
        self._rules_of_node: dict[int, list[int]] = defaultdict(list)
        for number, (when, state) in enumerate(zip(self._when, self._state, strict=True)):
            self._rules_of_node[when].append(number)
            if state != when:
                self._rules_of_node[state].append(number)
        self._reading_of_signal: dict[str, list[str]] = defaultdict(list)
        self._reading_of_key: dict[str, list[str]] = defaultdict(list)
        for name in self._atoms_of_reading:
            reading = rules.readings[name]
            for path in reading.signals:
                self._reading_of_signal[path].append(name)
            for key in reading.environment:
                self._reading_of_key[key].append(name)
        self._state_readings = [rules.readings_of(rule.state) for rule in rules.rules]
        self._state_atoms = [self._atoms_under(node) for node in self._state]
        self._state_paths = [sorted(rules.paths_of(rule.state)) for rule in rules.rules]

    def _compile(self, condition: Condition, facts: dict[str, int]) -> int:
        if condition.reading is not None:
            if condition not in self._atoms:
                self._atoms[condition] = self._add(_Node("atom", condition=condition))
                self._atoms_of_reading[condition.reading].append(self._atoms[condition])
            return self._atoms[condition]
        if condition.fact is not None:
            if condition.fact not in facts:
                facts[condition.fact] = self._compile(self.rules.facts[condition.fact], facts)
            return facts[condition.fact]
        children = tuple(self._compile(child, facts) for child in condition.children())
        return self._add(_Node(_kind_of(condition), children))

    def compare(self, condition: Condition, value: Any) -> Truth:
        """A comparison of a reading with a value of it."""
        return condition.compare(value, self._understood.get(condition.reading or "", ()))

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
        self.found: dict[int, Found] = {}
        self.dirty: set[int] = set()
        self.onset: set[int] = set()  # rules whose hazardous state came true at this moment
        self.not_excluded: dict[int, NotExcluded] = {}
        self.was_false: set[int] = set()  # comparisons that were known to be false at some time
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
            self._environment(step)
            self._orders(step)
            self._bus_states(step)
        return HazardFindings(
            tuple(
                Found(f.rule, f.step, f.seen_at, f.commanded, f.caused, self._rule(n) is True, f.evidence)
                for n, f in sorted(self.found.items())
            ),
            tuple(self._open_doubts()),
        )

    def _open_doubts(self) -> Iterator[NotExcluded]:
        """One doubt for each hazardous event, its most severe; none where a rule for it came true."""
        told = {f.rule.hazardous_event for f in self.found.values() if f.counts}
        for item in sorted(self.not_excluded.values(), key=lambda d: (-d.rule.asil.rank, d.step, d.rule.id)):
            if item.rule.hazardous_event not in told:
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
        for key, value in flatten(step.environment).items() if step.environment else ():
            if key not in self.engine._reading_of_key:
                continue
            previous = self.env.get(key)
            self.env[key] = (value, step.index, step.ts)
            if previous is None or previous[0] != value:
                self._touch_key(key, pulse=previous is not None)
        self._end_of_moment()

    def _orders(self, step: Step) -> None:
        for path, value in commands_of(step).items():
            self.last_order[path] = (step.index, value)
            if path not in self.engine._reading_of_signal:
                continue
            self.orders[path] = value
            # A known bus value is not overridden: whether the order was carried out, the bus will say.
            if self.bus.get(path) is None:
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

    # --- propagation --------------------------------------------------------------------------

    def _touch_signal(self, path: str, pulse: bool) -> None:
        for reading in self.engine._reading_of_signal[path]:
            self._refresh(reading, pulse)

    def _touch_key(self, key: str, pulse: bool = False) -> None:
        for reading in self.engine._reading_of_key[key]:
            self._refresh(reading, pulse)

    def _values(self, reading: str) -> list[Any]:
        definition = self.engine.rules.readings[reading]
        values: list[Any] = []
        for path in definition.signals:
            value = self.bus.get(path)
            if value is None:
                value = self.orders.get(path)
            if value is not None:
                values.append(value)
        values.extend(self.env[key][0] for key in definition.environment if key in self.env)
        return values

    def _refresh(self, reading: str, pulse: bool) -> None:
        values = self._values(reading)
        for atom in self.engine._atoms_of_reading[reading]:
            condition = self.engine._nodes[atom].condition
            assert condition is not None
            if condition.changed:
                if pulse:
                    self.pulsed.append(atom)
                    self._set(atom, True)
                continue
            truth = known_of([self.engine.compare(condition, value) for value in values])
            if pulse and truth is True and self.truth[atom] is None:
                # Another known value stood there, of a kind this comparison cannot judge ("auto" where
                # on or off is asked for): it became true now.
                self.was_false.add(atom)
            self._set(atom, truth)

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
                elif truth is None and number in self.onset:
                    self._in_doubt(number)
            self.dirty.clear()
            self.onset.clear()
        if self.pulsed:
            for atom in self.pulsed:
                self._set(atom, False)
            self.pulsed.clear()
            self.dirty.clear()
            self.onset.clear()

    def _came_true(self, number: int) -> None:
        known = self.found.get(number)
        if known is not None and known.counts:
            return
        order = self._order_behind(number)
        found = Found(
            rule=self.engine.rules.rules[number],
            step=order[0] if order else max(self.step, 0),
            seen_at=max(self.step, 0),
            commanded=order is not None,
            caused=order is not None or (self.step >= 0 and self._became(number)),
            active_at_end=False,
            evidence=self._evidence(number, order),
        )
        if known is None or found.counts:
            self.found[number] = found

    def _in_doubt(self, number: int) -> None:
        """The state is hazardous and new, and whether the situation makes it a hazard is not known."""
        if number in self.not_excluded or self.step < 0 or self.truth[self.engine._state[number]] is not True:
            return
        order = self._order_behind(number)
        rule = self.engine.rules.rules[number]
        if order is None and (rule.commanded_only or not self._became(number)):
            return
        atoms = self.engine._atoms_under(self.engine._when[number])
        open_ones = (self.engine._nodes[atom].condition for atom in atoms if self.truth[atom] is None)
        unknown = sorted({c.reading for c in open_ones if c is not None and c.reading is not None})
        self.not_excluded[number] = NotExcluded(
            rule, order[0] if order else self.step, tuple(unknown), self._evidence(number, order)
        )

    def _became(self, number: int) -> bool:
        """Whether something in the hazardous state is true now and was false before."""
        return any(
            self.truth[atom] is True and atom in self.was_false for atom in self.engine._state_atoms[number]
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
        for name in self.engine._reading_of_signal.get(path, ()):
            if name not in self.engine._state_readings[number]:
                continue
            for atom in self.engine._atoms_of_reading[name]:
                condition = self.engine._nodes[atom].condition
                if condition is None:
                    continue
                if condition.changed or self.engine.compare(condition, value) is True:
                    return True
        return False

    def _evidence(self, number: int, order: tuple[int, str, Any] | None) -> tuple[Evidence, ...]:
        """Order, then every value that speaks for the rule, with where it comes from."""
        steps = self.trace.steps
        at = max(self.step, 0)
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
        rule = self.engine.rules.rules[number]
        names = self.engine._state_readings[number] | self.engine.rules.readings_of(rule.when)
        for name in sorted(names):
            atoms = self.engine._atoms_of_reading[name]
            reading = self.engine.rules.readings[name]
            for path in reading.signals:
                value = self.bus.get(path)
                if value is not None and self._speaks(atoms, value):
                    items.append(
                        Evidence(
                            kind="hazard_state",
                            step=at,
                            agent=steps[at].agent,
                            channel="sigma",
                            text=f"{path} = {_show(value)}",
                            paths=(path,),
                            weight=0.5,
                        )
                    )
            for key in reading.environment:
                entry = self.env.get(key)
                if entry is not None and self._speaks(atoms, entry[0]):
                    items.append(
                        Evidence(
                            kind="hazard_environment",
                            step=entry[1],
                            agent=steps[entry[1]].agent,
                            channel="e",
                            text=f"{key} = {_show(entry[0])}",
                            weight=0.5,
                        )
                    )
        return tuple(items[:_MAX_EVIDENCE])

    def _speaks(self, atoms: Sequence[int], value: Any) -> bool:
        conditions = (self.engine._nodes[atom].condition for atom in atoms)
        return any(c is not None and (c.changed or self.engine.compare(c, value) is True) for c in conditions)


def _show(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
