"""What a worker says of rules that watch a signal which nothing knows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cockpithat.attribution import AttributionSettings
from cockpithat.resources import read_resource
from stream.roles.attribute import tell_unknown_signals
from stream.settings import ConfigurationError


def test_the_log_names_the_rule_and_the_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = tmp_path / "ours.yaml"
    text = read_resource("data/rules/hazards.yaml").replace("Body.Lights.Beam.Low.", "Body.Light.Beam.Low.")
    rules.write_text(text, encoding="utf-8")
    tell_unknown_signals(AttributionSettings(rules_file=rules))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    detail = record.__dict__["detail"]  # a field whose text is written
    assert "Vehicle.Body.Light.Beam.Low.IsOn" in detail and detail.startswith("rule")


def test_nothing_is_said_of_the_shipped_rules(caplog: pytest.LogCaptureFixture) -> None:
    tell_unknown_signals(AttributionSettings())
    assert caplog.records == []


def test_rules_that_cannot_be_used_keep_the_worker_from_starting(tmp_path: Path) -> None:
    rules = tmp_path / "ours.yaml"
    rules.write_text("format: 1\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"ours\.yaml"):
        tell_unknown_signals(AttributionSettings(rules_file=rules))
