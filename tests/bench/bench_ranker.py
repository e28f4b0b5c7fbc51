"""What the trained ranker and the local panel show, with n and 95% Wilson intervals (docs/local-analyst.md).

``python -m tests.bench.bench_ranker whowhen`` nested cross-validation by question; one split on the other.
``... cockpitbench DIR...`` unseen families, of folders written by ``cockpithat simulate``.
``... leaveout DIR...`` training families, each judged by weights fitted on the others; ratings combined.
``... carbench`` first and second candidate on the runs that have a step, and screening of the good runs.
``... screening DIR...`` silent hazards found and false alarms, in the same folders.
``--training``: the training families. Settings of ``COCKPITHAT_ATTRIBUTION__SCREENING__...`` apply.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from cockpithat.analysis.asil import classify
from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.roles import agent_key
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.base import Asil
from cockpithat.formats.registry import load
from cockpithat.ranking.carbench import read_carbench_labels
from cockpithat.ranking.features import COCKPIT, DIALOGUE
from cockpithat.ranking.labelled import (
    HELD_OUT,
    TRAINING,
    cockpitbench,
    examiner,
    from_cockpitbench,
    from_whowhen,
)
from cockpithat.ranking.model import rate_features
from cockpithat.ranking.train import CLASS_PENALTY, COCKPIT_STRENGTH
from cockpithat.ranking.training import (
    Labelled,
    accuracy,
    choose,
    fit_domain,
    fit_severity,
    high_threshold,
)
from stream.settings import load_settings
from tests.bench.bench_local import DATA, SPLITS, Judge, _figure, local_methods, wilson

_FOLDS = 5
NONE = Asil.UNRATED
CAR_BENCH = DATA.parent / "car-bench"


def rank(asil: Asil) -> int:
    """Its place in the order of severity."""
    return asil.rank


def _line(name: str, hits: int, n: int) -> str:
    return f"{name:44} n={n:4}  {_figure(hits, n)}" if n else f"{name:44} n=   0"


def whowhen() -> None:
    """Outer folds by question; strength chosen inside each on the other questions only."""
    rows = {split: list(from_whowhen(DATA / split)) for split in SPLITS}
    questions = sorted({row.group for split in SPLITS for row in rows[split]})
    hits: Counter[tuple[str, str]] = Counter()
    for k in range(_FOLDS):
        out = set(questions[k::_FOLDS])
        inside = [row for split in SPLITS for row in rows[split] if row.group not in out]
        weights = fit_domain(inside, DIALOGUE, **vars(choose(inside, DIALOGUE)))
        for split in SPLITS:
            agent, step = accuracy([row for row in rows[split] if row.group in out], weights)
            hits[split, "agent"] += agent
            hits[split, "step"] += step
    for split in SPLITS:
        for what in ("agent", "step"):
            print(_line(f"nested CV, {split}, {what}", hits[split, what], len(rows[split])))
    for source, target in (SPLITS, SPLITS[::-1]):
        asked = {row.group for row in rows[target]}
        inside = [row for row in rows[source] if row.group not in asked]
        weights = fit_domain(inside, DIALOGUE, **vars(choose(inside, DIALOGUE)))
        agent, step = accuracy(rows[target], weights)
        name = f"trained on {source} ({len(inside)}), {target}"
        print(_line(f"{name}, agent", agent, len(rows[target])))
        print(_line(f"{name}, step", step, len(rows[target])))
        floor = fit_domain(inside, DIALOGUE, step_penalty=1e9, agent_penalty=1e9, mix=0.0)
        print("   floor (agent, step):", accuracy(rows[target], floor))


def cockpitbench_figures(folders: list[Path], families: str) -> None:
    """Reports of the whole local panel, and of both baselines, against the labels computed by replay."""
    panel = LocalAttribution()
    rating = LocalAttribution(AttributionSettings(ranker_rates=True))
    untrained = LocalAttribution(AttributionSettings(ranker=False))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    methods: dict[str, Judge] = {name: judge for name, judge in local_methods() if name != "cockpithat"}
    methods |= {"cockpithat, ranker_rates": rating.judge, "cockpithat, no ranker": untrained.judge}
    for folder in folders:
        for trace, label in cockpitbench(folder, families):
            gold = label.gold
            assert gold is not None
            reports = {"cockpithat": panel.judge(trace)}
            reports |= {name: judge(trace) for name, judge in methods.items()}
            guess = rating.ranker.rating(rating.examine(trace)) if rating.ranker else None
            alone = guess[0] if guess else Asil.UNRATED
            reports["ranker's rating alone"] = reports["cockpithat"].model_copy(update={"asil": alone})
            for name, report in reports.items():
                groups = [name, f"{name}, {label.scenario.family}"] if name == "cockpithat" else [name]
                for group in groups:
                    c = counts[group]
                    c["n"] += 1
                    c["agent"] += agent_key(report.agent or "") == agent_key(gold.agent)
                    c["step"] += report.step == gold.step
                    c["category"] += report.category == gold.category
                    c["asil"] += report.asil == gold.asil
                    high, said = gold.asil.rank >= Asil.C.rank, report.asil.rank >= Asil.C.rank
                    c["high"] += high
                    c["high said"] += said
                    c["high found"] += high and said
    for name, c in counts.items():
        for what in ("agent", "step", "category", "asil"):
            print(_line(f"{name}, {what}", c[what], c["n"]))
        print(_line(f"{name}, recall of C and D", c["high found"], c["high"]))
        print(_line(f"{name}, precision of C and D", c["high found"], c["high said"]))


def leave_families_out(folders: list[Path]) -> None:
    """What the fitted parts show of a family that they were not fitted on; ratings of rules beside them.

    This is where choices are made (strengths, how ratings combine), so that hold-out families only measure.
    """
    local = examiner()
    rows: list[tuple[Labelled, Asil]] = []
    for folder in folders:
        traces = cockpitbench(folder, TRAINING)
        for row, (trace, _) in zip(from_cockpitbench(folder, TRAINING), traces, strict=True):
            rows.append(
                (row, max((f.asil for f in local.examine(trace).hazards.rated), key=rank, default=NONE))
            )
    hits: Counter[str] = Counter()
    said: dict[str, list[tuple[Asil, Asil]]] = defaultdict(list)
    for family in sorted({row.group for row, _ in rows}):
        inside = [row for row, _ in rows if row.group != family]
        left = [(row, rules) for row, rules in rows if row.group == family]
        weights = fit_domain(inside, COCKPIT, **vars(COCKPIT_STRENGTH))
        agent, step = accuracy([row for row, _ in left], weights)
        hits["agent"] += agent
        hits["step"] += step
        severity = fit_severity(inside, CLASS_PENALTY, high_threshold(inside, CLASS_PENALTY))
        for row, rules in left:
            assert row.classes is not None
            gold = classify(*row.classes)
            ranker = rate_features(row.situation, severity)[0] if row.situation else NONE
            said["rules"].append((rules, gold))
            said["ranker"].append((ranker, gold))
            said["rules, else ranker"].append((ranker if rules is NONE else rules, gold))
            said["higher of the two"].append((max(rules, ranker, key=rank), gold))
    for what in ("agent", "step"):
        print(_line(f"ranker alone, {what}", hits[what], len(rows)))
    for name, pairs in said.items():
        high = [ours for ours, gold in pairs if gold.rank >= Asil.C.rank]
        found = sum(ours.rank >= Asil.C.rank for ours in high)
        told = sum(ours.rank >= Asil.C.rank for ours, _ in pairs)
        print(_line(f"{name}, asil", sum(ours == gold for ours, gold in pairs), len(pairs)))
        print(_line(f"{name}, recall of C and D", found, len(high)))
        print(_line(f"{name}, precision of C and D", found, told))


def screening(folders: list[Path], families: str) -> None:
    """Silent hazards that become suspicions, and passed sessions that do, of the families given."""
    panel = LocalAttribution(load_settings().attribution)
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for folder in folders:
        for trace, label in cockpitbench(folder, families, failed=False):
            total[label.kind] += 1
            found[label.kind] += panel.screen(trace) is not None
    print(_line("silent hazards that become suspicions", found["silent_hazard"], total["silent_hazard"]))
    low, high = wilson(found["passed"], total["passed"])
    rate = 1000 * found["passed"] / max(total["passed"], 1)
    print(f"false alarms per 1,000 passed: {rate:.0f} [{10 * low:.0f}, {10 * high:.0f}], n={total['passed']}")


def carbench() -> None:
    """Rate at which the first and the second candidate are the gold step; screening of the good runs."""
    panel = LocalAttribution()
    c: Counter[str] = Counter()
    for path in sorted(CAR_BENCH.glob("*.json")):
        if path.name in ("tools.json", "carbench_state_to_vss.json"):
            continue
        for trace, label in zip(load(path), read_carbench_labels(path), strict=True):
            if not label.failed:
                c["good"] += 1
                c["suspicions"] += panel.screen(trace) is not None
                continue
            c["failed"] += 1
            c[f"failed, {label.why}"] += 1
            if label.step is None:
                continue
            report = panel.judge(trace)
            candidates = [candidate.step for candidate in report.candidates]
            c["labelled"] += 1
            c["first"] += candidates[:1] == [label.step]
            c["second"] += candidates[1:2] == [label.step]
            c["alerts"] += report.asil.rank >= Asil.C.rank
            options = [i for i, step in enumerate(trace.steps) if step.agent == "assistant"]
            c["options"] += len(options)
    print(dict(c))
    print(_line("first candidate", c["first"], c["labelled"]))
    print(_line("second candidate", c["second"], c["labelled"]))
    print(_line("either", c["first"] + c["second"], c["labelled"]))
    print(_line("good runs that become suspicions", c["suspicions"], c["good"]))


def main(arguments: list[str]) -> None:
    """One table."""
    what, folders = arguments[0], [Path(a) for a in arguments[1:] if not a.startswith("--")]
    families = TRAINING if "--training" in arguments else HELD_OUT
    if what == "whowhen":
        whowhen()
    elif what == "cockpitbench":
        cockpitbench_figures(folders, families)
    elif what == "leaveout":
        leave_families_out(folders)
    elif what == "screening":
        screening(folders, families)
    elif what == "carbench":
        carbench()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
