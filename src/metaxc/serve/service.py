"""The catalog behind its request queues: reads that encode texts (search, represent, preview), writes, and cheap reads,
which thus never wait for an encoder.

Large requests are cut into slices, between which others have their turn (`metaxc.serve.request_queue`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

from fastapi import Request

from metaxc.catalog import Catalog, CatalogError
from metaxc.catalog.records import CatalogSummary, Preview
from metaxc.catalog.vector_rules import validate_embedding
from metaxc.serve.api_types import (
    ModelStatus,
    PreviewRequest,
    RepresentRequest,
    RepresentResponse,
    SearchRequest,
    SearchResponse,
    SwitchRequest,
)
from metaxc.serve.callers import identify_caller
from metaxc.serve.http_errors import NotReadyError
from metaxc.serve.middleware import QueueName, RoutePolicy
from metaxc.serve.model_switcher import ModelFolders, ModelSwitcher
from metaxc.serve.model_watcher import ModelWatcher
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import ONE_SLICE, QueuedRequest, RequestQueue
from metaxc.serve.search_batcher import SearchBatcher
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.served_catalog import ServedCatalog
from metaxc.serve.vector_types import given_text, vectors_among
from metaxc.serve.work_slices import Cutter, Slice, most_tokens
from metaxc.serve.write_batcher import RunInTurn, WriteBatcher, WriteOperation, texts_to_encode, vectors_of

log = logging.getLogger("metaxc.serve")
REOPEN_SECONDS = 5.0  # between two attempts to open a catalog that another process has migrated or restored
Result = TypeVar("Result")


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
        models: ModelFolders | None = None,
        on_switched: Callable[[], None] = lambda: None,
    ):
        self.settings, self._source, self._on_ready, self._on_failure = settings, source, on_ready, on_failure
        self._reopen_catalog, self._stopping = reopen or reopen_with_same_model, asyncio.Event()
        self.state: Literal["opening", "ready", "closing"] = "opening"
        self.queues: dict[str, RequestQueue[Any, Any]] = {}
        self.metrics = Metrics(self._summarize, lambda: self.queues)
        self._models, self._on_switched = models, on_switched
        self._served: ServedCatalog | None = None
        self._switcher: ModelSwitcher | None = None
        self._watcher: ModelWatcher | None = None
        self._cutter: Cutter | None = None
        self._opening: asyncio.Task[None] | None = None

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

    @property
    def _catalog(self) -> Catalog | None:
        """The catalog that is served; None before it is open."""
        return None if self._served is None else self._served.catalog

    async def _close_catalog(self) -> None:
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.stop)
        if self._switcher is not None:
            await asyncio.to_thread(self._switcher.stop)
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
        limits: dict[str, Any] = {"max_waiting": settings.max_waiting, "max_wait": settings.max_wait}
        batched = {"batch_size": settings.slice_tokens, **limits}
        served = ServedCatalog(catalog)
        search = SearchBatcher(served, self.metrics, settings.recall_sample_rate)
        write: RequestQueue[WriteOperation, Any] = RequestQueue(
            "write", WriteBatcher(served, self.metrics), **batched
        )
        queues: list[RequestQueue[Any, Any]] = [
            RequestQueue("search", search, **batched),
            write,
            RequestQueue("read", self._read, threads=settings.read_threads, **limits),
            search.sample_queue,
        ]
        self._use_model(catalog)
        self.queues = {queue.name: queue for queue in queues}
        self._served = served
        self._switcher = ModelSwitcher(
            served,
            self.settings.switch,
            self._models,
            lambda function: write.put(RunInTurn(function)).result.result(),
            self._use_switched,
            self._on_switched,
            self.metrics.observe_switch,
        )
        self.state = "ready"
        if self._models is not None and self._models.watched is not None and not catalog.read_only:
            begin = self._switcher.start
            self._watcher = ModelWatcher(
                self._models.watched,
                lambda folder: write.put(
                    RunInTurn(partial(begin, SwitchRequest(model=str(folder))))
                ).result.result(),
                self._switcher.find_known_folders,
            )
            self._watcher.start()

    def _use_model(self, catalog: Catalog) -> None:
        """Cut requests as the catalog's encoder reads texts."""
        settings = self.settings.queues
        text_tokens = most_tokens(catalog.model.encoder)
        self._cutter = Cutter(settings.slice_tokens, settings.slice_texts, text_tokens)

    def _use_switched(self, catalog: Catalog) -> None:
        self._use_model(catalog)
        self.metrics.recall.clear()

    def check_capacity(self, queue: QueueName, client: Hashable = None) -> None:
        """Raise `NotReadyError` unless the catalog is open, and `BusyError` when the queue is full or a request of this
        client would wait too long."""
        if not self.ready:
            raise NotReadyError(f"The service is {self.state}", fix="retry when /readyz returns 200")
        self.queues[queue].check_capacity(client)

    async def search(self, request: Request, search: SearchRequest) -> SearchResponse:
        """Search, in the queue of the request's route."""
        self._check_vectors(vectors_among(search.queries), "query vector", may_be_final=True)
        response: SearchResponse = await self._submit(
            request, search, lambda cutter: cutter.cut(list(map(given_text, search.queries)))
        )
        return response

    async def represent(self, request: Request, represent: RepresentRequest) -> RepresentResponse:
        """Make vectors of items and queries, in the queue of the request's route."""
        self._check_vectors(vectors_among(represent.texts), "item vector")
        self._check_vectors(vectors_among(represent.queries), "query vector", may_be_final=True)
        response: RepresentResponse = await self._submit(
            request, represent, lambda cutter: cutter.cut(list(map(given_text, represent.given)))
        )
        return response

    async def preview(self, request: Request, preview: PreviewRequest) -> Preview:
        """Preview a new item, in the queue of the request's route."""
        response: Preview = await self._submit(
            request, preview, lambda cutter: cutter.cut_before(preview.revealed, [preview.text])
        )
        return response

    def _check_vectors(
        self, given: Iterable[Sequence[float]], what: str, *, may_be_final: bool = False
    ) -> None:
        """Raise where a vector does not fit the model, before it is in a batch with the requests of others."""
        if self._catalog is None:
            return  # the queue refuses the request
        dim = self._catalog.model.encoder.dim
        for vector in given:
            if not (may_be_final and len(vector) == dim + 1):
                validate_embedding(vector, dim, what)

    async def write(self, request: Request, operation: WriteOperation) -> Any:
        """Change the catalog, in the queue of the request's route."""
        self._check_vectors(vectors_of(operation), "vector")
        texts = texts_to_encode(operation)
        return await self._submit(
            request, operation, lambda cutter: cutter.cut_before(texts, last_weight=len(texts))
        )

    async def switch_model(self, request: Request, switch: SwitchRequest) -> ModelStatus:
        """Begin to switch to another model, in the queue of the request's route."""
        assert self._switcher is not None
        start = partial(self._switcher.start, switch)
        status: ModelStatus = await self._submit(request, RunInTurn(start), lambda cutter: ONE_SLICE)
        return status

    async def model_status(self, request: Request) -> ModelStatus:
        """Which model is served, and how far a switch is."""
        assert self._switcher is not None
        status = self._switcher.status
        return await self.read(request, lambda catalog: status())

    async def read(self, request: Request, function: Callable[[Catalog], Result]) -> Result:
        """Call a function that encodes nothing with the catalog, in the queue of the request's route."""
        result: Result = await self._submit(request, function, lambda cutter: ONE_SLICE)
        return result

    async def _submit(self, request: Request, payload: Any, cut: Callable[[Cutter], Sequence[Slice]]) -> Any:
        policy: RoutePolicy = request.scope["route_policy"]
        assert policy.queue is not None
        caller = identify_caller(request.scope, self.settings.tokens)
        # Again: much may have happened while the body was read.
        self.check_capacity(policy.queue, caller.client)
        assert self._cutter is not None
        disconnected = asyncio.create_task(_wait_for_disconnect(request))
        try:
            return await self.queues[policy.queue].submit(
                payload,
                cut(self._cutter),
                caller=caller,
                timeout=self.settings.limits.timeout,
                disconnected=disconnected,
            )
        finally:
            disconnected.cancel()

    def _read(self, batch: Sequence[QueuedRequest[Callable[[Catalog], Any], Any]]) -> list[Any]:
        assert self._served is not None
        results = []
        for request in batch:
            self.metrics.observe_stage("queue", request.wait_seconds or 0.0)
            started = time.perf_counter()
            with self._served.use() as catalog:
                results.append(request.payload(catalog))
            self.metrics.observe_stage("read", time.perf_counter() - started)
        return results

    def _summarize(self) -> CatalogSummary | None:
        with suppress(CatalogError):  # closed or replaced by another process at this moment
            if self._served is not None and self.state == "ready":
                with self._served.use() as catalog:
                    return catalog.about()
        return None


def reopen_with_same_model(old: Catalog) -> Catalog:
    """The catalog that has taken the place of another, if it has the same model."""
    return Catalog.open(old.folder.path, old.model, read_only=True)


def _is_current(catalog: Catalog) -> bool:
    try:
        return catalog.is_current
    except (CatalogError, OSError):
        return False


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
