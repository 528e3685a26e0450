"""The best k of many vectors by inner product, exactly, in blocks.

Memory is bounded by the block sizes, whatever the number of vectors. Ties break by row order, so that the
same scores always give the same ranking.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaxc.arrays import Floats, Rows

QUERY_BLOCK = 512
VECTOR_BLOCK = 65_536
"""512 × 65,536 float32 scores are 128 MiB, the most that is held at once."""


def top_k(
    queries: Floats, vectors: Floats, k: int, allowed: NDArray[np.bool_] | None = None
) -> tuple[Rows, Floats]:
    """Rows of the k largest inner products, best first.

    Args:
        queries: (n, dim) float32.
        vectors: (m, dim) float32; need not be normalised.
        k: How many; where fewer vectors are allowed the answer is padded with row −1, score −inf.
        allowed: (m,) bool, the vectors that may be answered; all when None.

    Returns:
        rows (n, k) int64 and scores (n, k) float32.
    """
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    places = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    if k == 0 or len(places) == 0 or len(queries) == 0:
        return rows, scores
    candidates = np.ascontiguousarray(vectors) if allowed is None else np.ascontiguousarray(vectors[places])
    matrix = torch.from_numpy(_writable(candidates))
    for start in range(0, len(queries), QUERY_BLOCK):
        block = torch.from_numpy(_writable(np.ascontiguousarray(queries[start : start + QUERY_BLOCK])))
        best_scores, best_places = _best_of_block(block, matrix, k)
        found = best_scores.shape[1]
        rows[start : start + len(block), :found] = places[best_places.numpy()]
        scores[start : start + len(block), :found] = best_scores.numpy()
    return rows, scores


def best_rows(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row of a score matrix, best first, ties by column order.

    Args:
        scores: (n, m) float32.
        k: How many; at most m are returned.

    Returns:
        scores (n, min(k, m)) and columns (n, min(k, m)) int64.
    """
    k = min(k, scores.shape[1])
    best, columns = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    if k < scores.shape[1]:
        # topk picks any of the columns that tie with the k-th: only rows where the next best ties are sorted in full.
        tied = (best[:, k - 1] == best[:, k]).nonzero().flatten()
        best, columns = best[:, :k], columns[:, :k]
        if len(tied):
            order = torch.sort(scores[tied], dim=1, descending=True, stable=True)
            best[tied], columns[tied] = order.values[:, :k], order.indices[:, :k]
    columns, by_column = torch.sort(columns, dim=1)
    best, by_score = torch.sort(best.gather(1, by_column), dim=1, descending=True, stable=True)
    return best, columns.gather(1, by_score)


def _best_of_block(queries: Tensor, matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    best_scores = torch.empty(len(queries), 0)
    best_places = torch.empty(len(queries), 0, dtype=torch.int64)
    for start in range(0, len(matrix), VECTOR_BLOCK):
        scores, places = best_rows(queries @ matrix[start : start + VECTOR_BLOCK].T, k)
        # Earlier blocks come first, so the stable order keeps ties in row order.
        all_scores = torch.cat([best_scores, scores], dim=1)
        all_places = torch.cat([best_places, places + start], dim=1)
        best_scores, columns = best_rows(all_scores, k)
        best_places = all_places.gather(1, columns)
    return best_scores, best_places


def _writable(array: Floats) -> Floats:
    """Torch warns of read-only (memory-mapped) arrays, though nothing here writes: it gets a copy."""
    return array if array.flags.writeable else array.copy()
