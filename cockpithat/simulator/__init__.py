"""CockpitBench: simulated cockpit sessions whose decisive step is computed by replay.

``simulate(SimulateSettings(...))`` yields sessions, ``write`` puts them into a folder, ``read_labels``
reads the labels back; ``agreement`` has the scores that go with the annotation protocol.
"""

from cockpithat.simulator.agreement import agreement, channel_attention, contested_recognition, fleiss_kappa
from cockpithat.simulator.benchmark import SimulateSettings, count, read_labels, simulate, write
from cockpithat.simulator.labels import SessionLabel
from cockpithat.simulator.session import SimulatedSession, held_out_families

__all__ = [
    "SessionLabel",
    "SimulateSettings",
    "SimulatedSession",
    "agreement",
    "channel_attention",
    "contested_recognition",
    "count",
    "fleiss_kappa",
    "held_out_families",
    "read_labels",
    "simulate",
    "write",
]
