"""The metrics of the service for Prometheus: seconds per stage, requests by status, queue lengths, and the recall of
the index against exact search.

Each app has its own registry, so that two apps in one process do not mix.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from metaxc.catalog.records import CatalogSummary

Stage = Literal["queue", "encode", "search", "write", "read"]
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
RECALL_WINDOW = (
    500  # queries: the standard error of the mean recall is below 1 % when the recall is above 0.95
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
OTHER = "other"  # the label of every method and path that clients make up
OUTCOMES = ("switched", "failed")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class SampledRecall:
    """The recall of the index against exact search, over the last sampled queries; NaN before the first."""

    def __init__(self) -> None:
        self._recalls: deque[float] = deque(maxlen=RECALL_WINDOW)
        self._lock = threading.Lock()

    def record(self, recalls: Iterable[float]) -> None:
        """Add the recalls of sampled queries, each between 0 and 1."""
        with self._lock:
            self._recalls.extend(recalls)

    def clear(self) -> None:
        """Forget them: another index answers from now on."""
        with self._lock:
            self._recalls.clear()

    @property
    def mean(self) -> float:
        """The mean over the window."""
        with self._lock:
            return sum(self._recalls) / len(self._recalls) if self._recalls else math.nan

    def __len__(self) -> int:
        """Queries in the window."""
        return len(self._recalls)


class Metrics:
    """The metrics of one service. The catalog's summary (None while it is not open) and the queues by name are asked
    for at each scrape."""

    def __init__(
        self, summarize: Callable[[], CatalogSummary | None], queues: Callable[[], Mapping[str, Sized]]
    ):
        self._summarize, self._queues = summarize, queues
        self.registry = CollectorRegistry()
        self.stages = Histogram(
            "metaxc_stage_seconds",
            "Seconds per stage: queue is per request, the others are per batch",
            ["stage"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.requests = Counter(
            "metaxc_requests", "Completed requests", ["method", "route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "metaxc_request_seconds",
            "Seconds from request to response",
            ["route"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.switches = Counter(
            "metaxc_model_switches", "Switches to another model", ["outcome"], registry=self.registry
        )
        for outcome in OUTCOMES:  # from the start, so that the first one is an increase
            self.switches.labels(outcome)
        self.recall = SampledRecall()
        self.registry.register(self)

    def observe_stage(self, stage: Stage, seconds: float) -> None:
        """Record the duration of one stage."""
        self.stages.labels(stage).observe(seconds)

    def observe_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Record one completed request. A series is kept for ever, so labels are a closed set: `route` is the template
        of a declared route, None for any other path, and unknown methods share one label."""
        known = method if method in METHODS else OTHER
        self.requests.labels(known, route or OTHER, str(status)).inc()
        self.latency.labels(route or OTHER).observe(seconds)

    def observe_switch(self, outcome: str) -> None:
        """Record how a switch to another model has ended: one of `OUTCOMES`."""
        self.switches.labels(outcome).inc()

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def describe(self) -> Iterator[Metric]:
        """No gauges: they need an open catalog, and the registry asks before it is open."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The gauges at this moment; called by the registry at each scrape."""
        depth = GaugeMetricFamily("metaxc_queue_depth", "Waiting requests by queue", labels=["lane"])
        for name, queue in self._queues().items():
            depth.add_metric([name], len(queue))
        yield depth
        recall = self.recall
        yield GaugeMetricFamily("metaxc_index_recall", "Recall at 10 against exact search", recall.mean)
        yield GaugeMetricFamily("metaxc_index_recall_queries", "Sampled queries in the recall", len(recall))
        summary = self._summarize()
        if summary is None:
            return
        items = GaugeMetricFamily("metaxc_items", "Items by state", labels=["state"])
        for state, count in summary.items.items():
            items.add_metric([state], count)
        index = GaugeMetricFamily("metaxc_index_info", "The kind of index", labels=["kind"])
        index.add_metric([summary.index], 1)
        model = GaugeMetricFamily("metaxc_model_info", "The model that answers", labels=["fingerprint"])
        model.add_metric([summary.model], 1)
        yield items
        yield index
        yield model
        yield GaugeMetricFamily("metaxc_clicks", "Clicks recorded in the catalog", summary.clicks)
        yield GaugeMetricFamily("metaxc_base_items", "Observed items that inform others", summary.base)
        yield GaugeMetricFamily("metaxc_sequence", "Writes since the catalog was created", summary.sequence)
