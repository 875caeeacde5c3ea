"""Metrics for /metrics, and the measurements of one day for /v1/series.

/metrics has counters of this process, and totals and gauges read from the store on request. While the store cannot be
read, it has only those of the process. No metric has a label for a subscription, a concept or an event type, because
users decide how many there are.

    totals of the store, metrics of the process ──a sample──▶ rings ──▶ GET /v1/series

The measurements of one day are in memory: 2,880 samples, one every 30 seconds. They take some 400 KB, and 46 KB for
each of at most 20 operators. They are lost at a restart. Rates are differences of totals divided by the time between
two samples.
"""

import asyncio
import logging
import resource
import sys
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, make_url

from kindcast.server.clock import CLOCK
from kindcast.server.errors import ServerError
from kindcast.server.store.deliveries import webhooks_wait_since
from kindcast.server.store.ledger import Totals, read_totals
from kindcast.server.store.subscriptions import count_by_status

if TYPE_CHECKING:
    from kindcast.server.broker import Broker
    from kindcast.server.late_matching import LateMatchingService

__all__ = ["History", "Metrics", "Stored", "running_history"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # each series would come twice, once with the time of its creation

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

    def observe_commit(self, seconds: float) -> None:
        """Records how long a commit took."""
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
        stored: "Stored | None",
        *,
        version: str,
        concepts: int,
        waiting: int,
        index_bytes: int | None,
        index_allowed: int | None,
    ) -> bytes:
        """Returns all metrics in Prometheus' text format. Values that are None are left out. `stored` is None if the
        database cannot be read."""
        registry = CollectorRegistry(auto_describe=False)
        if stored is not None:
            registry.register(_Collected(_stored(stored)))
        gauges = {
            "kindcast_database_up": ("Whether the database could be read", int(stored is not None)),
            "kindcast_concepts": ("Concepts of the vocabulary", concepts),
            "kindcast_queue_waiting": ("Events and other commands that wait for the broker", waiting),
            "kindcast_index_bytes": ("Bytes of the index and its caches", index_bytes),
            "kindcast_index_allowed_bytes": ("Limit of the index (setting index_bytes)", index_allowed),
        }
        told = {name: (said, value) for name, (said, value) in gauges.items() if value is not None}
        registry.register(_Collected(GaugeMetricFamily(name, said, value) for name, (said, value) in told.items()))
        vocabulary = InfoMetricFamily("kindcast_ontology_version", "The vocabulary in force", {"version": version})
        registry.register(_Collected([vocabulary]))
        return generate_latest(self._registry) + generate_latest(registry)


class Stored(NamedTuple):
    """What the metrics take from the database. `shards` maps each shard to the events and seconds by which it is
    behind."""

    totals: Totals
    subscriptions: Mapping[str, int]
    flagged: int
    shards: Mapping[int, tuple[int, float]]


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


def _stored(stored: Stored) -> Iterator[Metric]:
    """Yields the metrics from the store. accepted = matched + unmatched; matches = delivered + pending + dead +
    discarded; parked = its results + waiting."""
    totals = stored.totals
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
        by_status.add_metric([status], stored.subscriptions.get(status, 0))
    yield by_status
    yield GaugeMetricFamily(
        "kindcast_subscriptions_flagged",
        "Subscriptions that use something removed from the vocabulary",
        value=stored.flagged,
    )
    if stored.shards:
        yield from _of_shards(stored.shards)


# ── the measurements of one day ──────────────────────────────────────────────────────────────────────────────────────

STEP_SECONDS = 30.0
KEPT = 2_880
"""The number of samples of one day."""

