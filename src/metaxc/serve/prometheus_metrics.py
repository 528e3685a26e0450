"""What a service tells Prometheus: how long each stage takes, what was answered, how full the queues are, and whether
the index still finds what an exact search finds.

Each app has a registry of its own, so that two of them in one process do not mix.
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
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SAMPLES = 500  # the recall gauge speaks of the last so many queries
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The figures of one service.

    Args:
        about: The catalog's own figures, None while it is not open; asked at each scrape.
        lanes: The queues by name, as they are at a scrape.
    """

    def __init__(self, about: Callable[[], CatalogSummary | None], lanes: Callable[[], Mapping[str, Sized]]):
        self.registry = CollectorRegistry()
        self.stages = Histogram(
            "metaxc_stage_seconds",
            "Seconds per stage: waiting in the queue per request, the others per batch",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.requests = Counter(
            "metaxc_requests", "Answered requests", ["method", "route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "metaxc_request_seconds",
            "Seconds from a request to its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.recall = Recall()
        self.registry.register(_AtScrape(about, lanes, self.recall))

    def took(self, stage: Stage, seconds: float) -> None:
        """Count one passage through a stage."""
        self.stages.labels(stage).observe(seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests.labels(method, route, str(status)).inc()
        self.latency.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)


class Recall:
    """The share of exact answers that the index found too, over the last sampled queries; NaN before the first."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=SAMPLES)
        self._lock = threading.Lock()

    def sampled(self, shares: Iterable[float]) -> None:
        """Take in sampled queries' shares, each between 0 and 1."""
        with self._lock:
            self._shares.extend(shares)

    @property
    def value(self) -> float:
        """The mean share."""
        with self._lock:
            return sum(self._shares) / len(self._shares) if self._shares else math.nan

    @property
    def samples(self) -> int:
        """How many queries the mean speaks of."""
        return len(self._shares)


class _AtScrape:
    """Gauges that are looked up when somebody asks."""

    def __init__(
        self,
        about: Callable[[], CatalogSummary | None],
        lanes: Callable[[], Mapping[str, Sized]],
        recall: Recall,
    ):
        self._about, self._lanes, self._recall = about, lanes, recall

    def describe(self) -> Iterator[Metric]:
        """Nothing: the figures need an open catalog."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        queues = GaugeMetricFamily("metaxc_queue_depth", "Requests that wait, by lane", labels=["lane"])
        for name, lane in self._lanes().items():
            queues.add_metric([name], len(lane))
        yield queues
        yield GaugeMetricFamily(
            "metaxc_index_recall", "Of the exact 10 best, the share the index found", self._recall.value
        )
        yield GaugeMetricFamily(
            "metaxc_index_recall_queries", "Sampled queries behind the recall", self._recall.samples
        )
        about = self._about()
        if about is None:
            return
        items = GaugeMetricFamily("metaxc_items", "Items by state", labels=["state"])
        for state, count in about.items.items():
            items.add_metric([state], count)
        yield items
        yield GaugeMetricFamily("metaxc_clicks", "Clicks the catalog has taken", about.clicks)
        yield GaugeMetricFamily("metaxc_base_items", "Observed items that inform others", about.base)
        yield GaugeMetricFamily("metaxc_sequence", "Changes since the beginning", about.sequence)
        index = GaugeMetricFamily("metaxc_index_info", "The kind of index", labels=["kind"])
        index.add_metric([about.index], 1)
        yield index
