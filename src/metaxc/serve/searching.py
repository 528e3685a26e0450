"""Searches that wait together: encoded in one call, searched per filter in one call, each cut to its own k."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog import Catalog
from metaxc.catalog.records import CatalogHit, State
from metaxc.serve.batching import Job, Lane, each_alone
from metaxc.serve.http_errors import BusyError
from metaxc.serve.prometheus_metrics import Metrics

log = logging.getLogger("metaxc.serve")
RECALL_AT = 10
MOST_SAMPLED = 4  # queries of a sampled batch: an exact search of more would be felt


@dataclass(frozen=True)
class Search:
    """One request's queries, and which items may answer."""

    queries: tuple[str, ...]
    k: int = 10
    tags: tuple[str, ...] = ()
    states: tuple[State, ...] = ()

    @property
    def filters(self) -> tuple[frozenset[str], frozenset[State]]:
        """Requests of the same filters are searched together."""
        return frozenset(self.tags), frozenset(self.states)


@dataclass(frozen=True)
class Answered:
    """Per query its hits; seconds by stage: queue, encode, search."""

    hits: list[list[CatalogHit]]
    seconds: dict[str, float]


SearchJob = Job[Search, Answered]


class Searching:
    """Answers batches of searches.

    Args:
        catalog: What is searched.
        metrics: Told the seconds of each stage.
        recall_rate: Share of batches whose first unfiltered queries are searched exactly too, in a thread beside.
    """

    def __init__(self, catalog: Catalog, metrics: Metrics, recall_rate: float):
        self._catalog, self._metrics, self._rate = catalog, metrics, recall_rate
        self._random = random.Random(0)
        self.sampling: Lane[Floats, None] = Lane("sample recall", self._sample, most_waiting=1)

    def __call__(self, jobs: Sequence[SearchJob]) -> Sequence[Answered | Exception]:
        """Each job's own answer."""
        for job in jobs:
            self._metrics.took("queue", job.waited)
        return each_alone(self._together, jobs)

    def _together(self, jobs: Sequence[SearchJob]) -> list[Answered | Exception]:
        started = time.perf_counter()
        texts = [text for job in jobs for text in job.asked.queries]
        vectors = self._catalog.encode(texts)
        encoded = time.perf_counter() - started
        self._metrics.took("encode", encoded)
        ends = np.cumsum([len(job.asked.queries) for job in jobs])
        rows = [np.arange(end - len(job.asked.queries), end) for job, end in zip(jobs, ends, strict=True)]
        answers: list[Answered | Exception] = [Answered([], {})] * len(jobs)
        groups: dict[object, list[int]] = {}
        for place, job in enumerate(jobs):
            groups.setdefault(job.asked.filters, []).append(place)
        for places in groups.values():
            started = time.perf_counter()
            found = self._search(
                vectors[np.concatenate([rows[place] for place in places])], [jobs[p] for p in places]
            )
            searched = time.perf_counter() - started
            self._metrics.took("search", searched)
            for place in places:
                asked = jobs[place].asked
                hits = [next(found)[: asked.k] for _ in asked.queries]
                seconds = {"queue": jobs[place].waited, "encode": encoded, "search": searched}
                answers[place] = Answered(hits, seconds)
        return answers

    def _search(self, vectors: Floats, jobs: Sequence[SearchJob]) -> Iterator[list[CatalogHit]]:
        first, k = jobs[0].asked, max(job.asked.k for job in jobs)
        if not first.tags and not first.states and self._random.random() < self._rate:
            with suppress(BusyError):  # one sample at a time is enough
                self.sampling.put(vectors[:MOST_SAMPLED])
        return iter(self._catalog.search(vectors, k, tags=first.tags, states=first.states))

    def _sample(self, jobs: Sequence[Job[Floats, None]]) -> list[Exception | None]:
        """Search once more, by the index and exactly; a write in between would make the two incomparable."""
        try:
            for job in jobs:
                before = self._catalog.sequence
                found, _ = self._catalog.index_search(job.asked, RECALL_AT)
                exact, _ = self._catalog.exact_search(job.asked, RECALL_AT)
                if self._catalog.sequence == before:
                    self._metrics.recall.sampled(shares(found, exact))
        except Exception:  # nobody waits for a sample: the log is told
            log.exception("A search could not be repeated exactly")
        return [None] * len(jobs)


def shares(found: Keys, exact: Keys) -> list[float]:
    """Of each query's exact answers, the share that was found; −1 pads both (queries, k)."""
    lines = [
        (set(line.tolist()) - {-1}, set(true.tolist()) - {-1})
        for line, true in zip(found, exact, strict=True)
    ]
    return [len(line & true) / len(true) for line, true in lines if true]