SERIES: Final[dict[str, str]] = {
    "events_per_second": "events accepted a second",
    "matches_per_second": "matches a second",
    "deliveries_per_second": "matches acknowledged, or accepted by a sink, a second",
    "failures_per_second": "failed attempts to deliver a second",
    "match_seconds": "mean seconds to read and match an event",
    "match_p99_seconds": "99 of 100 events were read and matched in less (upper end of the bucket)",
    "commit_seconds": "mean seconds of a commit",
    "matches_pending": "matches not yet delivered",
    "webhook_lag_seconds": "age of the oldest event that waits for a webhook or broker",
    "dead_letters": "matches that wait for a disabled webhook or broker",
    "queue_waiting": "commands that wait for the broker",
    "subscriptions": "active subscriptions",
    "index_bytes": "bytes of index and caches",
    "index_segments": "segments of the index",
    "index_clusters": "clusters of the segments",
    "index_segment_rows": "clauses in segments",
    "index_memtable_rows": "clauses in memtables, not yet in a segment",
    "memory_bytes": "largest memory of the process so far, in bytes",
    "database_bytes": "bytes of the database file",
}
"""Name → description. An unknown value is null."""
ENCODED = 8
"""The number of different answers that are kept until the next sample. All pages of the console request the same."""
SHARED = ("memory_bytes",)
"""The series of the whole process."""

MOST_OPERATORS = 20
"""The number of most frequently called operators whose cost and selectivity are kept."""

_log = logging.getLogger(__name__)


