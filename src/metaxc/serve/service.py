"""The catalog behind its request queues: searches, reads and writes each have one, and each batches its own way.

Waiting searches are encoded in one call and searched in one call per filter. Waiting writes share transactions: an add
costs a disk sync, a hundred that wait together cost one. When a shared call fails, its requests run one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from fastapi import Request

from metaxc.arrays import Floats, Keys
from metaxc.catalog import Catalog, CatalogError
from metaxc.catalog.records import AddResult, CatalogHit, CatalogSummary
from metaxc.serve.api_types import (
    AddRequest,
    ClickRequest,
    QueryHits,
    SearchRequest,
    SearchResponse,
    UpdateRequest,
)
from metaxc.serve.http_errors import BusyError, ForbiddenError, NotReadyError
from metaxc.serve.middleware import QueueName, RoutePolicy
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import QueuedRequest, RequestQueue, run_with_fallback
from metaxc.serve.serve_settings import ServeSettings

log = logging.getLogger("metaxc.serve")
REOPEN_SECONDS = 5.0  # between two attempts to open a catalog that another process has migrated or restored
RECALL_AT = 10
MAX_SAMPLED_QUERIES = 4  # per sampled batch: an exact search of more would slow other searches down
Result = TypeVar("Result")


@dataclass(frozen=True)
class UpdateItem:
    """Change an item."""

    id: str
    changes: UpdateRequest


@dataclass(frozen=True)
class DeleteItem:
    """Delete an item."""

    id: str


@dataclass(frozen=True)
class UndoClick:
    """Undo a click."""

    number: int


WriteOperation = AddRequest | UpdateItem | DeleteItem | ClickRequest | UndoClick
"""Their results: `AddResult`, `Item`, the number of deleted items, `Click`, `Item`."""

QueuedSearches = Sequence[QueuedRequest[SearchRequest, SearchResponse]]
QueuedWrites = Sequence[QueuedRequest[WriteOperation, Any]]
SHARED_TRANSACTION = (AddRequest, DeleteItem, ClickRequest)
"""The catalog applies several of these in one transaction."""


class SearchBatcher:
    """Handles batches of searches. A share of the unfiltered ones, `recall_sample_rate`, is also searched exactly, in
    another thread, to measure the recall of the index."""

    def __init__(self, catalog: Catalog, metrics: Metrics, recall_sample_rate: float):
        self._catalog, self._metrics, self._sample_rate = catalog, metrics, recall_sample_rate
        self._random = random.Random(0)
        self.sample_queue: RequestQueue[Floats, None] = RequestQueue(
            "sample", self._sample_recall, max_waiting=1
        )

    def __call__(self, batch: QueuedSearches) -> Sequence[SearchResponse | Exception]:
        """One response per request."""
        for request in batch:
            self._metrics.observe_stage("queue", request.wait_seconds)
        return run_with_fallback(self._search_together, batch)

    def _search_together(self, batch: QueuedSearches) -> list[SearchResponse | Exception]:
        started = time.perf_counter()
        queries = [query for request in batch for query in request.payload.queries]
        exposures = [request.payload.exposure for request in batch for _ in request.payload.queries]
        vectors = self._catalog.encode(queries, exposures)
        encode_seconds = time.perf_counter() - started
        self._metrics.observe_stage("encode", encode_seconds)
        parts = np.split(vectors, np.cumsum([len(request.payload.queries) for request in batch])[:-1])
        groups: dict[object, list[int]] = {}
        for place, request in enumerate(batch):
            filters = frozenset(request.payload.tags), frozenset(request.payload.states)
            groups.setdefault(filters, []).append(place)
        responses: dict[int, SearchResponse] = {}
        for places in groups.values():
            started = time.perf_counter()
            hits = self._search_group(
                np.concatenate([parts[place] for place in places]), [batch[place].payload for place in places]
            )
            search_seconds = time.perf_counter() - started
            self._metrics.observe_stage("search", search_seconds)
            for place in places:
                search = batch[place].payload
                answers = tuple(QueryHits(query, tuple(next(hits)[: search.k])) for query in search.queries)
                waited = batch[place].wait_seconds
                seconds = {"queue": waited, "encode": encode_seconds, "search": search_seconds}
                responses[place] = SearchResponse(answers, seconds)
        return [responses[place] for place in range(len(batch))]

    def _search_group(self, vectors: Floats, searches: Sequence[SearchRequest]) -> Iterator[list[CatalogHit]]:
        """The hits of each query of searches that share their filters, for the largest k among them."""
        first, k = searches[0], max(search.k for search in searches)
        if not first.tags and not first.states and self._random.random() < self._sample_rate:
            with suppress(BusyError):  # one sample at a time is enough
                self.sample_queue.put(vectors[:MAX_SAMPLED_QUERIES])
        return iter(self._catalog.search(vectors, k, tags=first.tags, states=first.states))

    def _sample_recall(self, batch: Sequence[QueuedRequest[Floats, None]]) -> list[Exception | None]:
        """Search once more, by the index and exactly; a write in between makes the two incomparable."""
        try:
            for request in batch:
                before = self._catalog.sequence
                found, _ = self._catalog.index_search(request.payload, RECALL_AT)
                exact, _ = self._catalog.exact_search(request.payload, RECALL_AT)
                if self._catalog.sequence == before:
                    self._metrics.recall.record(compute_recalls(found, exact))
        except Exception:  # no client waits for a sample, so only the log can report it
            log.exception("Sampling the recall failed")
        return [None] * len(batch)


class WriteBatcher:
    """Handles batches of writes in their order, those that can in a shared transaction."""

    def __init__(self, catalog: Catalog, metrics: Metrics):
        self._catalog, self._metrics = catalog, metrics
        self._read_only = catalog.read_only

    def __call__(self, batch: QueuedWrites) -> Sequence[Any]:
        """One result per request."""
        results: list[Any] = []
        for request in batch:
            self._metrics.observe_stage("queue", request.wait_seconds)
        for group in group_for_transactions(batch):
            started = time.perf_counter()
            results.extend(run_with_fallback(self._write_together, group))
            self._metrics.observe_stage("write", time.perf_counter() - started)
        return results

    def _write_together(self, group: QueuedWrites) -> Sequence[Any]:
        if self._read_only:
            raise ForbiddenError(
                "The catalog is open for reading only",
                expected="a service that may write",
                fix="start it without --read-only, or use the service that writes",
            )
        operations = [request.payload for request in group]
        match operations[0]:
            case AddRequest():
                return self._add([one for one in operations if isinstance(one, AddRequest)])
            case DeleteItem():
                self._catalog.delete([one.id for one in operations if isinstance(one, DeleteItem)])
                return [1] * len(operations)
            case ClickRequest():
                clicks = [(one.item, one.query) for one in operations if isinstance(one, ClickRequest)]
                return self._catalog.clicks(clicks)
            case UpdateItem(id, changes):
                return [self._catalog.update(id, changes.text, changes.tags)]
            case UndoClick(number):
                return [self._catalog.undo(number)]

    def _add(self, adds: Sequence[AddRequest]) -> list[AddResult]:
        """One transaction; what existed before it tells how many items each request added."""
        items = [item.to_new_item() for add in adds for item in add.items]
        if len(adds) == 1:
            return [self._catalog.add(items)]
        existing = [sum(item.id in self._catalog for item in add.items) for add in adds]
        self._catalog.add(items)
        return [AddResult(len(add.items) - known, known) for add, known in zip(adds, existing, strict=True)]


class Service:
    """The catalog and its queues, as the routes use them. A function that opens a catalog runs in another thread, so
    that probes are answered meanwhile; the other arguments are those of `make_app`.

    A reader's catalog may be migrated or restored by another process. From then on nothing is answered from the old
    one: the service is "opening" until it has opened the new one."""

    def __init__(
        self,
        source: Catalog | Callable[[], Catalog],
        settings: ServeSettings,
        on_ready: Callable[[], None],
        on_failure: Callable[[Exception], None],
        reopen: Callable[[Catalog], Catalog] | None = None,
    ):
        self.settings, self._source, self._on_ready, self._on_failure = settings, source, on_ready, on_failure
        self._reopen_catalog, self._stopping = reopen or reopen_with_same_model, asyncio.Event()
        self.state: Literal["opening", "ready", "closing"] = "opening"
        self.queues: dict[str, RequestQueue[Any, Any]] = {}
        self.metrics = Metrics(self._summarize, lambda: self.queues)
        self._catalog: Catalog | None = None
        self._opening: asyncio.Task[None] | None = None
        self.model = ""

    async def start(self) -> None:
        """Begin to open the catalog; returns at once."""
        if isinstance(self._source, Catalog):
            self._start_queues(self._source)
            self._on_ready()
        else:
            self._opening = asyncio.create_task(self._open(self._source))

    async def stop(self) -> None:
        """Reject new requests, finish the waiting ones, close the catalog."""
        self._stopping.set()
        if self._opening is not None:
            await self._opening  # opening cannot be interrupted
        self.state = "closing"
        await self._close_catalog()

    async def _close_catalog(self) -> None:
        for queue in self.queues.values():
            await asyncio.to_thread(queue.close)
        if self._catalog is not None:
            await asyncio.to_thread(self._catalog.close)

    async def _open(self, source: Callable[[], Catalog]) -> None:
        try:
            self._start_queues(await asyncio.to_thread(source))
            self._on_ready()
        except Exception as error:
            self._on_failure(error)

    @property
    def ready(self) -> bool:
        """Whether requests are answered: the catalog is open, and it is still the one in its folder. Where another
        process has replaced it, begins to open the new one; called in the event loop."""
        if self.state == "ready" and self._catalog is not None and not _is_current(self._catalog):
            self.state = "opening"
            self._opening = asyncio.create_task(self._reopen(self._catalog))
        return self.state == "ready"

    async def _reopen(self, old: Catalog) -> None:
        """Open what another process has put in the place of a catalog, as often as it takes."""
        log.warning("Another process has migrated or restored the catalog; opening it again")
        await self._close_catalog()
        while not self._stopping.is_set():
            try:
                self._start_queues(await asyncio.to_thread(self._reopen_catalog, old))
                log.warning("The catalog is open again")
                return
            except Exception as error:  # for example while its files or its model are still being copied
                log.error("The catalog cannot be opened yet: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), REOPEN_SECONDS)

    def _start_queues(self, catalog: Catalog) -> None:
        settings = self.settings.queues
        batched = {"max_waiting": settings.max_waiting, "batch_size": settings.batch_size}
        search = SearchBatcher(catalog, self.metrics, settings.recall_sample_rate)
        queues: list[RequestQueue[Any, Any]] = [
            RequestQueue("search", search, **batched),
            RequestQueue("write", WriteBatcher(catalog, self.metrics), **batched),
            RequestQueue("read", self._read, max_waiting=settings.max_waiting, threads=settings.read_threads),
            search.sample_queue,
        ]
        self.queues = {queue.name: queue for queue in queues}
        self._catalog, self.model = catalog, catalog.about().model
        self.state = "ready"

    def check_capacity(self, queue: QueueName) -> None:
        """Raise `NotReadyError` unless the catalog is open, and `BusyError` when the queue is full."""
        if not self.ready:
            raise NotReadyError(f"The service is {self.state}", fix="retry when /readyz returns 200")
        self.queues[queue].check_capacity()

    async def search(self, request: Request, search: SearchRequest) -> SearchResponse:
        """Search, in the queue of the request's route."""
        response: SearchResponse = await self._submit(request, search, len(search.queries))
        return response

    async def write(self, request: Request, operation: WriteOperation) -> Any:
        """Change the catalog, in the queue of the request's route."""
        weight = len(operation.items) if isinstance(operation, AddRequest) else 1
        return await self._submit(request, operation, weight)

    async def read(self, request: Request, function: Callable[[Catalog], Result]) -> Result:
        """Call a function with the catalog, in the queue of the request's route."""
        result: Result = await self._submit(request, function, 1)
        return result

    async def _submit(self, request: Request, payload: Any, weight: int) -> Any:
        policy: RoutePolicy = request.scope["route_policy"]
        assert policy.queue is not None
        self.check_capacity(policy.queue)  # again: much may have happened while the body was read
        disconnected = asyncio.create_task(_wait_for_disconnect(request))
        try:
            return await self.queues[policy.queue].submit(
                payload, weight=weight, timeout=self.settings.limits.timeout, disconnected=disconnected
            )
        finally:
            disconnected.cancel()

    def _read(self, batch: Sequence[QueuedRequest[Callable[[Catalog], Any], Any]]) -> list[Any]:
        assert self._catalog is not None
        results = []
        for request in batch:
            self.metrics.observe_stage("queue", request.wait_seconds)
            started = time.perf_counter()
            results.append(request.payload(self._catalog))
            self.metrics.observe_stage("read", time.perf_counter() - started)
        return results

    def _summarize(self) -> CatalogSummary | None:
        with suppress(CatalogError):  # closed or replaced by another process at this moment
            return self._catalog.about() if self._catalog is not None and self.state == "ready" else None
        return None


