"""A real Prometheus reads what the worker serves, and the alert rules of deploy/ fit the metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cockpithat.contract.base import Asil, Category
from stream.health import Health, HealthServer
from stream.metrics import Metrics
from stream.settings import HealthSettings
from tests.support.prometheus import Prometheus

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


def test_prometheus_scrapes_the_health_server(prometheus: Prometheus) -> None:
    metrics = Metrics()
    metrics.count_report(Asil.D, Category.PLANNING_FAILURE)
    metrics.hold_age.labels("t", "0").set(20_000)
    metrics.session_end_to_alert_seconds.observe(0.3)
    settings = HealthSettings(port=0)
    with HealthServer(settings, Health(settings, metrics), metrics) as server:
        prometheus.scrape(f"127.0.0.1:{server.port}", rules=_DEPLOY / "rules.yml")
        assert prometheus.wait_for('up{job="cockpithat"} == 1') == 1
        assert prometheus.wait_for('sum(cockpithat_reports_total{asil="D"})') == 1
        assert prometheus.wait_for("cockpithat_session_end_to_alert_seconds_sum") == pytest.approx(0.3)
        pending = 'ALERTS{alertname="CockpitHatHoldAge", alertstate="pending", topic="t"}'
        assert prometheus.wait_for(pending) == 1


def test_the_linter_of_prometheus_has_no_complaint(prometheus: Prometheus) -> None:
    metrics = Metrics()
    metrics.watch_topic("t")
    # The process and platform collectors are not ours to name.
    text = metrics.render()[0].decode()
    ours = "\n".join(line for line in text.splitlines() if "cockpithat_" in line) + "\n"
    assert prometheus.lint_metrics(ours.encode()) == ""


def test_rules_and_configuration_are_valid_and_the_rules_fire(prometheus: Prometheus) -> None:
    prometheus.check("rules", str(_DEPLOY / "rules.yml"))
    prometheus.check("config", str(_DEPLOY / "prometheus.yml"))
    prometheus.test_rules(_DEPLOY / "rules_test.yml")


def test_every_metric_of_a_rule_exists() -> None:
    metrics = Metrics()
    known = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    known |= {family.name for family in metrics.registry.collect()}  # without labels there is no sample yet
    known |= {f"{name}_total" for name in known} | {f"{name}_bucket" for name in known}
    rules = yaml.safe_load((_DEPLOY / "rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    used = {name for rule in rules for name in re.findall(r"cockpithat_\w+", rule["expr"])}
    assert len(used) >= 8
    assert used <= known


def test_every_alert_has_its_place_in_the_runbook() -> None:
    rules = yaml.safe_load((_DEPLOY / "rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    runbook = (_DEPLOY.parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    for rule in rules:
        assert f"### {rule['alert']}" in runbook, rule["alert"]


def test_every_metric_is_in_the_operations_guide() -> None:
    guide = (_DEPLOY.parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    for family in Metrics().registry.collect():
        if family.name.startswith("cockpithat_"):
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            assert f"`{family.name}{suffix}`" in guide, family.name
