"""From a wish list (category, ASIL, style, length) to scenarios that meet it, each proved by replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import NormalDist

from cockpithat.contract.base import Asil, Category
from cockpithat.simulator.dice import Dice
from cockpithat.simulator.families import FAMILIES, Family, Shape
from cockpithat.simulator.faults import Variant, variants_of
from cockpithat.simulator.marginals import Marginals, apportion, published, solve
from cockpithat.simulator.run import Run, decisive_step, run
from cockpithat.simulator.scenario import Flow, Scenario, Side
from cockpithat.simulator.sides import CLASHES, PARTS, SIDES

_MAX_TRIES = 60
_SIDE_TURNS = {"scan": 1, "small_talk": 2, "corrected": 5, "place": 5, "refused": 4, "errand": 4}
_USUAL_SIDE_TURNS = 3
# Side conversations keep mostly to agents that are there anyway, so that not everybody always acts.
_NEWCOMER_WEIGHT = 0.05
_DANGER_MARGIN_MS = 800
_FLIP_LEAD_MS = 250


class NoScenarioError(RuntimeError):
    """No scenario was found that meets a wish; says which."""


@dataclass(frozen=True)
class Wish:
    """What one scenario is to be. ``category`` and ``asil`` are ``None`` for sessions that go well."""

    number: int
    category: Category | None
    asil: Asil | None
    source: str
    language: str
    roster: str
    turns: int
    seconds: float
    silent: bool = False


@dataclass(frozen=True)
class Built:
    """A scenario with its recorded run and, if it failed, the decisive step that replay found."""

    wish: Wish
    scenario: Scenario
    run: Run
    decisive: int | None


def turn_targets(count: int, m: Marginals) -> list[int]:
    """Turns of ``count`` scenarios: quantiles of a log-normal with the published mean, SD and bounds."""
    mean, sd = m.turns["mean"], m.turns["sd"]
    sigma = sqrt(log(1 + (sd / mean) ** 2))
    curve = NormalDist(log(mean) - sigma**2 / 2, sigma)
    low, high = int(m.turns["minimum"]), int(m.turns["maximum"])
    turns = [max(low, min(high, round(exp(curve.inv_cdf((i + 0.5) / count))))) for i in range(count)]
    if count > 20:
        turns[-1] = high
    return turns


def scenario_key(seed: int, unseen: bool) -> int | str:
    """What draws go by: the seed, and for the unseen families a name of their own beside it."""
    return f"unseen/{seed}" if unseen else seed


def wishes(seed: int | str, failed: int, passed: int = 0, silent: int = 0) -> list[Wish]:
    """The wish list of a benchmark: the published marginals, scaled when ``failed`` is not 212."""
    m, dice = published(), Dice(seed, "wishes")
    table = dict(solve())
    if failed != m.traces:
        table = apportion(table, failed)
    cells: list[tuple[Category | None, Asil | None, bool]] = []
    for (category, asil), count in table.items():
        cells += [(category, asil, False)] * count
    cells = list(dice.shuffled(cells, "cells"))
    kinds = list(Category)
    for number in range(silent):
        cells.append((kinds[number % len(kinds)], None, True))
    cells += [(None, None, False)] * passed
    count = len(cells)
    sources = _dealt(m.sources, count, dice, "sources")
    languages = _dealt(m.languages, count, dice, "languages")
    rosters = _dealt(
        {"functional": m.functional_roster, "specialist": 1 - m.functional_roster}, count, dice, "rosters"
    )
    turns: list[int] = []
    for part, size in (("failed", failed), ("silent", silent), ("passed", passed)):
        turns += dice.shuffled(turn_targets(size, m), "turns", part) if size else []
    pace = m.seconds["mean"] / m.turns["mean"]
    return [
        Wish(
            number=i,
            category=category,
            asil=asil,
            source=sources[i],
            language=languages[i],
            roster=rosters[i],
            turns=turns[i],
            seconds=pace * turns[i] * dice.uniform(0.82, 1.18, "pace", i),
            silent=is_silent,
        )
        for i, (category, asil, is_silent) in enumerate(cells)
    ]


def _dealt(shares: Mapping[str, float], count: int, dice: Dice, name: str) -> list[str]:
    counts = apportion(shares, count)
    return dice.shuffled([key for key, n in counts.items() for _ in range(n)], name)


class Builder:
    """Builds scenarios one after the other and spreads families and variants evenly."""

    def __init__(
        self, seed: int | str, language: str | None = None, choice: Sequence[Family] = FAMILIES
    ) -> None:
        self.seed = seed
        self.language = language
        self.choice = tuple(choice)
        # With few families a draw would often miss those that can have the wished ASIL.
        self._levels = {f.name: f.levels() for f in choice} if choice is not FAMILIES else {}
        self.families: Counter[str] = Counter()
        self.variants: Counter[tuple[Category, str]] = Counter()

    def build(self, wish: Wish) -> Built:
        """A scenario for a wish. Raises :class:`NoScenarioError` when none is found."""
        if self.language is not None:
            wish = replace(wish, language=self.language)
        best: tuple[int, Scenario, int | None] | None = None
        turns = published().turns
        for attempt in range(_MAX_TRIES):
            dice = Dice(self.seed, "scenario", wish.number, attempt)
            scenario = self._draft(wish, dice, attempt)
            if scenario is None:
                continue
            scenario = _lengthen(scenario, wish, dice)
            scenario, played = _timed(scenario, wish)
            off = abs(played.turns - wish.turns)
            if not turns["minimum"] <= played.turns <= turns["maximum"]:
                continue
            if not _as_wished(wish, played) or (best is not None and off >= best[0]):
                continue
            decisive: int | None = None
            if scenario.fault is not None:
                decisive, _ = decisive_step(scenario, played)
                uninjected = run(replace(scenario, fault=None))
                if decisive is None or decisive != played.fault_step or not uninjected.safe:
                    continue
            if off == 0 or (attempt > 2 and off <= 1) or (attempt > 8 and off <= 2):
                return self._keep(wish, scenario, decisive)
            best = (off, scenario, decisive)
            if attempt > 25:
                break
        if best is not None:
            return self._keep(wish, best[1], best[2])
        raise NoScenarioError(
            f"scenario {wish.number}: found none with {wish.category} at {wish.asil} in {_MAX_TRIES} tries"
        )

    def _keep(self, wish: Wish, scenario: Scenario, decisive: int | None) -> Built:
        self.families[scenario.family] += 1
        if scenario.fault is not None:
            self.variants[scenario.fault.category, scenario.fault.variant] += 1
        return Built(wish, scenario, run(scenario, record=True), decisive)

    def _draft(self, wish: Wish, dice: Dice, attempt: int) -> Scenario | None:
        """A scenario of the wished category and ASIL, without side conversations; ``None`` if unlucky."""
        variant = self._variant(wish, dice)
        family = self._family(wish, variant, dice)
        story, calm = "plain", False
        if variant is not None:
            story, calm = variant.story, variant.story == "withdraw"
        elif dice.chance(0.35, "calm"):
            calm = True
        elif dice.chance(0.35, "other story"):
            stories = ["speaker", *(["ambiguous"] if family.shape is not Shape.EVENT else ["aside"])]
            story = dice.choice(stories, "story")
            if family.withdrawable and dice.chance(0.4, "withdraw"):
                story, calm = "withdraw", True
        flow = _flow(wish, variant, family, dice)
        for turn in range(12):
            scenario = Scenario(
                seed=f"{self.seed}/{wish.number}/{attempt}/{turn}",
                family=family.name,
                situation=family.situation(Dice(self.seed, "situation", wish.number, attempt, turn)),
                story=story,
                calm=calm,
                fault=variant.fault if variant else None,
                language=wish.language,
                source=wish.source,
                roster=wish.roster,
                flow=flow,
                silent=wish.silent,
            )
            scenario, played = _scheduled(scenario)
            if _as_wished(wish, played):
                return scenario
        return None

    def _variant(self, wish: Wish, dice: Dice) -> Variant | None:
        if wish.category is None:
            return None
        known = [v for v in variants_of(wish.category) if self._fitting(wish, v)]
        weights = [1.0 / (1 + self.variants[wish.category, v.name]) ** 2 for v in known]
        return dice.weighted(known, weights, "variant")

    def _fitting(self, wish: Wish, variant: Variant | None) -> list[Family]:
        """The families that have a variant's decision and, with few families, can have the wished ASIL."""
        fitting = [f for f in self.choice if variant is None or variant.fits(f)]
        if wish.asil is not None and self._levels:
            fitting = [f for f in fitting if wish.asil in self._levels[f.name]]
        return fitting

    def _family(self, wish: Wish, variant: Variant | None, dice: Dice) -> Family:
        fitting = self._fitting(wish, variant)
        weights = [1.0 / (1 + self.families[f.name]) ** 2 for f in fitting]
        return dice.weighted(fitting, weights, "family")