def reopen_with_same_model(old: Catalog) -> Catalog:
    """The catalog that has taken the place of another, if it has the same model."""
    return Catalog.open(old.folder.path, old.model, read_only=True)


def _is_current(catalog: Catalog) -> bool:
    try:
        return catalog.is_current
    except (CatalogError, OSError):
        return False


def compute_recalls(found: Keys, exact: Keys) -> list[float]:
    """The recall of each query with exact results: found and exact are (queries, k), padded with −1."""
    pairs = [
        (set(one.tolist()) - {-1}, set(other.tolist()) - {-1})
        for one, other in zip(found, exact, strict=True)
    ]
    return [len(keys & expected) / len(expected) for keys, expected in pairs if expected]


def group_for_transactions(batch: QueuedWrites) -> Iterator[QueuedWrites]:
    """Split a batch, in its order, into groups that may share a transaction: one kind of operation, and no item added
    or deleted twice."""
    group: list[QueuedRequest[WriteOperation, Any]] = []
    ids: set[str] = set()
    for request in batch:
        operation = request.payload
        match operation:
            case AddRequest():
                own = {item.id for item in operation.items}
            case DeleteItem():
                own = {operation.id}
            case _:
                own = set()
        same_kind = group and type(group[0].payload) is type(operation)
        shares = same_kind and isinstance(operation, SHARED_TRANSACTION) and ids.isdisjoint(own)
        if group and not shares:
            yield group
            group, ids = [], set()
        group.append(request)
        ids.update(own)
    if group:
        yield group


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
