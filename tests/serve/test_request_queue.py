"""Fair, bounded queues: batches, turns, predicted waits, rejection, timeouts, closing."""

import asyncio
import threading
import time

import pytest

from metaxc.serve.http_errors import BusyError, NotReadyError
from metaxc.serve.request_queue import CAUTION, Caller, RequestQueue
from metaxc.serve.work_slices import Slice


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
    rest = [queue.put(number) for number in (2, 3, 4, 5)] + [queue.put(6, [Slice(9)]), queue.put(7)]
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


def in_turns(queue, handler, *requests):
    """Queue requests of (payload, weights of slices, client) behind a first one, and the order of their slices."""
    queue.put("first")
    assert handler.started.wait(30)
    put = [
        queue.put(name, [Slice(weight) for weight in weights], Caller(client))
        for name, weights, client in requests
    ]
    handler.released.set()
    for request in put:
        request.result.result(30)
    queue.close()
    return ["".join(batch) for batch in handler.batches[1:]]


def test_clients_take_turns_slice_by_slice_and_so_do_the_requests_of_one_client(handler):
    queue = RequestQueue("count", handler, max_waiting=10, batch_size=5)
    batches = in_turns(
        queue,
        handler,
        ("A", [5] * 4, "large"),
        ("B", [5] * 2, "large"),
        ("c", [5], "small"),
        ("d", [3], "other"),
        ("e", [2], "other"),
    )
    # One round: a slice of the large request, then each other client; what fits shares a batch.
    assert batches == ["A", "c", "d", "B", "e", "A", "B", "A", "A"]


def test_a_large_request_delays_others_by_one_slice_however_many_it_has(handler):
    queue = RequestQueue("count", handler, max_waiting=10, batch_size=5)
    assert in_turns(queue, handler, ("A", [5] * 50, "same"), ("b", [1], "same"))[:2] == ["A", "b"]


def test_the_result_is_that_of_the_last_slice_and_the_handler_finds_the_parts_before_it():
    def add_up(batch):
        return [request.slice.weight + sum(request.parts) * request.is_last for request in batch]

    queue = RequestQueue("sum", add_up, max_waiting=10)
    request = queue.put("numbers", [Slice(1), Slice(20), Slice(300)])
    assert request.result.result(30) == 321
    queue.close()


def test_the_slices_that_a_disconnected_client_has_left_are_dropped(handler):
    queue = RequestQueue("count", handler, max_waiting=10)

    async def disconnect_after_the_first_slice():
        gone = asyncio.Event()
        disconnected = asyncio.create_task(gone.wait())
        request = asyncio.create_task(queue.submit("A", [Slice()] * 9, timeout=30, disconnected=disconnected))
        await asyncio.to_thread(handler.started.wait, 30)
        gone.set()
        with pytest.raises(NotReadyError):
            await request
        handler.released.set()

    asyncio.run(disconnect_after_the_first_slice())
    queue.close()
    assert handler.batches == [["A"]]


def test_an_error_in_a_slice_ends_the_request():
    def fail(batch):
        raise RuntimeError("broken")

    queue = RequestQueue("fail", fail, max_waiting=10)
    with pytest.raises(RuntimeError, match="broken"):
        queue.put("A", [Slice()] * 3).result.result(30)
    queue.close()
    assert len(queue) == 0


def test_a_started_request_is_not_dropped_by_the_timeout_of_the_queue(handler):
    queue = RequestQueue("count", handler, max_waiting=10)

    async def submit():
        request = asyncio.create_task(queue.submit(1, [Slice()] * 2, timeout=0.01))
        await asyncio.to_thread(handler.started.wait, 30)
        assert await asyncio.wait({request}, timeout=0.05) == (set(), {request})
        handler.released.set()
        return await request

    assert asyncio.run(submit()) == 10
    queue.close()


@pytest.fixture
def busy(handler):
    """A queue that has learnt that a unit of weight takes 10 ms, with a batch under way that should have ended."""
    queue = RequestQueue("count", handler, max_waiting=100, max_wait=1.0, batch_size=10)
    queue.service_time.fixed, queue.service_time.per_token = 0.0, 0.0
    queue.put("first")
    assert handler.started.wait(30)
    queue.service_time.per_token = 0.01
    yield queue
    handler.released.set()
    queue.close()


def test_a_request_that_would_wait_too_long_is_refused_at_once_and_told_when_to_retry(busy):
    assert busy.predict_start("a") == 0.0
    busy.put("A", [Slice(60)] * 50, Caller("a"))
    assert busy.predict_start("a") == pytest.approx(0.6)
    assert busy.predict_start("b") == pytest.approx(0.6)
    busy.put("B", [Slice(50)], Caller("a"))
    assert busy.predict_start("b") == pytest.approx(0.6)  # b has its turn after the first request of a
    assert busy.predict_start("a") == pytest.approx(1.1)
    busy.check_capacity("b")
    with pytest.raises(BusyError, match=r"wait of 1\.4 seconds in the count queue") as refused:
        busy.put("C", caller=Caller("a"))
    assert refused.value.retry_after == pytest.approx(CAUTION * 1.1 - 1)
    with pytest.raises(BusyError):
        busy.check_capacity("a")
    assert len(busy) == 2


def test_a_request_that_cannot_meet_its_deadline_is_refused_at_once(busy):
    def put(slices, wait):
        busy.put("D", slices, Caller("d", time.perf_counter() + wait))

    with pytest.raises(NotReadyError, match=r"0\.30 needed"):
        put([Slice(30)], 0.2)
    put([Slice(30)], 5.0)
    with pytest.raises(NotReadyError, match=r"0\.40 needed"):  # after the one before it
        put([Slice(10)], 0.35)
    with pytest.raises(NotReadyError, match="cannot be answered"):
        put([Slice(10)] * 30, 2.0)
    assert len(busy) == 1


def test_a_request_whose_deadline_passes_in_the_queue_is_dropped(handler):
    queue = RequestQueue("count", handler, max_waiting=10)
    queue.service_time.per_token = 0.0
    queue.put("first")
    assert handler.started.wait(30)
    late = queue.put("late", caller=Caller("a", time.perf_counter() + 0.2))

    async def submit():
        with pytest.raises(NotReadyError, match="nothing was changed"):
            await queue.submit("also", caller=Caller("b", time.perf_counter() + 0.2), timeout=30)

    asyncio.run(submit())
    handler.released.set()
    with pytest.raises(NotReadyError, match="deadline"):
        late.result.result(30)
    queue.close()
    assert handler.batches == [["first"]]
