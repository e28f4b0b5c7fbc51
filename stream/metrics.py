"""All Prometheus metrics of the worker, in one object with a registry of its own.

Base units (seconds, bytes), prefix ``cockpithat_``. No label carries a vehicle, a session or text: the
number of series is bounded by topics, partitions and enumerations.
"""

from __future__ import annotations

import platform
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from cockpithat import __version__
from cockpithat.contract.base import CONTRACT_VERSION, Asil, Category, CloseReason
from cockpithat.contract.deadletter import DeadLetterReason
from cockpithat.llm import CallRecord, Role
from cockpithat.llm.accounting import CACHED, OK

PREFIX: Final = "cockpithat"
NO_CATEGORY: Final = "none"  # label of a report that names no category

# A `_created` series beside each counter doubles what is scraped and tells nothing that is used here.
disable_created_metrics()  # type: ignore[no-untyped-call]

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_LATENCY = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """Create one a process (one a test). Each attribute is a Prometheus metric."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, namespace=PREFIX, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, namespace=PREFIX, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, namespace=PREFIX, registry=registry, buckets=buckets)

        build = Info("build", "Version of the product.", namespace=PREFIX, registry=registry)
        build.info(
            {
                "version": __version__,
                "contract_version": CONTRACT_VERSION,
                "python_version": platform.python_version(),
            }
        )

        # Intake
        self.events = counter(
            "events", "Session events read: accepted, duplicate or dead_lettered.", "result"
        )
        self.dead_letters = counter(
            "dead_letters", "Records put aside, by input topic and reason.", "topic", "reason"
        )
        self.misplaced_keys = counter(
            "misplaced_keys", "Keys found in another partition than murmur2 gives them.", "topic"
        )
        self.intake_stopped = gauge(
            "intake_stopped", "1 while intake is stopped since too many records were dead-lettered."
        )
        self.lag = gauge("lag_records", "Records not read yet.", "topic", "partition")
        self.hold = gauge(
            "hold_records",
            "Records between the held offset and the read position: what a new owner would read again.",
            "topic",
            "partition",
        )
        self.hold_age = gauge(
            "hold_age_seconds", "Age of the oldest record that the offset is held for.", "topic", "partition"
        )
        self.last_progress = gauge(
            "last_progress_timestamp_seconds", "When a record was last taken or an output last delivered."
        )
        self.assigned_partitions = gauge("assigned_partitions", "Partitions this worker owns.", "topic")
        self.paused_partitions = gauge(
            "paused_partitions", "Partitions paused since the attribution pool is full."
        )
        self.partitions_added = gauge(
            "partitions_added",
            "Partitions that a topic was given while this worker ran; above 0, restart all workers.",
            "topic",
        )
        self.rebalances = counter("rebalances", "Rebalances of the consumer group seen by this worker.")

        # Sessions and vehicle state
        self.open_sessions = gauge("open_sessions", "Sessions open in this worker.")
        self.sessions_closed = counter("sessions_closed", "Sessions closed, by what closed them.", "reason")
        self.sessions_quarantined = counter(
            "sessions_quarantined", "Sessions that made the engine fail and were put aside."
        )
        self.sessions_reopened = counter(
            "sessions_reopened", "Sessions judged again since their failure flag came late."
        )
        self.traces_cut = counter("traces_cut", "Traces cut to fit a record; they say `truncated`.")
        self.snapshots = counter("snapshots", "Vehicle snapshots read: accepted or dead_lettered.", "result")
        self.can_frames = counter(
            "can_frames",
            "CAN frames read: decoded or skipped (no mapped signal); dead_lettered counts whole records.",
            "result",
        )
        self.snapshot_log_bytes = gauge("snapshot_log_bytes", "Memory of the snapshot log.")
        self.snapshot_log_vehicles = gauge("snapshot_log_vehicles", "Vehicles in the snapshot log.")

        # Attribution and outputs
        self.pool_queue = gauge("pool_queue", "Sessions waiting for attribution.")
        self.pool_active = gauge("pool_active", "Sessions being attributed.")
        self.attribution_seconds = histogram(
            "attribution_seconds", "Time from taking a trace to its report.", _FAST, "method"
        )
        self.attribution_failures = counter(
            "attribution_failures",
            "Attributions that gave no report of the wanted method: deadline, error or cancelled.",
            "reason",
        )
        self.session_end_to_report_seconds = histogram(
            "session_end_to_report_seconds", "From the end of a session to its report.", _LATENCY
        )
        self.session_end_to_alert_seconds = histogram(
            "session_end_to_alert_seconds", "From the end of a session to its alert.", _LATENCY
        )
        self.session_end_to_verdict_seconds = histogram(
            "session_end_to_verdict_seconds",
            "From the end of a session to its last revision, with analysts llm.",
            _LATENCY,
        )
        self.reports = counter("reports", "Reports written.", "asil", "category")
        self.alerts = counter("alerts", "Alerts written.", "asil")
        self.alerts_withheld = counter("alerts_withheld", "Alerts not written, by reason.", "reason")
        self.reviews = counter("reviews", "Review requests written.")
        self.suspicions_withheld = counter(
            "suspicions_withheld", "Suspicions beyond worker.suspicions_per_hour: only summaries name them."
        )
        self.suspicions = counter("suspicions", "Silent hazards written for sessions that passed.", "asil")
        self.summaries = counter("summaries", "Session summaries written: the mark that a session is done.")
        self.transactions = counter("transactions", "Output transactions: committed or aborted.", "result")
        self.delivery_failures = counter("delivery_failures", "Records that could not be delivered.")

        # The LLM panel
        self.panel_backlog = gauge("panel_backlog", "Sessions whose local report is out and panel is not.")
        self.panels_active = gauge("panels_active", "Panels in flight.")
        self.panels = counter(
            "panels",
            "Panels ended: verdict, postponed (the endpoint does not answer), given_up or cancelled.",
            "result",
        )
        self.panel_seconds = histogram("panel_seconds", "Time of a panel that gave a verdict.", _LATENCY)
        self.llm_calls = counter(
            "llm_calls", "Tries of LLM calls: ok, cached or the kind of failure.", "role", "outcome"
        )
        self.llm_call_seconds = histogram(
            "llm_call_seconds", "Time of a try, cached ones aside.", _LATENCY, "role"
        )
        self.llm_tokens = counter("llm_tokens", "Tokens of LLM calls: input or output.", "role", "direction")
        self.llm_cost = counter("llm_cost", "Cost of LLM calls, in the currency of the settings.", "role")
        self.llm_circuit_open = gauge(
            "llm_circuit_open", "1 while an endpoint is left alone since it failed.", "role"
        )

        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """A series that only appears with its first count hides that count from ``rate()``."""
        for result in ("accepted", "duplicate", "dead_lettered"):
            self.events.labels(result)
        for result in ("accepted", "dead_lettered"):
            self.snapshots.labels(result)
        for result in ("decoded", "skipped", "dead_lettered"):
            self.can_frames.labels(result)
        for reason in CloseReason:
            self.sessions_closed.labels(reason.value)
        for failure in ("deadline", "error", "cancelled"):
            self.attribution_failures.labels(failure)
        for asil in (Asil.C, Asil.D):
            self.alerts.labels(asil.value)
        for asil in Asil:
            self.suspicions.labels(asil.value)
            for category in (*(category.value for category in Category), NO_CATEGORY):
                self.reports.labels(asil.value, category)
        for result in ("committed", "aborted"):
            self.transactions.labels(result)
        for result in ("verdict", "postponed", "given_up", "cancelled"):
            self.panels.labels(result)
        for role in Role:
            for outcome in (OK, CACHED):
                self.llm_calls.labels(role.value, outcome)
            for direction in ("input", "output"):
                self.llm_tokens.labels(role.value, direction)
            self.llm_cost.labels(role.value)
            self.llm_circuit_open.labels(role.value)

    def watch_topic(self, topic: str) -> None:
        """Show ``topic``'s dead letters as zero from the start."""
        for reason in DeadLetterReason:
            self.dead_letters.labels(topic, reason.value)

    def count_report(self, asil: Asil, category: Category | None) -> None:
        """One report was written."""
        self.reports.labels(asil.value, category.value if category else NO_CATEGORY).inc()

    def count_call(self, record: CallRecord) -> None:
        """One try of a call to a model is over."""
        role = record.role.value
        self.llm_calls.labels(role, record.outcome).inc()
        if record.outcome != CACHED:
            self.llm_call_seconds.labels(role).observe(record.seconds)
        self.llm_tokens.labels(role, "input").inc(record.input_tokens)
        self.llm_tokens.labels(role, "output").inc(record.output_tokens)
        self.llm_cost.labels(role).inc(record.cost)

    def forget_partition(self, topic: str, partition: int) -> None:
        """Drop a revoked partition's series: another worker reports it now."""
        for gauge in (self.lag, self.hold, self.hold_age):
            try:
                gauge.remove(topic, str(partition))
            except KeyError:
                continue  # never reported

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, in the format that the ``Accept`` header asks for."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type
