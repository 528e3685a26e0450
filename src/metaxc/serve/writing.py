"""Writes that wait together: in their order, neighbours of one kind in one transaction.

An add costs a disk sync; a hundred that wait together cost one. Where the one transaction is refused, each request is
tried by itself, so that a bad one fails alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from metaxc.catalog import Catalog
from metaxc.catalog.records import AddResult, NewItem
from metaxc.serve.batching import Job, each_alone
from metaxc.serve.http_errors import ForbiddenError
from metaxc.serve.prometheus_metrics import Metrics


@dataclass(frozen=True)
class Add:
    """Items to add; answered with `AddResult`."""

    items: tuple[NewItem, ...]


@dataclass(frozen=True)
class Update:
    """An item to change; answered with `Item`."""

    id: str
    text: str | None
    tags: tuple[str, ...] | None


@dataclass(frozen=True)
class Delete:
    """An item to delete; answered with how many are gone."""

    id: str


@dataclass(frozen=True)
class ClickOn:
    """A query that clicked an item; answered with `Click`."""

    item: str
    query: str


@dataclass(frozen=True)
class Undo:
    """A click to undo; answered with `Item`."""

    number: int


Change = Add | Update | Delete | ClickOn | Undo
WriteJob = Job[Change, Any]
TOGETHER = (Add, Delete, ClickOn)  # the catalog takes several of these in one transaction


class Writing:
    """Carries out batches of changes.

    Args:
        catalog: What is changed.
        metrics: Told the seconds of each transaction.
    """

    def __init__(self, catalog: Catalog, metrics: Metrics):
        self._catalog, self._metrics = catalog, metrics
        self._read_only = catalog.read_only

    def __call__(self, jobs: Sequence[WriteJob]) -> Sequence[Any]:
        """Each job's own answer, the changes made in order."""
        answers: list[Any] = []
        for job in jobs:
            self._metrics.took("queue", job.waited)
        for run in runs(jobs):
            started = time.perf_counter()
            answers.extend(each_alone(self._together, run))
            self._metrics.took("write", time.perf_counter() - started)
        return answers

    def _together(self, jobs: Sequence[WriteJob]) -> Sequence[Any]:
        if self._read_only:
            raise ForbiddenError(
                "The catalog is open for reading only",
                expected="a service that may write",
                fix="start it without --read-only, or ask the one that writes",
            )
        changes = [job.asked for job in jobs]
        match changes[0]:
            case Add():
                return self._add([change for change in changes if isinstance(change, Add)])
            case Delete():
                self._catalog.delete([change.id for change in changes if isinstance(change, Delete)])
                return [1] * len(changes)
            case ClickOn():
                pairs = [(change.item, change.query) for change in changes if isinstance(change, ClickOn)]
                return self._catalog.clicks(pairs)
            case Update(id, text, tags):
                return [self._catalog.update(id, text, tags)]
            case Undo(number):
                return [self._catalog.undo(number)]

    def _add(self, adds: Sequence[Add]) -> list[AddResult]:
        """One transaction; who added what is told apart by what was there before."""
        known = [sum(name in self._catalog for name in ids_of(add)) for add in adds] if len(adds) > 1 else []
        done = self._catalog.add([item for add in adds for item in add.items])
        if not known:
            return [done]
        return [AddResult(len(add.items) - there, there) for add, there in zip(adds, known, strict=True)]


def ids_of(change: Change) -> list[str]:
    """The items that a change brings or takes away."""
    if isinstance(change, Add):
        return [item.id for item in change.items]
    return [change.id] if isinstance(change, Delete) else []


def runs(jobs: Sequence[WriteJob]) -> Iterator[list[WriteJob]]:
    """Neighbours that may share a transaction: of one kind, no item added or deleted twice."""
    run: list[WriteJob] = []
    ids: set[str] = set()
    for job in jobs:
        kind = type(job.asked)
        fits = run and type(run[0].asked) is kind and kind in TOGETHER
        if not fits or ids.intersection(ids_of(job.asked)):
            if run:
                yield run
            run, ids = [], set()
        run.append(job)
        ids.update(ids_of(job.asked))
    if run:
        yield run
