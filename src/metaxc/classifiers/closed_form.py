"""Classifiers without a training loop: ridge regression and centroids, seconds for 10,000s of items."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.classifiers.classifiers import Classifiers, check_training, clicks_per_item, normalize_rows

QUERY_BLOCK = 65_536
ITEM_BLOCK = 65_536


def ridge(queries: Floats, clicks: csr_array, penalty: float = 1.0) -> Classifiers:
    """Least squares of the clicks on the query embeddings, all items at once:
    W = Yᵀ X (XᵀX + penalty·I)⁻¹, rows scaled to unit length.

    Args:
        queries: (queries, dim) float32, may be memory-mapped.
        clicks: (queries, observed).
        penalty: λ; on unit embeddings 1 is as good as any value between 0.3 and 10.
    """
    check_training(queries, clicks)
    dim = queries.shape[1]
    gram = penalty * np.eye(dim)
    for start in range(0, len(queries), QUERY_BLOCK):
        block = np.asarray(queries[start : start + QUERY_BLOCK], dtype=np.float32)
        gram += block.T @ block
    factor = cho_factor(gram)
    sums = _sum_of_queries(queries, clicks)
    for start in range(0, len(sums), ITEM_BLOCK):
        part = sums[start : start + ITEM_BLOCK]
        sums[start : start + ITEM_BLOCK] = normalize_rows(cho_solve(factor, part.T.astype(np.float64)).T)
    return Classifiers(sums, clicks_per_item(clicks))


def centroid(queries: Floats, clicks: csr_array) -> Classifiers:
    """The mean embedding of the queries that clicked an item, at unit length."""
    check_training(queries, clicks)
    return Classifiers(normalize_rows(_sum_of_queries(queries, clicks)), clicks_per_item(clicks))


def _sum_of_queries(queries: Floats, clicks: csr_array) -> Floats:
    return np.asarray(clicks.T @ np.asarray(queries, dtype=np.float32), dtype=np.float32)