class History:
    """The measurements of one application. For its event loop."""

    def __init__(self, broker: "Broker", late_matching: "LateMatchingService") -> None:
        self._broker = broker
        self._late_matching = late_matching
        self._times: array[float] = array("d")
        self._rings: dict[str, array[float]] = {name: array("d") for name in SERIES}
        self._operators: dict[str, tuple[array[float], array[float]]] = {}
        self._before: tuple[float, Totals, Mapping[str, float]] | None = None
        self._encoded: dict[tuple[int, bool, bool], bytes] = {}

    async def run(self) -> None:
        """Takes a sample every 30 seconds until it is cancelled."""
        while True:
            try:
                await self.sample()
            except ServerError as error:
                _log.warning("the measurements of the last day lack a sample: %s", error)
            except Exception:  # the next one may succeed
                _log.exception("the measurements of the last day lack a sample")
            await asyncio.sleep(STEP_SECONDS)

    async def sample(self) -> None:
        """Takes a sample now. Raises `StoreUnavailable`."""

        def read(connection: Connection) -> tuple[Totals, dict[str, int], float | None]:
            totals = read_totals(connection)
            return totals, count_by_status(connection), webhooks_wait_since(connection) if totals.pending else None

        totals, subscriptions, waits_since = await self._broker.read(read)
        index_bytes = await self._broker.index_bytes()
        structure = await self._broker.index_structure()
        learned = await self._learned()
        now, counted = CLOCK.now(), self._broker.metrics.counted()
        values: dict[str, float | None] = {
            "matches_pending": totals.pending,
            "webhook_lag_seconds": 0.0 if waits_since is None else max(0.0, now - waits_since),
            "dead_letters": totals.dead,
            "queue_waiting": self._broker.waiting,
            "subscriptions": subscriptions.get("active", 0),
            "index_bytes": index_bytes,
            "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1 if sys.platform == "darwin" else 1024),
            "database_bytes": _database_bytes(self._broker),
            **{f"index_{name}": count for name, count in structure.items()},
        }
        if self._before is not None and now > self._before[0]:
            values |= _rates(now - self._before[0], self._before[1], totals, self._before[2], counted)
        self._before = now, totals, counted
        unknown = [float("nan")] * len(self._times)
        self._operators = {
            name: self._operators.get(name) or (array("d", unknown), array("d", unknown)) for name in learned
        }
        self._times.append(now)
        for name, ring in self._rings.items():
            value = values.get(name)
            ring.append(float("nan") if value is None else value)
        for name, rings in self._operators.items():
            for ring, value in zip(rings, learned[name], strict=True):
                ring.append(value)
        for ring in (self._times, *self._rings.values(), *(each for pair in self._operators.values() for each in pair)):
            del ring[:-KEPT]
        self._encoded.clear()

    async def _learned(self) -> dict[str, tuple[float, float]]:
        """Returns cost and selectivity of the most frequently called operators, and of those that were among them
        before."""
        matchers = self._late_matching.late_matchers
        records = await matchers.run(lambda: dict(matchers.experience.operators))
        known = self._broker.state.operators.entries
        called = sorted((each for each in records if each in known), key=lambda each: -records[each].evaluations)
        shown = list(dict.fromkeys([*(each for each in called if each in self._operators), *called]))[:MOST_OPERATORS]
        declared = {name: known[name].operator for name in shown}
        return {
            name: (records[name].cost(each.cost), records[name].selectivity(each.selectivity))
            for name, each in declared.items()
        }

    def encoded(self, points: int, *, whole_process: bool, operators: bool) -> bytes:
        """Returns the result of `as_json` encoded. It is encoded once for all equal requests between two samples."""
        key = points, whole_process, operators
        if key not in self._encoded:
            if len(self._encoded) >= ENCODED:
                self._encoded.clear()
            told = self.as_json(points, whole_process=whole_process, operators=operators)
            self._encoded[key] = msgspec.json.encode(told)
        return self._encoded[key]

    def as_json(self, points: int, *, whole_process: bool, operators: bool) -> dict[str, Any]:
        """Returns at most `points` samples, evenly spread and including the newest. Without `whole_process`, values
        that several tenants share are left out; without `operators`, what was learned about operators."""
        count = len(self._times)
        every = max(1, -(-count // points))
        places = range((count - 1) % every, count, every)
        return {
            "step_seconds": STEP_SECONDS * every,
            "times": [round(self._times[each], 3) for each in places],
            "series": {
                name: {
                    "description": SERIES[name],
                    "values": [_known(ring[each]) if whole_process or name not in SHARED else None for each in places],
                }
                for name, ring in self._rings.items()
            },
            "operators": {
                name: {
                    "cost": [_known(cost[each]) for each in places],
                    "selectivity": [_known(selectivity[each]) for each in places],
                }
                for name, (cost, selectivity) in sorted(self._operators.items() if operators else ())
            },
        }


@asynccontextmanager
async def running_history(broker: "Broker", late_matching: "LateMatchingService") -> AsyncIterator[History]:
    """A context manager that takes samples while its block runs."""
    history = History(broker, late_matching)
    sampling = asyncio.create_task(history.run(), name="history")
    try:
        yield history
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)


def _rates(
    seconds: float, was: Totals, totals: Totals, counted_before: Mapping[str, float], counted: Mapping[str, float]
) -> dict[str, float | None]:
    gone = {name: value - counted_before.get(name, 0.0) for name, value in counted.items()}
    return {
        "events_per_second": (totals.accepted - was.accepted) / seconds,
        "matches_per_second": (totals.matches - was.matches) / seconds,
        "deliveries_per_second": (totals.delivered - was.delivered) / seconds,
        "failures_per_second": (totals.attempts_failed - was.attempts_failed) / seconds,
        "match_seconds": _mean(gone["match_sum"], gone["match_count"]),
        "match_p99_seconds": _p99({name: value for name, value in gone.items() if name.startswith("match_le_")}),
        "commit_seconds": _mean(gone["commit_sum"], gone["commit_count"]),
    }


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None


def _p99(buckets: Mapping[str, float]) -> float | None:
    """Returns the upper bound of the bucket with the 99th percentile; None if nothing was observed or the percentile is
    above all bounds."""
    bounds = sorted((float(name.removeprefix("match_le_")), value) for name, value in buckets.items())
    total = bounds[-1][1] if bounds else 0.0
    found = next((bound for bound, value in bounds if total and value >= 0.99 * total), None)
    return None if found is None or found == float("inf") else found


def _known(value: float) -> float | None:
    return None if value != value else value


def _database_bytes(broker: "Broker") -> int | None:
    """Returns the size of a SQLite file; None for another database."""
    url = make_url(broker.settings.database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    path = Path(url.database)
    return path.stat().st_size if path.exists() else None
