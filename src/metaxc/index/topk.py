"""The k largest inner products, computed exactly in blocks.

The block sizes bound the memory for any number of vectors. Ties are ordered by row, so that the same scores always give
the same ranking.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metaxc.arrays import Floats, Mask, Rows

QUERY_BLOCK = 512
VECTOR_BLOCK = 65_536
"""512 × 65,536 float32 scores take 128 MiB, the largest array that is in memory at a time."""

GROUP = 64
"""Columns whose largest score is looked at first, where there are many columns: the k best are in the k groups with the
largest maximum, and a maximum is found several times faster than the k best."""


def top_k(queries: Floats, vectors: Floats, k: int, allowed: Mask | None = None) -> tuple[Rows, Floats]:
    """Find the k largest inner products of each query, best first.

    Args:
        queries: (n, dim) float32.
        vectors: (m, dim) float32; need not be normalised.
        k: Number of results; if fewer vectors are allowed, the result is padded with row −1 and score −inf.
        allowed: (m,) bool, the vectors that may be returned; all if None.

    Returns:
        rows (n, k) int64 and scores (n, k) float32.
    """
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    positions = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    if k == 0 or len(positions) == 0 or len(queries) == 0:
        return rows, scores
    candidates = (
        np.ascontiguousarray(vectors) if allowed is None else np.ascontiguousarray(vectors[positions])
    )
    matrix = torch.from_numpy(_writable(candidates))
    for start in range(0, len(queries), QUERY_BLOCK):
        block = torch.from_numpy(_writable(np.ascontiguousarray(queries[start : start + QUERY_BLOCK])))
        best_scores, best_positions = _best_of_block(block, matrix, k)
        found = best_scores.shape[1]
        rows[start : start + len(block), :found] = positions[best_positions.numpy()]
        scores[start : start + len(block), :found] = best_scores.numpy()
    return rows, scores


def best_rows(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest scores of each row of a matrix, best first, ties by column.

    Args:
        scores: (n, m) float32.
        k: Number of results; at most m are returned.

    Returns:
        scores (n, min(k, m)) and columns (n, min(k, m)) int64.
    """
    k = min(k, scores.shape[1])
    best, columns = _largest(scores, min(k + 1, scores.shape[1]))
    if k < scores.shape[1]:
        # torch.topk returns any of the columns that tie with the k-th, so rows in which the next one ties are sorted.
        tied = (best[:, k - 1] == best[:, k]).nonzero().flatten()
        best, columns = best[:, :k], columns[:, :k]
        if len(tied):
            order = torch.sort(scores[tied], dim=1, descending=True, stable=True)
            best[tied], columns[tied] = order.values[:, :k], order.indices[:, :k]
    columns, by_column = torch.sort(columns, dim=1)
    best, by_score = torch.sort(best.gather(1, by_column), dim=1, descending=True, stable=True)
    return best, columns.gather(1, by_score)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their columns, best first; of scores that tie with the k-th, any."""
    groups = scores.shape[1] // GROUP
    if groups < 4 * k:
        return torch.topk(scores, k, dim=1)
    grouped = scores[:, : groups * GROUP].view(len(scores), groups, GROUP)
    chosen = torch.topk(grouped.amax(dim=2), k, dim=1, sorted=False).indices
    rest = torch.arange(groups * GROUP, scores.shape[1])
    candidates = chosen[:, :, None] * GROUP + torch.arange(GROUP)
    columns = torch.cat([candidates.flatten(1), rest.expand(len(scores), -1)], dim=1)
    best, places = torch.topk(scores.gather(1, columns), k, dim=1)
    return best, columns.gather(1, places)


def _best_of_block(queries: Tensor, matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    best_scores = torch.empty(len(queries), 0)
    best_positions = torch.empty(len(queries), 0, dtype=torch.int64)
    for start in range(0, len(matrix), VECTOR_BLOCK):
        scores, positions = best_rows(queries @ matrix[start : start + VECTOR_BLOCK].T, k)
        # Earlier blocks come first, so the stable sort keeps ties in row order.
        all_scores = torch.cat([best_scores, scores], dim=1)
        all_positions = torch.cat([best_positions, positions + start], dim=1)
        best_scores, columns = best_rows(all_scores, k)
        best_positions = all_positions.gather(1, columns)
    return best_scores, best_positions


def _writable(array: Floats) -> Floats:
    """A writable view of a read-only (memory-mapped) array, without a copy.

    torch warns about a read-only array, although nothing here writes to it; a copy of a million vectors of 384
    dimensions would take 1.5 GB on each call.
    """
    return array if array.flags.writeable else np.asarray(_WritableInterface(array))


class _WritableInterface:
    """The memory of an array, declared writable; the view that NumPy makes of it keeps the array alive."""

    def __init__(self, array: Floats):
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
