"""Sampled recall of a synchronised table against the catalog's exact answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.known_queries import list_clicked, list_known, stack_embeddings
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.schema import VECTOR_COLUMNS, decode_item_vectors
from metaxc.catalog.store import Store, read_sequence
from metaxc.emmett import Emmett
from metaxc.index import top_k

RECALL_AT = 10
ROUNDING = 1e-4
"""By how much a score may fall short of the k-th best one and count as equal to it: sums of a few hundred products in
float32 differ by that much between libraries."""


def sample_query_vectors(store: Store, count: int, seed: int, model: Emmett | None) -> Floats:
    """(n, dim) float32, n at most `count`: vectors to search with.

    Args:
        store: The catalog's store.
        count: How many.
        seed: Of the sample.
        model: Expands queries that the catalog knows or has clicks of. Without a model, or without such queries, the
            sample consists of vectors of items, with the exposure in place of the novelty.
    """
    random = np.random.default_rng(seed)
    if model is not None:
        by_text = {query.text: query for query in [*list_clicked(store), *list_known(store)]}
        queries = [by_text[text] for text in sorted(by_text)]
        chosen = random.permutation(len(queries))[:count].tolist()
        embeddings = stack_embeddings(store, [queries[place] for place in chosen])
        if len(embeddings):
            return model.encode_queries(embeddings)
    keys = [row[0] for row in store.fetch_all("SELECT key FROM items ORDER BY key")]
    chosen = random.permutation(len(keys))[:count].tolist()
    select = f"SELECT {VECTOR_COLUMNS} FROM items WHERE key = ?"
    rows = [row for place in chosen for row in store.fetch_all(select, (keys[place],))]
    vectors = decode_item_vectors(rows, store.dim)
    vectors[:, -1] = store.exposure
    return vectors


def measure_recall(
    store: Store,
    queries: Floats,
    search: Callable[[Floats, int], list[list[CatalogHit]]],
    catch_up: Callable[[], int],
    attempts: int = 5,
) -> float:
    """Recall@10 of a search against exhaustive search over the catalog, as a share of 1.

    An item counts as found where its exact score reaches the tenth best one, so that ties cost nothing.

    Args:
        store: The catalog's store.
        queries: (n, dim) float32.
        search: Answers the queries from the table: vectors and k to hits.
        catch_up: Brings the table up to date, and returns the write number reached.
        attempts: How often to begin again where the catalog is written to meanwhile; then its last state is used.
    """
    ids: list[str] = []
    vectors = np.empty((0, store.vector_dim), np.float32)
    for _ in range(attempts):
        reached = catch_up()
        with store.read_snapshot(own_connection=True) as connection:
            sequence = read_sequence(connection)
            rows = connection.execute(f"SELECT id, {VECTOR_COLUMNS} FROM items ORDER BY key").fetchall()
        ids, vectors = [row[0] for row in rows], decode_item_vectors((row[1:] for row in rows), store.dim)
        if sequence == reached:
            break
    k = min(RECALL_AT, len(ids))
    if not k or not len(queries):
        return 1.0
    _, exact = top_k(queries, vectors, k)
    place = {id: row for row, id in enumerate(ids)}
    shares = []
    for query, best, hits in zip(queries, exact, search(queries, k), strict=True):
        found = [place[id] for id in {hit.id for hit in hits} if id in place]
        scores = vectors[found] @ query
        shares.append(min(k, int((scores >= best[-1] - ROUNDING).sum())) / k)
    return float(np.mean(shares))
