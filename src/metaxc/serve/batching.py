"""Concurrent requests, worked on together.

A `Lane` is a bounded queue with worker threads. A worker takes what waits at that moment, up to a batch, and answers it
in one call; when nothing waits, a request is worked on at once. A full queue refuses; a request whose client has gone
is dropped before work begins on it; once begun, work is finished and its answer given, so that nobody is left to guess
whether a write happened.
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

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(eq=False)
class Job(Generic[Asked, Answer]):
    """One request in a lane.

    Args:
        asked: What is asked.
        weight: How many texts it brings.
        since: When it came, in seconds of `time.perf_counter`.
        waited: Seconds until work began on it.
    """

    asked: Asked
    weight: int = 1
    since: float = field(default_factory=time.perf_counter)
    waited: float = 0.0
    answer: Future[Answer] = field(default_factory=Future)


Work = Callable[[Sequence[Job[Asked, Answer]]], Sequence[Answer | Exception]]
"""Jobs to their answers, in order; an exception answers its own job alone."""


class Lane(Generic[Asked, Answer]):
    """A bounded queue whose waiting requests are worked on together.

    Args:
        name: For threads, metrics and errors.
        work: Answers a batch.
        most_waiting: Requests in the queue; one more is refused.
        batch: Texts per call of `work`; a request that brings more goes alone.
        threads: Workers.
    """

    def __init__(
        self,
        name: str,
        work: Work[Asked, Answer],
        *,
        most_waiting: int,
        batch: int = 1,
        threads: int = 1,
    ):
        self.name, self.most_waiting, self.batch = name, most_waiting, batch
        self._work = work
        self._waiting: deque[Job[Asked, Answer]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"metaxc-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def put(self, asked: Asked, weight: int = 1) -> Job[Asked, Answer]:
        """Let a request wait its turn; `BusyError` when the queue is full."""
        job: Job[Asked, Answer] = Job(asked, weight)
        with self._changed:
            if self._closing:
                raise NotReadyError("The service is closing", fix="ask again when it is back")
            self._check_room()
            self._waiting.append(job)
            self._changed.notify()
        return job

    def check_room(self) -> None:
        """`BusyError` when the queue is full: to refuse a request before it is read."""
        if len(self._waiting) >= self.most_waiting:
            with self._changed:
                self._check_room()

    def _check_room(self) -> None:
        if len(self._waiting) >= self.most_waiting:
            self._waiting = deque(other for other in self._waiting if not other.answer.cancelled())
        if len(self._waiting) >= self.most_waiting:
            raise BusyError(
                "Too many requests wait",
                got=f"{len(self._waiting)} waiting to {self.name}",
                expected=f"at most {self.most_waiting}",
                fix="ask again after Retry-After seconds, or less often",
            )

    async def ask(
        self, asked: Asked, *, weight: int = 1, timeout: float, gone: asyncio.Task[None] | None = None
    ) -> Answer:
        """The answer to a request.

        Args:
            asked: What is asked.
            weight: How many texts it brings.
            timeout: Seconds to wait for work to begin; `NotReadyError` after that.
            gone: Done when the client has gone: then the request is dropped, if it still waits.
        """
        job = self.put(asked, weight)
        answer = asyncio.wrap_future(job.answer)
        try:
            await asyncio.wait(
                {answer} | ({gone} if gone else set()), timeout=timeout, return_when="FIRST_COMPLETED"
            )
            if not answer.done() and job.answer.cancel():
                raise NotReadyError(
                    "The request was not reached in time",
                    got=f"{timeout:g} seconds of waiting to {self.name}",
                    fix="nothing was done: ask again, or less often",
                )
            return await answer
        finally:
            answer.cancel()  # of a cancelled request: drops the job, if it still waits

    def close(self) -> None:
        """Take nothing more, finish what waits, end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while taken := self._take():
            started = time.perf_counter()
            jobs = [job for job in taken if job.answer.set_running_or_notify_cancel()]
            for job in jobs:
                job.waited = started - job.since
            if jobs:
                self._answer(jobs)

    def _take(self) -> list[Job[Asked, Answer]]:
        """What waits, up to a batch; nothing when the lane is closed and empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            taken: list[Job[Asked, Answer]] = []
            weight = 0
            while self._waiting and (not taken or weight + self._waiting[0].weight <= self.batch):
                taken.append(self._waiting.popleft())
                weight += taken[-1].weight
            return taken

    def _answer(self, jobs: list[Job[Asked, Answer]]) -> None:
        try:
            answers = self._work(jobs)
        except Exception as error:
            answers = [error] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)


def each_alone(work: Work[Asked, Answer], jobs: Sequence[Job[Asked, Answer]]) -> Sequence[Answer | Exception]:
    """Answer jobs together; where that fails, one by one, so that a bad one fails by itself."""
    try:
        return work(jobs)
    except Exception as error:
        if len(jobs) == 1:
            return [error]
    answers: list[Answer | Exception] = []
    for job in jobs:
        try:
            answers.extend(work([job]))
        except Exception as error:
            answers.append(error)
    return answers