def _as_wished(wish: Wish, played: Run) -> bool:
    if wish.category is None:
        return played.safe
    if played.rating is None or played.fault_step is None:
        return False
    if wish.asil is None:
        return played.rating.asil != Asil.QM
    return played.rating.asil == wish.asil


def _flow(wish: Wish, variant: Variant | None, family: Family, dice: Dice) -> Flow:
    """Habits of the cockpit: the longer the session is to be, the more of them."""
    rich = max(0.0, min(1.0, (wish.turns - 4) / 14))
    adapted = wish.source == "adapted_style"

    def likely(name: str, poor: float, wealthy: float) -> bool:
        return dice.chance(poor + (wealthy - poor) * rich, "flow", name)

    review = likely("review", 0.1, 0.75)
    flow = Flow(
        ack=likely("ack", 0.15, 0.9),
        memory=likely("memory", 0.05, 0.3),
        plan=likely("plan", 0.1, 0.85 if adapted else 0.6),
        late_plan=likely("late_plan", 0.2, 0.25),
        check=True,
        observe_only=likely("observe", 0.25, 0.3 if wish.source == "telemetry_style" else 0.15),
        dispatch=likely("dispatch", 0.15, 0.8),
        review=review,
        insist=likely("insist", 0.0, 0.3 if wish.source == "adversarial" else 0.12),
        safety_looks=likely("safety_looks", 0.1, 0.45),
        verify=likely("verify", 0.0, 0.35),
        tell=likely("tell", 0.3, 0.9),
        stiff=likely("stiff", 0.0, 0.25),
        late_notice=likely("late_notice", 0.05, 0.5),
        late_fix=likely("late_fix", 0.05, 0.5),
        complaint=likely("complaint", 0.85, 0.9),
        apology=likely("apology", 0.1, 0.6),
        confirm=likely("confirm", 0.0, 0.35),
        thoughts=dice.chance(0.5 if adapted else 0.12, "flow", "thoughts"),
    )
    if variant is not None:
        flow = replace(flow, **variant.flow)
        if variant.name in ("approval_against_reading", "misread_by_safety"):
            flow = replace(flow, safety_looks=True)
    if family.shape is Shape.EVENT and variant is None and not flow.insist:
        flow = replace(flow, review=False)
    return flow


