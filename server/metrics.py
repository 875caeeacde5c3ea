"""Metrics for /metrics: counters of this process, and totals and gauges read from the store on request.

No metric has a label for a subscription, a concept or an event type, because users decide how many there are.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from kindcast.server.store.ledger import Totals

__all__ = ["Metrics"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # each series would come twice, once with its birthday

STATUSES = ("active", "paused", "failing", "disabled_by_failures", "expired")
SHORT_SECONDS = (0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class Metrics:
    """The metrics of one application, in their own registry. May be used in any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.match_duration = Histogram(
            "kindcast_match_duration_seconds",
            "Time to read and match one event, as the mean of its request",
            buckets=SHORT_SECONDS,
            registry=self._registry,
        )
        self.commit_duration = Histogram(
            "kindcast_commit_duration_seconds", "Time of one commit", buckets=SHORT_SECONDS, registry=self._registry
        )
        self.events_rejected = Counter(
            "kindcast_events_rejected", "Events that could not be read", registry=self._registry
        )

    def observe_matching(self, seconds: float, events: int) -> None:
        """Records how long reading and matching this many events took."""
        if events:
            self.match_duration.observe(seconds / events)

    def observe_commit(self, seconds: float, events: int) -> None:
        """Records how long a commit with this many events took."""
        self.commit_duration.observe(seconds)

    def counted(self) -> dict[str, float]:
        """Returns the sums, counts and buckets of the histograms: `match_sum`, `match_count`, `match_le_0.1`,
        `commit_sum` …"""
        found = {}
        for name, histogram in (("match", self.match_duration), ("commit", self.commit_duration)):
            for sample in next(iter(histogram.collect())).samples:
                key = sample.name.rpartition("_")[2]
                found[f"{name}_le_{sample.labels['le']}" if key == "bucket" else f"{name}_{key}"] = sample.value
        return found

    def text(
        self,
        totals: Totals,
        subscriptions: Mapping[str, int],
        *,
        flagged: int,
        version: str,
        concepts: int,
        waiting: int,
        index_bytes: int | None,
        index_allowed: int | None,
        shards: Mapping[int, tuple[int, float]] | None = None,
    ) -> bytes:
        """Returns all metrics in Prometheus' text format. Values that are None are left out. `shards` maps each shard
        to the events and seconds by which it is behind."""
        stored = CollectorRegistry(auto_describe=False)
        stored.register(_Collected(_stored(totals, subscriptions, version)))
        gauges = {
            "kindcast_subscriptions_flagged": ("Subscriptions that use something removed from the vocabulary", flagged),
            "kindcast_concepts": ("Concepts of the vocabulary", concepts),
            "kindcast_queue_waiting": ("Events and other commands that wait for the broker", waiting),
            "kindcast_index_bytes": ("Bytes of the index and its caches", index_bytes),
            "kindcast_index_allowed_bytes": ("Limit of the index (setting index_bytes)", index_allowed),
        }
        told = {name: (said, value) for name, (said, value) in gauges.items() if value is not None}
        stored.register(_Collected(GaugeMetricFamily(name, said, value) for name, (said, value) in told.items()))
        if shards:
            stored.register(_Collected(_of_shards(shards)))
        return generate_latest(self._registry) + generate_latest(stored)


class _Collected(Collector):
    """A collector of metrics that were already computed."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def _of_shards(shards: Mapping[int, tuple[int, float]]) -> Iterator[Metric]:
    events = GaugeMetricFamily("kindcast_shard_lag_events", "Events that a shard has yet to match", labels=["shard"])
    seconds = GaugeMetricFamily("kindcast_shard_lag_seconds", "Age of the oldest one", labels=["shard"])
    for shard, (count, age) in shards.items():
        events.add_metric([str(shard)], count)
        seconds.add_metric([str(shard)], age)
    yield events
    yield seconds


def _stored(totals: Totals, subscriptions: Mapping[str, int], version: str) -> Iterator[Metric]:
    """Yields the metrics from the store. accepted = matched + unmatched; matches = delivered + pending + dead +
    discarded; parked = its results + waiting."""
    counters = {
        "kindcast_events_accepted": ("Events accepted", totals.accepted),
        "kindcast_events_duplicate": ("Events that were accepted before", totals.duplicates),
        "kindcast_events_matched": ("Accepted events with a match", totals.matched),
        "kindcast_events_unmatched": ("Accepted events without a match", totals.accepted - totals.matched),
        "kindcast_matches": ("Pairs of event and subscription", totals.matches),
        "kindcast_matches_delivered": ("Matches acknowledged, or accepted by a sink", totals.delivered),
        "kindcast_matches_discarded": ("Matches deleted before they were delivered", totals.discarded),
    }
    for name, (documentation, value) in counters.items():
        yield CounterMetricFamily(name, documentation, value=value)
    attempts = CounterMetricFamily("kindcast_deliveries", "Webhook attempts by result", labels=["result"])
    attempts.add_metric(["delivered"], totals.attempts_delivered)
    attempts.add_metric(["failed"], totals.attempts_failed)
    yield attempts
    yield CounterMetricFamily("kindcast_parked", "Candidates that operators had to decide", value=totals.parked)
    decided = CounterMetricFamily("kindcast_parked_decided", "Results of candidates", labels=["result"])
    decided.add_metric(["matched"], totals.parked_matched)
    decided.add_metric(["unmatched"], totals.parked_unmatched)
    decided.add_metric(["given_up"], totals.parked_given_up)
    decided.add_metric(["withdrawn"], totals.parked_withdrawn)
    yield decided
    yield GaugeMetricFamily("kindcast_parked_waiting", "Candidates not yet decided", value=totals.parked_waiting)
    yield GaugeMetricFamily("kindcast_matches_pending", "Matches not yet delivered", value=totals.pending)
    yield GaugeMetricFamily(
        "kindcast_dead_letters", "Matches that wait for a webhook that was disabled by its failures", value=totals.dead
    )
    yield GaugeMetricFamily("kindcast_last_sequence", "Sequence of the last event", value=totals.sequence)
    by_status = GaugeMetricFamily("kindcast_subscriptions", "Subscriptions by status", labels=["status"])
    for status in STATUSES:
        by_status.add_metric([status], subscriptions.get(status, 0))
    yield by_status
    yield InfoMetricFamily("kindcast_ontology_version", "The vocabulary in force", value={"version": version})
