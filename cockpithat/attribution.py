"""Attribution in one place: settings, the local panel, and the records every method hands out."""

from cockpithat.analysis.examination import Examination
from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.reporting import (
    alert_for,
    build_report,
    provenance_of,
    review_for,
    summary_for,
    suspicion_for,
    withdrawn_review_for,
)
from cockpithat.analysis.settings import AttributionSettings, ReviewSettings, config_digest

__all__ = [
    "AttributionSettings",
    "Examination",
    "LocalAttribution",
    "ReviewSettings",
    "alert_for",
    "build_report",
    "config_digest",
    "provenance_of",
    "review_for",
    "summary_for",
    "suspicion_for",
    "withdrawn_review_for",
]
