"""The one list of local analysts, in the order of the panel."""

from __future__ import annotations

from cockpithat.analysis.analysts.base import LocalAnalyst
from cockpithat.analysis.analysts.evidence import EvidenceAnalyst
from cockpithat.analysis.analysts.rankers import LengthAnalyst, MassAnalyst
from cockpithat.analysis.analysts.safety import SafetyAnalyst
from cockpithat.ranking.analyst import RankerAnalyst

LOCAL_ANALYSTS: tuple[LocalAnalyst, ...] = (
    SafetyAnalyst(),
    EvidenceAnalyst(),
    RankerAnalyst(),
    MassAnalyst(),
    LengthAnalyst(),
)
