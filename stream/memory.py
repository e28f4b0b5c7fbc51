"""The interpreter, set for a process with a thread that computes beside its event loop."""

from __future__ import annotations

import gc
import sys

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 20
_SWITCH_S = 0.0005


def tune() -> None:
    """Collect less often, and change threads more often.

    Events, steps and snapshots live for minutes and hold no cycles; at Python's own settings a collection
    every 700 objects goes through all of them in vain, a third of the time for an event. Modules and settings
    are set aside for good.

    The event loop gives the interpreter's lock away at each of its many short waits, and the snapshot reader
    keeps it for as long as a switch takes, by default 5 ms: the loop then takes 450 events a second and
    sessions queue up, while a third of the processor is idle (docs/performance.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    sys.setswitchinterval(_SWITCH_S)
