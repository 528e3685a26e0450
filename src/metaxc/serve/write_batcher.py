"""Handles batches of writes: those that wait together share transactions.

An add costs a disk sync, a hundred that wait together cost one. A large add, and a large list of clicks, is cut into
slices that encode its texts, between which other writes have their turn, and a last one that writes all of it or
nothing. When a shared call fails, its requests run one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaxc.arrays import Floats
from metaxc.catalog import Catalog
from metaxc.catalog.records import AddResult
from metaxc.serve.api_types import (
    AddRequest,
    ClickRequest,
    ClicksRequest,
    DeleteRequest,
    PatchRequest,
    UpdateRequest,
)
from metaxc.serve.http_errors import ForbiddenError
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import QueuedRequest, run_with_fallback
from metaxc.serve.served_catalog import ServedCatalog
from metaxc.serve.work_slices import EncodedPart


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


@dataclass(frozen=True)
class RunInTurn:
    """Call a function while no write happens: the beginning and the last step of a switch."""

    function: Callable[[], Any]


WriteOperation = (
    AddRequest
    | UpdateItem
    | DeleteItem
    | DeleteRequest
    | ClickRequest
    | ClicksRequest
    | UndoClick
    | RunInTurn
)
"""Their results: `AddResult`, `Item`, the number of deleted items (twice), `Click`, a list of them, `Item`, what the
function returns."""

QueuedWrites = Sequence[QueuedRequest[WriteOperation, Any]]
SHARED_TRANSACTION = (AddRequest, DeleteItem, ClickRequest)
"""The catalog applies several of these in one transaction."""


class WriteBatcher:
    """Handles batches of writes in their order, those that can in a shared transaction."""

    def __init__(self, served: ServedCatalog, metrics: Metrics):
        self._served, self._metrics = served, metrics
        self._read_only = served.catalog.read_only

    @property
    def _catalog(self) -> Catalog:
        """The present catalog; a switch replaces it between two requests, in the thread that calls this."""
        return self._served.catalog

    def __call__(self, batch: QueuedWrites) -> Sequence[Any]:
        """One result per request."""
        values: dict[int, Any] = {}
        for request in batch:
            if request.is_first:
                self._metrics.observe_stage("queue", request.wait_seconds or 0.0)
        for group in group_for_transactions([request for request in batch if request.is_last]):
            started = time.perf_counter()
            found = run_with_fallback(self._write_together, group)
            values |= {id(request): value for request, value in zip(group, found, strict=True)}
            self._metrics.observe_stage("write", time.perf_counter() - started)
        for request in batch:
            if not request.is_last:
                part = run_with_fallback(self._encode, [request])[0]
                encoded = EncodedPart(self._catalog.model.fingerprint, part)
                values |= {id(request): part if isinstance(part, Exception) else encoded}
        return [values[id(request)] for request in batch]

    def _encode(self, batch: QueuedWrites) -> list[dict[str, Floats]]:
        """The embeddings of the texts of a large request's present slice, by text; none of items that exist already."""
        self._check_writable()
        [request] = batch
        encoder, rows = self._catalog.model.encoder, request.slice.rows
        match request.payload:
            case AddRequest(items=items):
                new = (items[row] for row in rows)
                wanted, encode = (
                    [item.text for item in new if item.vector is None and item.id not in self._catalog],
                    encoder.encode_items,
                )
            case ClicksRequest(clicks=clicks):
                new_clicks = (clicks[row] for row in rows)
                wanted, encode = (
                    [click.query for click in new_clicks if click.vector is None],
                    encoder.encode_queries,
                )
            case other:
                raise AssertionError(f"{type(other).__name__} is not cut into slices")
        texts = list(dict.fromkeys(wanted))
        if not texts:
            return [{}]
        started = time.perf_counter()
        embeddings = encode(texts)
        self._metrics.observe_stage("encode", time.perf_counter() - started)
        return [dict(zip(texts, embeddings, strict=True))]

    def _check_writable(self) -> None:
        if self._read_only:
            raise ForbiddenError(
                "The catalog is open for reading only",
                expected="a service that may write",
                fix="start it without --read-only, or use the service that writes",
            )

    def _write_together(self, group: QueuedWrites) -> Sequence[Any]:
        self._check_writable()
        operations = [request.payload for request in group]
        embeddings = {
            text: one
            for request in group
            for part in request.parts
            if part.model == self._catalog.model.fingerprint
            for text, one in part.value.items()
        }
        match operations[0]:
            case AddRequest():
                return self._add([one for one in operations if isinstance(one, AddRequest)], embeddings)
            case DeleteItem():
                self._catalog.delete([one.id for one in operations if isinstance(one, DeleteItem)])
                return [1] * len(operations)
            case DeleteRequest(ids=ids, ignore_missing=ignore_missing):
                return [self._catalog.delete(ids, ignore_missing=ignore_missing)]
            case ClickRequest():
                return self._catalog.clicks(
                    [one.to_new_click() for one in operations if isinstance(one, ClickRequest)]
                )
            case ClicksRequest(clicks=clicks):
                return [self._catalog.clicks([one.to_new_click() for one in clicks], embeddings)]
            case UpdateItem(id, PatchRequest() as patch):
                return [
                    self._catalog.update(
                        id,
                        patch.text,
                        patch.tags,
                        add_tags=patch.add_tags,
                        remove_tags=patch.remove_tags,
                        fields=patch.fields,
                        set_fields=patch.set_fields,
                        vector=patch.vector,
                    )
                ]
            case UpdateItem(id, changes):
                return [
                    self._catalog.update(
                        id, changes.text, changes.tags, fields=changes.fields, vector=changes.vector
                    )
                ]
            case UndoClick(number):
                return [self._catalog.undo(number)]
            case RunInTurn(function):
                return [function()]

    def _add(self, adds: Sequence[AddRequest], embeddings: Mapping[str, Floats]) -> list[AddResult]:
        """One transaction; what existed before it tells how many items each request added."""
        items = [item.to_new_item() for add in adds for item in add.items]
        if len(adds) == 1:
            return [self._catalog.add(items, embeddings)]
        existing = [sum(item.id in self._catalog for item in add.items) for add in adds]
        self._catalog.add(items, embeddings)
        return [AddResult(len(add.items) - known, known) for add, known in zip(adds, existing, strict=True)]


def texts_to_encode(operation: WriteOperation) -> list[str]:
    """The texts that a write encodes, an empty one for each that has a vector."""
    match operation:
        case AddRequest():
            return ["" if item.vector else item.text for item in operation.items]
        case ClickRequest():
            return ["" if operation.vector else operation.query]
        case ClicksRequest():
            return ["" if click.vector else click.query for click in operation.clicks]
        case UpdateItem(_, changes) if changes.text is not None and not changes.vector:
            return [changes.text]
        case _:
            return []


def vectors_of(operation: WriteOperation) -> list[list[float]]:
    """The vectors that a write gives in place of texts."""
    match operation:
        case AddRequest():
            given = [item.vector for item in operation.items]
        case ClickRequest():
            given = [operation.vector]
        case ClicksRequest():
            given = [click.vector for click in operation.clicks]
        case UpdateItem(_, changes):
            given = [changes.vector]
        case _:
            given = []
    return [vector for vector in given if vector is not None]


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
