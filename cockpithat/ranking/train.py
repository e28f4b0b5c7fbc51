"""Trains the ranker: ``cockpithat train``, or ``python -m cockpithat.ranking.train``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cockpithat.ranking.features import COCKPIT, DIALOGUE
from cockpithat.ranking.labelled import from_cockpitbench, from_whowhen
from cockpithat.ranking.model import DomainWeights, RankerWeights, SeverityWeights, Weights
from cockpithat.ranking.training import (
    Labelled,
    Strength,
    choose,
    fit_categories,
    fit_domain,
    fit_severity,
    high_threshold,
)

COCKPIT_STRENGTH = Strength(10.0, 5.0, 0.0)
CLASS_PENALTY = 10.0
# Chosen leaving out one training family at a time (643 sessions; 3 to 300 tried: 0.933 to
# 0.947 right). A strong one also leaves sessions unlike the simulator's to the clues.
CATEGORY_PENALTY = 100.0


def train(whowhen: Sequence[Path], cockpitbench: Sequence[Path], *, version: str = "") -> RankerWeights:
    """Weights from folders of Who&When files and of simulated benchmarks (training families only).

    Raises ``ValueError`` when neither holds a labelled run.
    """
    dialogue = [row for folder in whowhen for row in from_whowhen(folder)]
    cockpit = [row for folder in cockpitbench for row in from_cockpitbench(folder)]
    if not dialogue and not cockpit:
        raise ValueError("no labelled run found; give folders with --whowhen or --cockpitbench")
    domains: dict[str, DomainWeights] = {}
    trained_on: dict[str, str] = {}
    categories: dict[str, Weights] = {}
    severity: SeverityWeights | None = None
    if dialogue:
        strength = choose(dialogue, DIALOGUE)
        domains[DIALOGUE] = _domain(dialogue, DIALOGUE, strength)
        trained_on[DIALOGUE] = _told(dialogue, "Who&When runs", "questions", strength)
    if cockpit:
        domains[COCKPIT] = _domain(cockpit, COCKPIT, COCKPIT_STRENGTH)
        categories = fit_categories(cockpit, CATEGORY_PENALTY)
        severity = fit_severity(cockpit, CLASS_PENALTY, high_threshold(cockpit, CLASS_PENALTY))
        trained_on[COCKPIT] = _told(cockpit, "CockpitBench sessions", "families", COCKPIT_STRENGTH)
    return RankerWeights(
        version=version or datetime.now(UTC).strftime("%Y.%m.%d"),
        trained_on=trained_on,
        domains=domains,
        categories=categories,
        severity=severity,
    )


def write(weights: RankerWeights, path: Path) -> None:
    """As JSON that people can read and compare: one weight a line, by name."""
    text = json.dumps(weights.model_dump(mode="json"), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _domain(rows: Sequence[Labelled], domain: str, strength: Strength) -> DomainWeights:
    return fit_domain(
        rows,
        domain,
        step_penalty=strength.step_penalty,
        agent_penalty=strength.agent_penalty,
        mix=strength.mix,
    )


def _told(rows: Sequence[Labelled], what: str, groups: str, strength: Strength) -> str:
    number = len({row.group for row in rows})
    return f"{len(rows)} {what} of {number} {groups}; penalty {strength.step_penalty:g}, mix {strength.mix:g}"


if __name__ == "__main__":
    from cockpithat.ranking.command import train_command

    train_command()
