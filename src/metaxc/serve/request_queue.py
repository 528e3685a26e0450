"""Fair, bounded queues that batch concurrent requests.

A worker thread takes the slices whose turn it is, up to a batch, and handles them in one call; when nothing else waits,
a request is handled at once. Clients take turns, and so do the requests of one client: a large request is cut into
slices (`metaxc.serve.work_slices`) and goes to the end of the line after each, so that it delays any other request by
one slice.

A request is accepted only if it is predicted to begin soon and to end before its deadline; otherwise it is refused at
once, while the client can still go elsewhere. A request whose client has disconnected or whose deadline has passed is
dropped with all slices that it has left. The last slice, which is the one that writes, is completed and answered once
begun, so that no client has to guess whether a write happened.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from metaxc.serve.http_errors import BusyError, NotReadyError
from metaxc.serve.service_time import ServiceTime
from metaxc.serve.work_slices import Slice

Payload = TypeVar("Payload")
Result = TypeVar("Result")
ONE_SLICE = (Slice(),)
CAUTION = 1.25
"""A wait counts as this many times as long as predicted when it is decided whether it is too long: on a busy machine
one request in a hundred waits a third longer than predicted."""


@dataclass(frozen=True)
class Caller:
    """Who sends a request, and until when an answer is of use.

    Args:
        client: Clients take turns by this.
        deadline: In seconds of `time.perf_counter`.
    """

    client: Hashable = None
    deadline: float = math.inf


ANYBODY = Caller()


@dataclass(eq=False)
class QueuedRequest(Generic[Payload, Result]):
    """One request in a queue.

    Args:
        payload: What to do.
        slices: Its work, one slice at least.
        caller: Who sends it.
        parts: What the handler has returned for the slices before the present one.
        queued_at: When it was queued, in seconds of `time.perf_counter`.
        wait_seconds: Seconds from then until its work began.
        result: Its result or exception.
    """

    payload: Payload
    slices: Sequence[Slice] = ONE_SLICE
    caller: Caller = ANYBODY
    parts: list[Any] = field(default_factory=list)
    queued_at: float = field(default_factory=time.perf_counter)
    wait_seconds: float | None = None
    result: Future[Result] = field(default_factory=Future)

    @property
    def slice(self) -> Slice:
        """The slice that is handled now or next."""
        return self.slices[len(self.parts)]

    @property
    def is_first(self) -> bool:
        """Whether nothing of it has been handled."""
        return not self.parts

    @property
    def is_last(self) -> bool:
        """Whether nothing follows the present slice: what the handler returns is the result."""
        return len(self.parts) == len(self.slices) - 1

    @property
    def weight_left(self) -> int:
        """The weight of the slices that are not handled yet."""
        return sum(one.weight for one in self.slices[len(self.parts) :])

    def begin_slice(self, now: float) -> bool:
        """Whether the present slice is to be handled; a request without a waiting client is not."""
        if self.result.cancelled():
            return False
        if now > self.caller.deadline:
            self.fail(_deadline_error("The deadline of the request has passed in the queue"))
            return False
        if self.is_last and not self.result.set_running_or_notify_cancel():
            return False
        if self.wait_seconds is None:
            self.wait_seconds = now - self.queued_at
        return True

    def fail(self, error: Exception) -> None:
        """End with an error, unless the client has gone."""
        if self.result.running() or self.result.set_running_or_notify_cancel():
            self.result.set_exception(error)


BatchHandler = Callable[[Sequence[QueuedRequest[Payload, Result]]], Sequence[Any]]
"""Handles the present slice of each request of a batch: one value per request, in order. For a last slice it is the
result, before it a part that the handler finds in `parts` later; an exception fails its own request only."""


class RequestQueue(Generic[Payload, Result]):
    """A bounded queue with worker threads that handle waiting requests in batches.

    Args:
        name: Name in threads and errors.
        handler: Handles a batch.
        max_waiting: Requests in the queue; one more is rejected.
        max_wait: Seconds within which an accepted request is predicted to begin.
        batch_size: Sum of weights per batch; a slice that weighs more is handled alone.
        threads: Worker threads.
    """

    def __init__(
        self,
        name: str,
        handler: BatchHandler[Payload, Result],
        *,
        max_waiting: int,
        max_wait: float = math.inf,
        batch_size: int = 1,
        threads: int = 1,
    ):
        self.name, self.max_waiting, self.max_wait, self.batch_size = name, max_waiting, max_wait, batch_size
        self.service_time = ServiceTime()
        self._handler = handler
        self._lines: OrderedDict[Hashable, deque[QueuedRequest[Payload, Result]]] = OrderedDict()
        self._ends: dict[int, float] = {}  # by thread: when the batch that it handles is predicted to end
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
        with self._changed:
            return sum(map(len, self._lines.values()))

    def put(
        self, payload: Payload, slices: Sequence[Slice] = ONE_SLICE, caller: Caller = ANYBODY
    ) -> QueuedRequest[Payload, Result]:
        """Queue a request. Raises `BusyError` when it would have to wait too long, `NotReadyError` when it cannot be
        answered before its deadline."""
        request: QueuedRequest[Payload, Result] = QueuedRequest(payload, slices, caller)
        with self._changed:
            if self._closing:
                raise NotReadyError("The service is closing", fix="retry when it is running again")
            self.check_capacity(caller.client)
            self._check_deadline(request)
            self._enqueue(request)
        return request

    def check_capacity(self, client: Hashable = None) -> None:
        """Raise `BusyError` when the queue is full or a request of this client would wait too long, so that it can be
        rejected before its body is read."""
        with self._changed:
            waiting = len(self)
            if waiting >= self.max_waiting:
                self._drop_cancelled()
                waiting = len(self)
            if waiting >= self.max_waiting:
                raise BusyError(
                    "Too many requests are waiting",
                    got=f"{waiting} in the {self.name} queue",
                    expected=f"at most {self.max_waiting}",
                    fix="retry after Retry-After seconds, or send fewer requests",
                )
            seconds = CAUTION * self.predict_start(client)
            if seconds > self.max_wait:
                raise BusyError(
                    "The service is too busy to begin the request soon",
                    got=f"a wait of {seconds:.1f} seconds in the {self.name} queue",
                    expected=f"at most {self.max_wait:g}",
                    fix="retry after Retry-After seconds, or send fewer requests",
                    retry_after=seconds - self.max_wait,
                )

    def predict_start(self, client: Hashable = None) -> float:
        """Seconds until a new request of this client is predicted to begin."""
        with self._changed:
            own = len(self._lines.get(client, ()))
            ahead = [  # until its turn, each other client has as many turns as the client itself, and one more
                request.slice.weight
                for other, line in self._lines.items()
                for request in islice(line, own if other == client else own + 1)
                if not request.result.cancelled()
            ]
            return self._predict_wait(sum(ahead), len(ahead))

    def _predict_wait(self, tokens: int, slices: int) -> float:
        """Seconds until the batches under way have ended, and so much work that waits."""
        now = time.perf_counter()
        under_way = [max(end - now, 0.0) for end in self._ends.values()]
        if not slices and len(under_way) < len(self._threads):
            return 0.0
        batches = min(math.ceil(tokens / self.batch_size), slices)
        return (sum(under_way) + self.service_time.predict(tokens, batches)) / len(self._threads)

    def _check_deadline(self, request: QueuedRequest[Payload, Result]) -> None:
        """Raise `NotReadyError` when a request with a deadline is predicted to miss it."""
        left = request.caller.deadline - time.perf_counter()
        if left == math.inf:
            return
        turns = len(request.slices)
        others = sum(
            min(other.weight_left, turns * other.slice.weight)
            for line in self._lines.values()
            for other in line
        )
        weight = others + request.weight_left
        seconds = self._predict_wait(weight, max(turns, math.ceil(weight / self.batch_size)))
        if seconds > left:
            raise _deadline_error(
                "The request cannot be answered before its deadline",
                got=f"{max(left, 0):.2f} seconds left, {seconds:.2f} needed",
                retry_after=seconds - left,
            )

    async def submit(
        self,
        payload: Payload,
        slices: Sequence[Slice] = ONE_SLICE,
        *,
        caller: Caller = ANYBODY,
        timeout: float,
        disconnected: asyncio.Task[None] | None = None,
    ) -> Result:
        """Queue a request and wait for its result. If its work does not begin within `timeout` seconds, or its
        deadline passes or the client has `disconnected` before its last slice, it is dropped with a `NotReadyError`."""
        request = self.put(payload, slices, caller)
        result = asyncio.wrap_future(request.result)
        events = {result} | ({disconnected} if disconnected else set())
        try:
            begin_by = min(request.queued_at + timeout, caller.deadline)
            await _wait_until(events, begin_by)
            if disconnected is None or not disconnected.done():
                has_begun = request.wait_seconds is not None
                if not result.done() and has_begun and time.perf_counter() < caller.deadline:
                    await _wait_until(events, caller.deadline)
            if not result.done() and request.result.cancel():
                raise NotReadyError(
                    "The request timed out in the queue",
                    got=f"{time.perf_counter() - request.queued_at:.3g} seconds in the {self.name} queue",
                    fix="nothing was changed: retry, or send fewer requests",
                )
            return await result
        finally:
            result.cancel()  # when this coroutine was cancelled: drops the request unless its last slice has begun

    def close(self) -> None:
        """Reject new requests, finish the waiting ones, end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._take_batch():
            started = time.perf_counter()
            batch = [request for request in batch if request.begin_slice(started)]
            if not batch:
                continue
            weight = sum(request.slice.weight for request in batch)
            with self._changed:
                self._ends[threading.get_ident()] = started + self.service_time.predict(weight)
            self._handle(batch)
            with self._changed:
                del self._ends[threading.get_ident()]
                self.service_time.observe(weight, time.perf_counter() - started)

    def _take_batch(self) -> list[QueuedRequest[Payload, Result]]:
        """The slices whose turn it is, up to a batch; empty when the queue is closed and empty."""
        with self._changed:
            while not self._lines and not self._closing:
                self._changed.wait()
            batch: list[QueuedRequest[Payload, Result]] = []
            weight = 0
            while self._lines:
                client, line = next(iter(self._lines.items()))
                if batch and weight + line[0].slice.weight > self.batch_size:
                    break
                request = line.popleft()
                if line:
                    self._lines.move_to_end(client)
                else:
                    del self._lines[client]
                batch.append(request)
                weight += request.slice.weight
            return batch

    def _enqueue(self, request: QueuedRequest[Payload, Result]) -> None:
        with self._changed:
            self._lines.setdefault(request.caller.client, deque()).append(request)
            self._changed.notify()

    def _drop_cancelled(self) -> None:
        for client, line in list(self._lines.items()):
            kept = deque(request for request in line if not request.result.cancelled())
            if kept:
                self._lines[client] = kept
            else:
                del self._lines[client]

    def _handle(self, batch: list[QueuedRequest[Payload, Result]]) -> None:
        try:
            values = self._handler(batch)
        except Exception as error:
            values = [error] * len(batch)
        for request, value in zip(batch, values, strict=True):
            if isinstance(value, Exception):
                request.fail(value)
            elif request.is_last:
                request.result.set_result(value)
            else:
                request.parts.append(value)
                self._enqueue(request)


def run_with_fallback(
    handler: BatchHandler[Payload, Result], batch: Sequence[QueuedRequest[Payload, Result]]
) -> Sequence[Any]:
    """Handle a batch in one call; if that fails, one request at a time, so that only the faulty ones fail."""
    try:
        return handler(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
    values: list[Any] = []
    for request in batch:
        try:
            values.extend(handler([request]))
        except Exception as error:
            values.append(error)
    return values


async def _wait_until(events: Iterable[asyncio.Future[Any]], moment: float) -> None:
    """Wait for the first of some events, at most until a moment of `time.perf_counter`."""
    timeout = None if moment == math.inf else max(moment - time.perf_counter(), 0.0)
    await asyncio.wait(set(events), timeout=timeout, return_when="FIRST_COMPLETED")


def _deadline_error(what: str, got: str | None = None, retry_after: float = 1.0) -> NotReadyError:
    return NotReadyError(
        what,
        got=got,
        expected="an answer within the seconds of the header Prefer: wait=SECONDS",
        fix="nothing was changed: retry later, send fewer texts, or wait longer",
        retry_after=retry_after,
    )
