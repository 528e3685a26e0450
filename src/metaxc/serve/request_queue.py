"""Bounded queues that batch concurrent requests.

A worker thread takes whatever waits at that moment, up to a batch, and handles it in one call; when nothing else waits,
a request is handled at once. A full queue rejects (backpressure). A request whose client disconnected is dropped before
its work begins; once begun, work is completed and answered, so that no client has to guess whether a write happened.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from metaxc.serve.http_errors import BusyError, NotReadyError

Payload = TypeVar("Payload")
Result = TypeVar("Result")


@dataclass(eq=False)
class QueuedRequest(Generic[Payload, Result]):
    """One request in a queue.

    Args:
        payload: What to do.
        weight: How many texts it brings.
        queued_at: When it was queued, in seconds of `time.perf_counter`.
        wait_seconds: Seconds from then until its work began.
        result: Its result or exception.
    """

    payload: Payload
    weight: int = 1
    queued_at: float = field(default_factory=time.perf_counter)
    wait_seconds: float = 0.0
    result: Future[Result] = field(default_factory=Future)


BatchHandler = Callable[[Sequence[QueuedRequest[Payload, Result]]], Sequence[Result | Exception]]
"""Handles a batch: one result per request, in order; an exception in the list fails its own request only."""


class RequestQueue(Generic[Payload, Result]):
    """A bounded queue with worker threads that handle waiting requests in batches.

    Args:
        name: Name in threads and errors.
        handler: Handles a batch.
        max_waiting: Requests in the queue; one more is rejected.
        batch_size: Sum of weights per batch; a request that weighs more is handled alone.
        threads: Worker threads.
    """

    def __init__(
        self,
        name: str,
        handler: BatchHandler[Payload, Result],
        *,
        max_waiting: int,
        batch_size: int = 1,
        threads: int = 1,
    ):
        self.name, self.max_waiting, self.batch_size = name, max_waiting, batch_size
        self._handler = handler
        self._waiting: deque[QueuedRequest[Payload, Result]] = deque()
        self._changed = threading.Condition()  # its lock is reentrant
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"metaxc-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Waiting requests."""
        return len(self._waiting)

    def put(self, payload: Payload, weight: int = 1) -> QueuedRequest[Payload, Result]:
        """Queue a request; raises `BusyError` when the queue is full."""
        request: QueuedRequest[Payload, Result] = QueuedRequest(payload, weight)
        with self._changed:
            if self._closing:
                raise NotReadyError("The service is closing", fix="retry when it is running again")
            self.check_capacity()
            self._waiting.append(request)
            self._changed.notify()
        return request

    def check_capacity(self) -> None:
        """Raise `BusyError` when the queue is full, so that a request can be rejected before its body is read."""
        if len(self._waiting) < self.max_waiting:
            return
        with self._changed:
            self._waiting = deque(request for request in self._waiting if not request.result.cancelled())
            if len(self._waiting) >= self.max_waiting:
                raise BusyError(
                    "Too many requests are waiting",
                    got=f"{len(self._waiting)} in the {self.name} queue",
                    expected=f"at most {self.max_waiting}",
                    fix="retry after Retry-After seconds, or send fewer requests",
                )

    async def submit(
        self,
        payload: Payload,
        *,
        weight: int = 1,
        timeout: float,
        disconnected: asyncio.Task[None] | None = None,
    ) -> Result:
        """Queue a request and wait for its result. If its work does not begin within `timeout` seconds, or before the
        client has `disconnected`, the request is dropped with a `NotReadyError`."""
        request = self.put(payload, weight)
        result = asyncio.wrap_future(request.result)
        try:
            events = {result} | ({disconnected} if disconnected else set())
            await asyncio.wait(events, timeout=timeout, return_when="FIRST_COMPLETED")
            if not result.done() and request.result.cancel():
                raise NotReadyError(
                    "The request timed out in the queue",
                    got=f"{timeout:g} seconds in the {self.name} queue",
                    fix="nothing was changed: retry, or send fewer requests",
                )
            return await result
        finally:
            result.cancel()  # when this coroutine was cancelled: drops the request if it still waits

    def close(self) -> None:
        """Reject new requests, finish the waiting ones, end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while taken := self._take_batch():
            started = time.perf_counter()
            batch = [request for request in taken if request.result.set_running_or_notify_cancel()]
            for request in batch:
                request.wait_seconds = started - request.queued_at
            if batch:
                self._handle(batch)

    def _take_batch(self) -> list[QueuedRequest[Payload, Result]]:
        """The waiting requests, up to a batch; empty when the queue is closed and empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            batch: list[QueuedRequest[Payload, Result]] = []
            weight = 0
            while self._waiting and (not batch or weight + self._waiting[0].weight <= self.batch_size):
                batch.append(self._waiting.popleft())
                weight += batch[-1].weight
            return batch

    def _handle(self, batch: list[QueuedRequest[Payload, Result]]) -> None:
        try:
            results = self._handler(batch)
        except Exception as error:
            results = [error] * len(batch)
        for request, result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                request.result.set_exception(result)
            else:
                request.result.set_result(result)


def run_with_fallback(
    handler: BatchHandler[Payload, Result], batch: Sequence[QueuedRequest[Payload, Result]]
) -> Sequence[Result | Exception]:
    """Handle a batch in one call; if that fails, one request at a time, so that only the faulty ones fail."""
    try:
        return handler(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
    results: list[Result | Exception] = []
    for request in batch:
        try:
            results.extend(handler([request]))
        except Exception as error:
            results.append(error)
    return results
