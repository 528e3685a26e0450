"""Handles batches of the reads that encode texts: searches, representations and previews.

What waits together is encoded in one call, and searched in one call per filter. When a shared call fails, its requests
run one at a time.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog import Catalog
from metaxc.catalog.generation_checks import compute_recalls
from metaxc.catalog.item_filters import dump_filter, join_filters
from metaxc.catalog.records import CatalogHit, Preview
from metaxc.serve.api_types import (
    PreviewRequest,
    QueryHits,
    RepresentRequest,
    RepresentResponse,
    SearchRequest,
    SearchResponse,
)
from metaxc.serve.http_errors import BusyError
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import QueuedRequest, RequestQueue, run_with_fallback
from metaxc.serve.served_catalog import ServedCatalog
from metaxc.serve.vector_types import TextVector, given_value
from metaxc.serve.work_slices import EncodedPart

log = logging.getLogger("metaxc.serve")
RECALL_AT = 10
MAX_SAMPLED_QUERIES = 4  # per sampled batch: an exact search of more would slow other searches down

EncodingRead = SearchRequest | RepresentRequest | PreviewRequest
"""Their results: `SearchResponse`, `RepresentResponse`, `Preview`."""

Given = TypeVar("Given")
RepresentInput = tuple[str | Floats, bool, float | None]
"""A text or an embedding, whether it is a query, and its exposure."""

Queued = Sequence[QueuedRequest[Any, Any]]


class SearchBatcher:
    """Handles batches of reads. A share of the unfiltered searches, `recall_sample_rate`, is also searched exactly, in
    another thread, to measure the recall of the index."""

    def __init__(self, served: ServedCatalog, metrics: Metrics, recall_sample_rate: float):
        self._served, self._metrics, self._sample_rate = served, metrics, recall_sample_rate
        self._random = random.Random(0)
        self.sample_queue: RequestQueue[EncodedPart, None] = RequestQueue(
            "sample", self._sample_recall, max_waiting=1
        )

    def __call__(self, batch: Queued) -> Sequence[Any]:
        """One response per request."""
        kinds: tuple[tuple[type, Callable[[Catalog, Queued], list[Any]]], ...] = (
            (SearchRequest, self._search_together),
            (RepresentRequest, self._represent_together),
            (PreviewRequest, self._preview_together),
        )
        values: dict[int, Any] = {}
        for request in batch:
            if request.is_first:
                self._metrics.observe_stage("queue", request.wait_seconds or 0.0)
        for kind, handler in kinds:
            group = [request for request in batch if isinstance(request.payload, kind)]
            if group:
                with self._served.use() as catalog:
                    found = run_with_fallback(partial(handler, catalog), group)
                values |= {id(request): value for request, value in zip(group, found, strict=True)}
        return [values[id(request)] for request in batch]

    def _search_together(self, catalog: Catalog, batch: Queued) -> list[Any]:
        started = time.perf_counter()
        queries = [_slice_texts(request, request.payload.queries) for request in batch]
        exposures = [
            request.payload.exposure for request, own in zip(batch, queries, strict=True) for _ in own
        ]
        vectors = catalog.encode([given_value(query) for own in queries for query in own], exposures)
        encode_seconds = time.perf_counter() - started
        self._metrics.observe_stage("encode", encode_seconds)
        parts = _split(vectors, queries)
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(batch):
            groups.setdefault(dump_filter(_read_filter(request.payload)), []).append(place)
        values: dict[int, Any] = {}
        for places in groups.values():
            started = time.perf_counter()
            hits = self._search_group(
                catalog,
                np.concatenate([parts[place] for place in places]),
                [batch[place].payload for place in places],
                [query_text(query) for place in places for query in queries[place]],
            )
            seconds = {"encode": encode_seconds, "search": time.perf_counter() - started}
            self._metrics.observe_stage("search", seconds["search"])
            for place in places:
                start = batch[place].payload.offset
                page = slice(start, start + batch[place].payload.k)
                answers = [QueryHits(query_text(query), tuple(next(hits)[page])) for query in queries[place]]
                values[place] = _finish_search(batch[place], (answers, seconds))
        return [values[place] for place in range(len(batch))]

    def _search_group(
        self, catalog: Catalog, vectors: Floats, searches: Sequence[SearchRequest], texts: Sequence[str]
    ) -> Iterator[list[CatalogHit]]:
        """The hits of each query of searches that share their filters, as far as the last page among them."""
        filter, depth = _read_filter(searches[0]), max(search.offset + search.k for search in searches)
        if filter is None and self._random.random() < self._sample_rate:
            with suppress(BusyError):  # one sample at a time is enough
                self.sample_queue.put(EncodedPart(catalog.model.fingerprint, vectors[:MAX_SAMPLED_QUERIES]))
        return iter(catalog.search(vectors, depth, filter=filter, texts=texts))

    def _represent_together(self, catalog: Catalog, batch: Queued) -> list[Any]:
        started = time.perf_counter()
        model, encode = catalog.model.fingerprint, partial(_represent, catalog)
        inputs = [_represent_inputs(request.payload) for request in batch]
        slices = [_slice_texts(request, own) for request, own in zip(batch, inputs, strict=True)]
        vectors = encode([one for own in slices for one in own])
        self._metrics.observe_stage("encode", time.perf_counter() - started)
        values: list[Any] = []
        for request, own, part in zip(batch, inputs, _split(vectors, slices), strict=True):
            if request.is_last:
                before = _encoded_parts(request, own, model, encode)
                whole = [vector.tolist() for vector in in_request_order(request, [*before, part])]
                items = len(request.payload.texts)
                values.append(RepresentResponse(whole[:items], model, whole[items:]))
            else:
                values.append(EncodedPart(model, part))
        return values

    def _preview_together(self, catalog: Catalog, batch: Queued) -> list[Preview | EncodedPart]:
        return [self._preview(catalog, request) for request in batch]

    def _preview(
        self, catalog: Catalog, request: QueuedRequest[PreviewRequest, Preview]
    ) -> Preview | EncodedPart:
        """The preview; the slices before the last one encode the queries of a large one."""
        preview, model, encode = (
            request.payload,
            catalog.model.fingerprint,
            catalog.model.encoder.encode_queries,
        )
        if not request.is_last:
            return EncodedPart(model, encode(_slice_texts(request, preview.revealed)))
        parts = _encoded_parts(request, preview.revealed, model, encode)
        encoded = np.stack(in_request_order(request, parts)) if parts else None
        return catalog.preview(
            preview.text, without=preview.without, revealed=preview.revealed, revealed_embeddings=encoded
        )

    def _sample_recall(self, batch: Sequence[QueuedRequest[EncodedPart, None]]) -> list[Exception | None]:
        """Search once more, by the index and exactly; a write in between makes the two incomparable, and a switch the
        vectors useless."""
        try:
            for request in batch:
                with self._served.use() as catalog:
                    if request.payload.model != catalog.model.fingerprint:
                        continue
                    before, vectors = catalog.sequence, request.payload.value
                    found, _ = catalog.index_search(vectors, RECALL_AT)
                    exact, _ = catalog.exact_search(vectors, RECALL_AT)
                    if catalog.sequence == before:
                        self._metrics.recall.record(compute_recalls(found, exact))
        except Exception:  # no client waits for a sample, so only the log can report it
            log.exception("Sampling the recall failed")
        return [None] * len(batch)


def _read_filter(search: SearchRequest) -> Any | None:
    return join_filters(search.filter, sorted(set(search.tags)), sorted(set(search.states)))


def in_request_order(request: QueuedRequest[Any, Any], parts: Sequence[Iterable[Any]]) -> list[Any]:
    """What the slices of a request gave for each of its texts, in the order of the texts."""
    rows = [row for one in request.slices[: len(parts)] for row in one.rows]
    values = [value for part in parts for value in part]
    if not rows:  # a request that was not cut
        return values
    return [value for _, value in sorted(zip(rows, values, strict=True), key=lambda pair: pair[0])]


def _represent_inputs(request: RepresentRequest) -> list[RepresentInput]:
    items = [(given_value(one), False, None) for one in request.texts]
    return [*items, *((given_value(one), True, request.exposure) for one in request.queries)]


def _represent(catalog: Catalog, inputs: Sequence[RepresentInput]) -> Floats:
    """(n, dim + 1) float32 vectors of items and of queries, in the order of the inputs."""
    vectors = np.empty((len(inputs), catalog.store.vector_dim), np.float32)
    for is_query in (False, True):
        rows = [row for row, one in enumerate(inputs) if one[1] is is_query]
        if rows:
            given = [inputs[row][0] for row in rows]
            exposures = [inputs[row][2] for row in rows]
            vectors[rows] = catalog.encode(given, exposures) if is_query else catalog.represent(given)
    return vectors


def query_text(query: str | TextVector) -> str:
    """What an answer calls a query: its text, nothing for a vector without one."""
    return query if isinstance(query, str) else query.text or ""


def _slice_texts(request: QueuedRequest[Any, Any], texts: Sequence[Given]) -> list[Given]:
    """The texts or vectors of a request's present slice: all of them where it was not cut."""
    rows = request.slice.rows
    return [texts[row] for row in rows] if rows else list(texts)


def _encoded_parts(
    request: QueuedRequest[Any, Any],
    texts: Sequence[Given],
    model: str,
    encode: Callable[[Sequence[Given]], Floats],
) -> list[Floats]:
    """What the slices before the last one have encoded; again where another model has done it."""
    return [
        part.value if part.model == model else encode([texts[row] for row in one.rows])
        for one, part in zip(request.slices, request.parts, strict=False)
    ]


def _split(vectors: Floats, texts: Sequence[Sequence[object]]) -> list[Floats]:
    """The vectors of the texts of each request."""
    return np.split(vectors, np.cumsum([len(own) for own in texts])[:-1])


def _finish_search(
    request: QueuedRequest[SearchRequest, SearchResponse], part: tuple[list[QueryHits], dict[str, float]]
) -> Any:
    """The response after the last slice, the part itself before; its seconds are those of all slices."""
    if not request.is_last:
        return part
    parts = [*request.parts, part]
    answers = in_request_order(request, [answers for answers, _ in parts])
    seconds = {name: sum(own[name] for _, own in parts) for name in ("encode", "search")}
    return SearchResponse(tuple(answers), {"queue": request.wait_seconds or 0.0, **seconds})
