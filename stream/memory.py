"""The garbage collector, set for a process that keeps many small objects for long."""

from __future__ import annotations

import gc

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 20


def tune() -> None:
    """Collect less often: at Python's own settings a third of the time for an event goes into it.

    Events, steps and snapshots live for minutes and hold no cycles; a collection every 700 objects goes
    through all of them in vain. Modules and settings are set aside for good.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