def _scheduled(scenario: Scenario) -> tuple[Scenario, Run]:
    """Fixes when dangers come, once and for all replays, from the course the session takes without them."""
    bare = replace(scenario, change_ms=None, arrival_ms=None)
    if scenario.story == "withdraw":
        first = run(bare)
        asked = [step.ts for step in first.steps if step.act == "family.withdraw"]
        if not asked:
            return bare, first
        bare = replace(bare, change_ms=max(0, asked[0] - _FLIP_LEAD_MS))
    if scenario.of_family.shape is Shape.EVENT and not (scenario.calm and scenario.fault is None):
        ends = [run(bare).end_ms, run(replace(bare, fault=None)).end_ms]
        bare = replace(bare, arrival_ms=max(ends) + _DANGER_MARGIN_MS)
    return bare, run(bare)


def _lengthen(scenario: Scenario, wish: Wish, dice: Dice) -> Scenario:
    """Adds side conversations until the session is as long as wished."""
    clashes = CLASHES.get(scenario.family, frozenset()) | scenario.of_family.clashes
    names = [name for name in SIDES if name not in clashes]
    # Where in the session side conversations tend to fall differs from session to session.
    weights = [dice.uniform(0.2, 3.0, "slot", slot) for slot in range(6)]
    weights[0] *= 1.6
    played = run(scenario)
    missing = wish.turns - played.turns
    present = {step.agent for step in played.steps}
    sides: list[Side] = []
    for number in range(24):
        if missing <= 0:
            break
        fitting = [name for name in names if _SIDE_TURNS.get(name, _USUAL_SIDE_TURNS) <= missing + 1]
        if not fitting:
            break
        favoured = {"message", "refused", "not_yours", "battery"} if wish.source == "adversarial" else set()
        used = Counter(side.name for side in sides)
        chosen = dice.weighted(
            fitting,
            [
                (2.0 if name in favoured else 1.0)
                / (1 + used[name]) ** 2
                * _NEWCOMER_WEIGHT ** sum(played.cast.agent(part) not in present for part in PARTS[name])
                for name in fitting
            ],
            "side",
            number,
        )
        sides.append(Side(dice.weighted(range(6), weights, "slot of", number), chosen))
        longer = replace(scenario, sides=tuple(sides))
        played = run(longer)
        missing = wish.turns - played.turns
        present = {step.agent for step in played.steps}
    return replace(scenario, sides=tuple(sides))


def _timed(scenario: Scenario, wish: Wish) -> tuple[Scenario, Run]:
    """Sets the pace so that the session lasts as long as wished, then the dangers' times."""
    scenario, played = _scheduled(scenario)
    pace = max(0.3, min(3.0, wish.seconds * 1000 / max(played.end_ms, 1)))
    return _scheduled(replace(scenario, pace=scenario.pace * pace))
