"""ASIL from severity, exposure and controllability (ISO 26262-3:2018, table 4)."""

from __future__ import annotations

from cockpithat.contract.base import Asil

_BY_SUM = {10: Asil.D, 9: Asil.C, 8: Asil.B, 7: Asil.A}


def classify(severity: int, exposure: int, controllability: int) -> Asil:
    """The table as its sum rule: 10 is D, 9 C, 8 B, 7 A, less is QM; any class of 0 is QM.

    Classes are S0 to S3, E0 to E4, C0 to C3. Raises ``ValueError`` outside these.
    """
    for name, value, top in (("S", severity, 3), ("E", exposure, 4), ("C", controllability, 3)):
        if not 0 <= value <= top:
            raise ValueError(f"{name}{value} does not exist; {name} is 0 to {top}")
    if 0 in (severity, exposure, controllability):
        return Asil.QM
    return _BY_SUM.get(severity + exposure + controllability, Asil.QM)
