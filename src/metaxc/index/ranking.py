"""Exact answers over slots, in an order that depends on nothing but scores and keys.

A matrix product rounds the same row differently in different places, so twins would not tie and their order would
be chance. It only finds the candidates here; their scores are computed again, each row by itself, and ties go by
key. So a score is the same to the last bit whichever index gives it, alone or in a batch.
"""

from __future__ import annotations

import numpy as np

from metaxc.arrays import Floats, Keys, Rows
from metaxc.index.slots import Slots
from metaxc.index.topk import top_k

SPARE = 16
"""Candidates beyond k, so that rounding and most ties are settled without a second look at all scores."""

ROUNDING = 8 * float(np.finfo(np.float32).eps)
"""Times √dim · |query| · |vector|: more than two float32 inner products of the same vectors differ by."""

BLOCK_BYTES = 32 << 20
"""Vectors that are gathered at once, for a batch of queries."""


def padded(queries: int, k: int) -> tuple[Keys, Floats]:
    """An answer that names nothing: keys (queries, k) of −1, scores of −inf."""
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)


def ranked(slots: Slots, query: Floats, candidates: Rows, k: int) -> tuple[Rows, Floats]:
    """The best k of the candidate slots, scored exactly: places among the candidates, and scores, best first.

    Args:
        query: (dim,) float32.
        candidates: (c,) slots.
    """
    scores = np.vecdot(slots.vectors[candidates], query)
    places = np.arange(len(scores))
    if len(scores) > 4 * k:
        places = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    order = places[np.lexsort((slots.keys[candidates[places]], -scores[places]))[:k]]
    return order, scores[order]


def best(slots: Slots, queries: Floats, k: int, among: Rows | None = None) -> tuple[Keys, Floats]:
    """The k best slots of each query (n, dim), exactly; `among` are the slots that may be answered, all when None.

    Returns:
        keys (n, k) int64 and scores (n, k) float32, best first, ties by key, padded with −1 and −inf.
    """
    keys, scores = padded(len(queries), k)
    matrix = slots.vectors[: slots.count] if among is None else slots.vectors[among]
    if len(matrix) == 0 or len(queries) == 0:
        return keys, scores
    alone = [0]
    if len(queries) > 1:
        alone = _best_of_batch(slots, queries, k, among, matrix, keys, scores)
    for row in alone:
        found, found_scores = _best_of_one(slots, queries[row], k, among, matrix)
        keys[row, : len(found)] = slots.keys[found]
        scores[row, : len(found)] = found_scores
    return keys, scores


def _best_of_one(
    slots: Slots, query: Floats, k: int, among: Rows | None, matrix: Floats
) -> tuple[Rows, Floats]:
    rough = matrix @ query
    if len(rough) <= k + SPARE:
        rows = np.arange(len(rough))
    else:
        rows = np.argpartition(rough, len(rough) - k - SPARE)[len(rough) - k - SPARE :]
    order, scores = ranked(slots, query, _slots_of(rows, among), k)
    if len(rows) < len(rough):
        last = rows[order[-1]]
        lowest = rough[last] - _slack(query, matrix[last])
        if rough[rows].min() >= lowest:  # more than the spare ones may tie with the last
            rows = np.flatnonzero(rough >= lowest)
            order, scores = ranked(slots, query, _slots_of(rows, among), k)
    return _slots_of(rows[order], among), scores


def _best_of_batch(
    slots: Slots,
    queries: Floats,
    k: int,
    among: Rows | None,
    matrix: Floats,
    keys: Keys,
    scores: Floats,
) -> list[int]:
    """Fill in the answers; return the queries that need a look of their own, because of ties."""
    width = min(k + SPARE, len(matrix))
    rows, rough = top_k(queries, matrix, width)
    found = min(k, width)
    alone: list[int] = []
    step = max(1, BLOCK_BYTES // (width * matrix.shape[1] * 4))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        exact = np.vecdot(matrix[rows[block]], queries[block, None, :])
        names = slots.keys[_slots_of(rows[block], among)]
        order = np.lexsort((names, -exact), axis=-1)[:, :found]
        keys[block, :found] = np.take_along_axis(names, order, 1)
        scores[block, :found] = np.take_along_axis(exact, order, 1)
        if width < len(matrix):
            last = np.take_along_axis(rows[block], order[:, -1:], 1)[:, 0]
            lowest = np.take_along_axis(rough[block], order[:, -1:], 1)[:, 0]
            tied = rough[block, -1] >= lowest - _slack(queries[block], matrix[last])
            alone += (start + np.flatnonzero(tied)).tolist()
    return alone


def _slack(queries: Floats, vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(queries, axis=-1) * np.linalg.norm(vectors, axis=-1)
    return lengths * np.float32(ROUNDING * np.sqrt(vectors.shape[-1]))


def _slots_of(rows: Rows, among: Rows | None) -> Rows:
    return rows if among is None else among[rows]
