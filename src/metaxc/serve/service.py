"""A catalog with its lanes: opened, asked, drained, closed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from fastapi import Request

from metaxc.catalog import Catalog
from metaxc.catalog.records import CatalogSummary
from metaxc.serve.batching import Job, Lane
from metaxc.serve.http_errors import NotReadyError
from metaxc.serve.middleware import only_reads
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.searching import Answered, Search, Searching
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.writing import Add, Change, Writing

log = logging.getLogger("metaxc.serve")
Result = TypeVar("Result")
Reading = Callable[[Catalog], Any]


class Service:
    """What the routes ask.

    Args:
        source: A catalog, or what opens one; it is opened beside, so that probes are answered meanwhile.
        settings: The limits.
        opened: Called when the catalog answers.
        failed: Called with the error where it could not be opened.
    """

    def __init__(
        self,
        source: Catalog | Callable[[], Catalog],
        settings: ServeSettings,
        opened: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda error: None,
    ):
        self.settings, self._source, self._opened, self._failed = settings, source, opened, failed
        self.state: Literal["opening", "ready", "closing"] = "opening"
        self.lanes: dict[str, Lane[Any, Any]] = {}
        self.metrics = Metrics(self._about, lambda: self.lanes)
        self._catalog: Catalog | None = None
        self._opening: asyncio.Task[None] | None = None
        self.model = ""

    async def start(self) -> None:
        """Begin to open; returns at once."""
        if isinstance(self._source, Catalog):
            self._take(self._source)
        else:
            self._opening = asyncio.create_task(self._open(self._source))

    async def stop(self) -> None:
        """Take nothing more, finish what waits, close the catalog."""
        if self._opening is not None:
            await self._opening  # an opening cannot be broken off
        self.state = "closing"
        for lane in self.lanes.values():
            await asyncio.to_thread(lane.close)
        if self._catalog is not None:
            await asyncio.to_thread(self._catalog.close)

    async def _open(self, source: Callable[[], Catalog]) -> None:
        try:
            self._take(await asyncio.to_thread(source))
        except Exception as error:
            self._failed(error)

    def _take(self, catalog: Catalog) -> None:
        searching = Searching(catalog, self.metrics, self.settings.recall_rate)
        most, batch = self.settings.most_queue, self.settings.batch
        self.lanes = {
            "search": Lane("search", searching, most_waiting=most, batch=batch),
            "write": Lane("write", Writing(catalog, self.metrics), most_waiting=most, batch=batch),
            "read": Lane("read", self._read, most_waiting=most, threads=self.settings.readers),
            "sample": searching.sampling,
        }
        self._catalog, self.model = catalog, catalog.about().model
        self.state = "ready"
        self._opened()

    def check_room(self, method: str, path: str) -> None:
        """`BusyError` where a request would find its lane full: refused now, its body need not be read."""
        if path.startswith("/v1/") and self.lanes:
            reads = only_reads(method, path)
            self.lanes["search" if path == "/v1/search" else "read" if reads else "write"].check_room()

    async def search(self, request: Request, asked: Search) -> Answered:
        """The hits of each query."""
        answered: Answered = await self._ask("search", request, asked, len(asked.queries))
        return answered

    async def write(self, request: Request, change: Change) -> Any:
        """What the change is answered with."""
        return await self._ask("write", request, change, len(change.items) if isinstance(change, Add) else 1)

    async def read(self, request: Request, reading: Callable[[Catalog], Result]) -> Result:
        """What a look into the catalog gives."""
        result: Result = await self._ask("read", request, reading, 1)
        return result

    async def _ask(self, lane: str, request: Request, asked: Any, weight: int) -> Any:
        if self.state != "ready":
            raise NotReadyError(f"The service is {self.state}", fix="ask again when /readyz answers 200")
        gone = asyncio.create_task(_gone(request))
        try:
            timeout = self.settings.request_timeout
            return await self.lanes[lane].ask(asked, weight=weight, timeout=timeout, gone=gone)
        finally:
            gone.cancel()

    def _read(self, jobs: Sequence[Job[Reading, Any]]) -> list[Any]:
        assert self._catalog is not None
        answers = []
        for job in jobs:
            self.metrics.took("queue", job.waited)
            started = time.perf_counter()
            answers.append(job.asked(self._catalog))
            self.metrics.took("read", time.perf_counter() - started)
        return answers

    def _about(self) -> CatalogSummary | None:
        return self._catalog.about() if self._catalog is not None and self.state == "ready" else None


async def _gone(request: Request) -> None:
    """Returns when the client has."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
