"""Previews of new items: their neighbours, the known queries that would find them, and a two-dimensional map."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.records import Point, Preview, ReachedQuery
from metaxc.catalog.schema import VECTOR_COLUMNS, decode_item_vectors, decode_vectors
from metaxc.catalog.store import Store
from metaxc.classifiers import RevealedQueries
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett.neighbour_pool import NeighbourPool
from metaxc.emmett.pipeline import MetaClassifiers, timed
from metaxc.index.topk import top_k

REACH = 10
"""A query reaches an item that is among its ten best."""

MOST_SCORES = 50_000_000
"""Bounds known queries × items that are scored; with more items, fewer queries are used."""

SHOWN_REACHED = 60
MAPPED_QUERIES = 12
STALE = 30.0
"""Seconds for which the scores of the known queries may be behind the catalog."""


@dataclass(frozen=True)
class KnownQueries:
    """Known queries, and the scores that an item needs to be among their best.

    Args:
        texts: (n,) the queries.
        embeddings: (n, dim) their embeddings by the encoder alone.
        vectors: (n, dim + 1) the vectors that they are searched with, with the model's exposure.
        encoder_best: (n, REACH) their best scores with the items' embeddings, best first.
        meta_best: (n, REACH) their best scores with the items' vectors, best first.
        sequence: The catalog's sequence number when the scores were computed.
        computed_at: When they were computed, in seconds of the monotonic clock.
    """

    texts: list[str]
    embeddings: Floats
    vectors: Floats
    encoder_best: Floats
    meta_best: Floats
    sequence: int
    computed_at: float


class Previewer:
    """Computes previews.

    Args:
        store: The catalog's store.
        follower: The index and the life cycle that follow it.
    """

    def __init__(self, store: Store, follower: IndexFollower):
        self.store, self.follower = store, follower
        self._lock = threading.Lock()
        self._known: KnownQueries | None = None
        self._refresh: threading.Thread | None = None

    def preview(
        self,
        text: str,
        without: frozenset[str],
        revealed: Sequence[str],
        revealed_embeddings: Floats | None = None,
    ) -> Preview:
        """See `Catalog.preview`."""
        seconds: dict[str, float] = {}
        lifecycle = self.follower.lifecycle
        model, pipeline = lifecycle.model, lifecycle.pipeline
        with timed(seconds, "encode"):
            embedding = model.encoder.encode_items([text])
            given = list(revealed) if revealed_embeddings is None else revealed_embeddings
            queries = RevealedQueries.embed([given], 1, model.embed_queries)
        computed = pipeline.run(embedding, texts=[text], revealed=queries, exclude=without, seconds=seconds)
        explanation = pipeline.explain(computed, text, revealed)
        known = self.known_queries()
        with timed(seconds, "reach"):
            reached = _find_reached(known, embedding[0], computed.vectors[0])
        with timed(seconds, "map"):
            points = _draw_map(pipeline.pool, text, computed, known, reached[:MAPPED_QUERIES])
        return Preview(
            text,
            explanation,
            tuple(computed.excluded),
            tuple(reached[:SHOWN_REACHED]),
            points,
            len(known.texts),
            seconds,
        )

    def known_queries(self) -> KnownQueries:
        """The known queries and their best scores, computed at the first call.

        Where the catalog has changed and they are stale, they are computed again in the background for a later call.
        """
        with self._lock:
            sequence = self.follower.sequence
            if self._known is None:
                self._known = self._score_queries()
            known = self._known
            stale = known.sequence != sequence and time.monotonic() - known.computed_at >= STALE
            if stale and (self._refresh is None or not self._refresh.is_alive()):
                self._refresh = threading.Thread(
                    target=self._refresh_known, name="metaxc-preview", daemon=True
                )
                self._refresh.start()
            return known

    def close(self) -> None:
        """Wait for a computation in the background."""
        refresh = self._refresh
        if refresh is not None:
            refresh.join()

    def _refresh_known(self) -> None:
        self._known = self._score_queries()

    def _score_queries(self) -> KnownQueries:
        sequence, dim = self.follower.sequence, self.store.dim
        with self.store.read_snapshot(own_connection=True) as connection:
            items = connection.execute(
                f"SELECT embedding, {VECTOR_COLUMNS} FROM items ORDER BY key"
            ).fetchall()
            most = max(1, MOST_SCORES // max(len(items), 1))
            queries = connection.execute(
                "SELECT text, embedding FROM queries ORDER BY number LIMIT ?", (most,)
            ).fetchall()
        embeddings = decode_vectors((embedding for _, embedding in queries), dim)
        vectors = np.empty((0, self.store.vector_dim), np.float32)
        if queries:
            vectors = self.follower.lifecycle.model.encode_queries(embeddings)
        _, encoder_best = top_k(embeddings, decode_vectors((item[0] for item in items), dim), REACH)
        _, meta_best = top_k(vectors, decode_item_vectors((item[1:] for item in items), dim), REACH)
        texts = [text for text, _ in queries]
        return KnownQueries(texts, embeddings, vectors, encoder_best, meta_best, sequence, time.monotonic())


def _find_reached(known: KnownQueries, embedding: Floats, vector: Floats) -> list[ReachedQuery]:
    """The known queries that find the item by its embedding or by its vector, the best ranks first."""
    by_encoder = 1 + (known.encoder_best > (known.embeddings @ embedding)[:, None]).sum(axis=1)
    by_meta = 1 + (known.meta_best > (known.vectors @ vector)[:, None]).sum(axis=1)
    reached = []
    for place in np.flatnonzero(np.minimum(by_encoder, by_meta) <= REACH).tolist():
        before = int(by_encoder[place]) if by_encoder[place] <= REACH else None
        after = int(by_meta[place]) if by_meta[place] <= REACH else None
        change = "gained" if before is None else "lost" if after is None else "kept"
        reached.append(ReachedQuery(known.texts[place], before, after, change))  # type: ignore[arg-type]
    return sorted(
        reached, key=lambda one: (one.meta_rank or REACH + 1, one.encoder_rank or REACH + 1, one.query)
    )


def _draw_map(
    pool: NeighbourPool,
    text: str,
    computed: MetaClassifiers,
    known: KnownQueries,
    reached: Sequence[ReachedQuery],
) -> tuple[Point, ...]:
    """The item, its neighbours and queries, projected on their two principal components."""
    rows = computed.selection.rows[0]
    rows = rows[rows >= 0]
    place_of = {query: place for place, query in enumerate(known.texts)}
    queries = [place_of[one.query] for one in reached]
    # Without novelty and exposure, which are not directions in the space of the texts.
    vectors, query_vectors = computed.vectors[:, :-1], known.vectors[queries, :-1]
    parts = [computed.embeddings, vectors, pool.embeddings_at(rows), query_vectors]
    points = normalize_rows(np.concatenate(parts))
    centred = points - points.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    kinds = ["text", "meta", *["neighbour"] * len(rows), *["query"] * len(queries)]
    neighbours = [pool.name(row)[1] for row in rows.tolist()]
    labels = [text, "meta-classifier", *neighbours, *(known.texts[place] for place in queries)]
    return tuple(
        Point(kind, label, float(x), float(y))  # type: ignore[arg-type]
        for kind, label, (x, y) in zip(kinds, labels, flat, strict=True)
    )
