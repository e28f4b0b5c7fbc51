"""CAN frames to vehicle snapshots: a DBC decodes them, a mapping in KUKSA's syntax names VSS paths."""

from cockpithat.can.decoder import CanDecoder, DecodeCounts
from cockpithat.can.mapping import CanMappingError, SignalMapping, load_mapping
from cockpithat.can.transform import Formula, FormulaError

__all__ = [
    "CanDecoder",
    "CanMappingError",
    "DecodeCounts",
    "Formula",
    "FormulaError",
    "SignalMapping",
    "load_mapping",
]
