"""What would become of a new item: its neighbours, the known queries that would find it, a map of its surroundings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.records import Point, Preview, ReachedQuery
from metaxc.catalog.rows import stacked
from metaxc.catalog.store import Store
from metaxc.classifiers import RevealedQueries
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett.neighbour_pool import NeighbourPool
from metaxc.emmett.pipeline import MetaClassifiers
from metaxc.index.topk import top_k

REACH = 10
"""A query reaches an item that stands among its ten best."""

MOST_SCORES = 50_000_000
"""Known queries × items that are scored for the pool; with many items fewer queries are looked at."""

SHOWN_REACHED = 60
MAPPED_QUERIES = 12
STALE = 30.0
"""Seconds that the pool may be behind the catalog."""


@dataclass(frozen=True)
class Pool:
    """Known queries, and how good an item must be to stand among their best.

    Args:
        texts: (n,) the queries.
        plain: (n, dim) by the encoder alone.
        moved: (n, dim) as they are searched with.
        encoder_best: (n, REACH) their best scores with the items' embeddings, best first.
        meta_best: (n, REACH) with the items' vectors.
        sequence: Of the catalog when it was made.
        at: When, by a clock that only goes on.
    """

    texts: list[str]
    plain: Floats
    moved: Floats
    encoder_best: Floats
    meta_best: Floats
    sequence: int
    at: float


class Previewer:
    """Makes previews.

    Args:
        store: The record.
        followed: What follows it.
    """

    def __init__(self, store: Store, followed: IndexFollower):
        self.store, self.followed = store, followed
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._making: threading.Thread | None = None

    def preview(self, text: str, without: frozenset[str], revealed: Sequence[str]) -> Preview:
        """As `Catalog.preview`."""
        seconds: dict[str, float] = {}
        model, pipeline = self.followed.life.trained, self.followed.life.pipeline
        with _timed(seconds, "encode"):
            embedding = model.encoder.encode_items([text])
            queries = RevealedQueries.embed([list(revealed)], 1, model.embed_queries)
        made = pipeline.run(embedding, texts=[text], revealed=queries, exclude=without, seconds=seconds)
        explanation = pipeline.explain(made, text, [] if queries is None else queries.names)
        pool = self.pool()
        with _timed(seconds, "reach"):
            reached = _reached(pool, embedding[0], made.vectors[0])
        with _timed(seconds, "map"):
            points = _map(pipeline.pool, text, made, pool, reached)
        return Preview(
            text,
            explanation,
            tuple(made.excluded),
            tuple(reached[:SHOWN_REACHED]),
            points,
            len(pool.texts),
            seconds,
        )

    def pool(self) -> Pool:
        """The known queries. Made at the first call; where the catalog has changed a while ago they are made anew
        beside, and the next call has them."""
        with self._lock:
            known, sequence = self._pool, self.followed.sequence
            if known is None:
                known = self._pool = self._made(sequence)
            stale = known.sequence != sequence and time.monotonic() - known.at >= STALE
            if stale and (self._making is None or not self._making.is_alive()):
                self._making = threading.Thread(target=self._make_anew, name="metaxc-preview", daemon=True)
                self._making.start()
            return known

    def close(self) -> None:
        """Wait until nothing is made any more."""
        making = self._making
        if making is not None:
            making.join()

    def _make_anew(self) -> None:
        self._pool = self._made(self.followed.sequence)

    def _made(self, sequence: int) -> Pool:
        model, dim = self.followed.life.trained, self.followed.dim
        with self.store.apart() as connection:
            items = connection.execute("SELECT embedding, vector FROM items ORDER BY key").fetchall()
            most = max(1, MOST_SCORES // max(len(items), 1))
            asked = "SELECT text, embedding FROM queries ORDER BY number LIMIT ?"
            rows = connection.execute(asked, (most,)).fetchall()
        embeddings, vectors = (stacked((row[side] for row in items), dim) for side in (0, 1))
        plain = stacked((row[1] for row in rows), dim)
        moved = model.encode_queries(plain) if len(plain) else plain
        _, encoder_best = top_k(plain, embeddings, REACH)
        _, meta_best = top_k(moved, vectors, REACH)
        return Pool(
            [row[0] for row in rows], plain, moved, encoder_best, meta_best, sequence, time.monotonic()
        )


def _reached(pool: Pool, embedding: Floats, vector: Floats) -> list[ReachedQuery]:
    """Known queries that find the item either way, the best ranks first."""
    by_encoder = 1 + (pool.encoder_best > (pool.plain @ embedding)[:, None]).sum(axis=1)
    by_meta = 1 + (pool.meta_best > (pool.moved @ vector)[:, None]).sum(axis=1)
    found = []
    for place in np.flatnonzero(np.minimum(by_encoder, by_meta) <= REACH).tolist():
        before = int(by_encoder[place]) if by_encoder[place] <= REACH else None
        after = int(by_meta[place]) if by_meta[place] <= REACH else None
        change = "gained" if before is None else "lost" if after is None else "kept"
        found.append(ReachedQuery(pool.texts[place], before, after, change))  # type: ignore[arg-type]
    return sorted(
        found, key=lambda one: (one.meta_rank or REACH + 1, one.encoder_rank or REACH + 1, one.query)
    )


def _map(
    neighbours: NeighbourPool,
    text: str,
    made: MetaClassifiers,
    pool: Pool,
    reached: Sequence[ReachedQuery],
) -> tuple[Point, ...]:
    """The two directions in which the surroundings differ most."""
    rows = [int(row) for row in made.selection.rows[0] if row >= 0]
    near = neighbours.embeddings_at(np.array(rows, dtype=np.int64))
    places = {query: place for place, query in enumerate(pool.texts)}
    asked = [places[one.query] for one in reached[:MAPPED_QUERIES]]
    parts = [made.embeddings, made.vectors, near, pool.moved[asked]]
    points = normalize_rows(np.concatenate(parts))
    centred = points - points.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    kinds = ["text", "meta", *["neighbour"] * len(rows), *["query"] * len(asked)]
    labels = [
        text,
        "meta-classifier",
        *(neighbours.name(row)[1] for row in rows),
        *(pool.texts[place] for place in asked),
    ]
    return tuple(
        Point(kind, label, float(x), float(y))  # type: ignore[arg-type]
        for kind, label, (x, y) in zip(kinds, labels, flat, strict=True)
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
