"""The scan without a model: flags from the hazard rules and the local evidence."""

from __future__ import annotations

from collections.abc import Iterable

from cockpithat.channels.scan import MAX_FLAGS
from cockpithat.channels.tags import Priority, Salience, Tag
from cockpithat.contract.base import Asil
from cockpithat.contract.reports import Evidence, Hazard

_TAG_OF_CHANNEL = {"e": Tag.ENV_MISGROUNDING, "sigma": Tag.INTERACTION_RISK, "m": Tag.CROSS_DOMAIN}
_HAZARD_SCORE = {Asil.UNRATED: 0.4, Asil.QM: 0.5, Asil.A: 0.7, Asil.B: 0.8, Asil.C: 0.9, Asil.D: 1.0}


def local_scan(hazards: Iterable[Hazard], evidence: Iterable[Evidence], steps: int) -> list[Salience]:
    """Flags by step: a hazard is a safety violation, other evidence is tagged by the channel it is seen in.

    Evidence of the dialogue channel flags nothing: the adapter is about what text does not show.
    """
    flags: dict[int, Salience] = {}

    def offer(flag: Salience) -> None:
        known = flags.get(flag.step)
        rank = (flag.tag == Tag.SAFETY_VIOLATION, flag.score)
        if known is None or rank > (known.tag == Tag.SAFETY_VIOLATION, known.score):
            flags[flag.step] = flag

    for hazard in hazards:
        score = _HAZARD_SCORE[hazard.asil]
        places = {hazard.step, *(item.step for item in hazard.evidence)}
        for place in places:
            if place is not None and 0 <= place < steps:
                offer(
                    Salience(
                        place, Tag.SAFETY_VIOLATION, score, _priority(score), 3, hazard.hazardous_event[:200]
                    )
                )
    for item in evidence:
        tag = _TAG_OF_CHANNEL.get(item.channel)
        if tag is not None and item.step is not None and 0 <= item.step < steps:
            score = min(max(item.weight if item.weight is not None else 0.5, 0.0), 1.0)
            offer(Salience(item.step, tag, score, _priority(score), 1, item.kind[:200]))
    gravest = sorted(flags.values(), key=lambda f: (f.tag == Tag.SAFETY_VIOLATION, f.score), reverse=True)
    return sorted(gravest[:MAX_FLAGS], key=lambda flag: flag.step)


def _priority(score: float) -> Priority:
    return "high" if score >= 0.8 else "medium" if score >= 0.5 else "low"
