"""Bounded queues: batches, rejection, timeouts, closing."""

import asyncio
import threading

import pytest

from metaxc.serve.http_errors import BusyError, NotReadyError
from metaxc.serve.request_queue import RequestQueue


class BlockingHandler:
    """Multiplies by ten once it is released, and remembers its batches."""

    def __init__(self):
        self.started, self.released, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, batch):
        self.batches.append([request.payload for request in batch])
        self.started.set()
        assert self.released.wait(30)
        return [request.payload * 10 for request in batch]


@pytest.fixture
def handler():
    return BlockingHandler()


def test_waiting_requests_are_handled_together_up_to_a_batch(handler):
    queue = RequestQueue("count", handler, max_waiting=10, batch_size=3)
    first = queue.put(1)
    assert handler.started.wait(30)
    rest = [queue.put(number) for number in (2, 3, 4, 5)] + [queue.put(6, weight=9), queue.put(7)]
    assert len(queue) == 6
    handler.released.set()
    assert [request.result.result(30) for request in (first, *rest)] == [10, 20, 30, 40, 50, 60, 70]
    assert handler.batches == [[1], [2, 3, 4], [5], [6], [7]]
    queue.close()


def test_a_full_queue_rejects_and_cancelled_requests_free_their_places(handler):
    queue = RequestQueue("count", handler, max_waiting=2)
    queue.put(1)
    assert handler.started.wait(30)
    waiting = [queue.put(2), queue.put(3)]
    with pytest.raises(BusyError, match="2 in the count queue"):
        queue.put(4)
    assert waiting[0].result.cancel()
    late = queue.put(5)
    handler.released.set()
    assert late.result.result(30) == 50
    assert handler.batches == [[1], [3], [5]]
    queue.close()


def test_closing_finishes_waiting_requests_and_rejects_new_ones(handler):
    queue = RequestQueue("count", handler, max_waiting=10)
    requests = [queue.put(number) for number in range(4)]
    handler.released.set()
    queue.close()
    assert [request.result.result(0) for request in requests] == [0, 10, 20, 30]
    with pytest.raises(NotReadyError, match="closing"):
        queue.put(9)


def test_a_request_that_times_out_or_is_abandoned_never_begins(handler):
    queue = RequestQueue("count", handler, max_waiting=10)

    async def submit_requests():
        first = asyncio.create_task(queue.submit(1, timeout=0.01))  # begun: its result comes, however late
        await asyncio.to_thread(handler.started.wait, 30)
        with pytest.raises(NotReadyError, match="nothing was changed"):
            await queue.submit(2, timeout=0.01)
        left = asyncio.create_task(queue.submit(3, timeout=30))
        gone = asyncio.create_task(asyncio.sleep(0))
        with pytest.raises(NotReadyError):
            await queue.submit(4, timeout=30, disconnected=gone)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        handler.released.set()
        return await first

    assert asyncio.run(submit_requests()) == 10
    queue.close()
    assert handler.batches == [[1]]


def test_a_failed_batch_fails_its_requests_and_the_queue_goes_on():
    def fail_on_bad(batch):
        if batch[0].payload == "bad":
            raise RuntimeError("broken")
        return [request.payload for request in batch]

    queue = RequestQueue("fail", fail_on_bad, max_waiting=10)
    with pytest.raises(RuntimeError, match="broken"):
        queue.put("bad").result.result(30)
    assert queue.put("good").result.result(30) == "good"
    queue.close()
