"""Search in an array of vectors: exact, or from `INDEX_FROM` vectors on through an index.

If every pair is compared, finding the neighbours of all items among themselves takes time that grows with the square of
their number; through the index (`metaxc.index.ivf`) a search takes little longer when there are more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.extras import has_extra
from metaxc.index.interface import SCAN_DIM
from metaxc.index.ivf import IVFIndex
from metaxc.index.topk import top_k

log = logging.getLogger(__name__)

INDEX_FROM = 100_000
"""Number of vectors from which an index is used. At 200,000 of 384 dimensions it is built in 16 s and searched in 0.2
ms for each of many queries, 0.7 ms for a single one, on one thread at recall@10 0.95 (seen while developing)."""

RECALL = 0.99
"""Recall@10 that is asked of the index, on sample queries."""

MOST_SCANNED = 40_000
"""Codes that are scanned for the neighbours of an item or a query, at the most. Where vectors form no groups, a recall
of 0.99 takes half of all codes, and neighbours that are all alike are not worth it: of 86,338 items of a synthetic log
the first 21 found among 16,000 codes were as similar as the exact ones to 0.3 %, at a recall of 0.98 (seen while
developing)."""

RECALL_SAMPLE = 200
"""Rows on which `measure_recall` compares with an exact search."""

INDEX = "index."
"""What the names of the arrays of an index begin with, in a file that has other arrays too."""

SPARE = 32
"""Further rows that are looked up where few are excluded; where more than these were, all rows are compared."""

FEW = 0.01
"""The share of excluded rows that is few. With more of them the index itself leaves them out."""


class ArraySearch:
    """Finds the rows of an array with the largest inner products.

    Without faiss, or with few dimensions, all rows are compared however many there are.

    Args:
        vectors: (m, dim) float32; its rows must not change.
        arrays: What `arrays` returned for the same vectors, so that the index need not be built again; others are
            ignored.
        most_scanned: Codes that a search in the index scans at the most; None for as many as the recall takes.

    Example:
        >>> ArraySearch(np.eye(3, dtype=np.float32)).search(np.array([[0, 0.9, 0.1]], np.float32), 2)[0]
        array([[1, 2]])
    """

    def __init__(
        self,
        vectors: Floats,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        most_scanned: int | None = None,
    ):
        self.vectors, self.most_scanned = vectors, most_scanned
        given = {
            name.removeprefix(INDEX): one for name, one in (arrays or {}).items() if name.startswith(INDEX)
        }
        self._arrays: Arrays | None = given or None
        self._index: IVFIndex | None = None
        self._lock = Lock()

    @property
    def is_indexed(self) -> bool:
        """Whether searches go through an index, which the first of them builds."""
        many = len(self.vectors) >= INDEX_FROM and self.vectors.shape[1] >= SCAN_DIM
        return many and has_extra("faiss")

    def search(self, queries: Floats, k: int, excluded: Mask | None = None) -> tuple[Rows, Floats]:
        """The k best rows of each query and their inner products, best first; −1 and −inf pad.

        Args:
            queries: (n, dim) float32.
            k: How many.
            excluded: (m,) bool, rows that are not to be found; None for none.
        """
        if not self.is_indexed or not len(queries) or not k:
            return self.compare_all(queries, k, excluded)
        index = self._built()
        if excluded is None or not excluded.any():
            return index.search(queries, k)
        if excluded.mean() > FEW:
            return index.search(queries, k, np.flatnonzero(~excluded))
        rows, scores = index.search(queries, k + SPARE)
        scores[excluded[rows]] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
        short = np.isneginf(scores).any(axis=1)
        if short.any():
            rows[short], scores[short] = top_k(queries[short], self.vectors, k, ~excluded)
        return rows, scores

    def compare_all(self, queries: Floats, k: int, excluded: Mask | None = None) -> tuple[Rows, Floats]:
        """Like `search`, but all rows are compared: what an index is measured against."""
        return top_k(queries, self.vectors, k, None if excluded is None else ~excluded)

    def measure_recall(self) -> float | None:
        """The share of the ten nearest rows that a search finds for some rows themselves; None without an index."""
        if not self.is_indexed:
            return None
        sample = self.vectors[:: max(1, len(self.vectors) // RECALL_SAMPLE)]
        found, exact = self.search(sample, 10)[0], self.compare_all(sample, 10)[0]
        return float(np.mean([np.isin(*pair).mean() for pair in zip(exact, found, strict=True)]))

    def extend(self, vectors: Floats) -> None:
        """Add rows at the end; an index that exists takes them in and is not built again."""
        with self._lock:
            first = len(self.vectors)
            self.vectors = np.concatenate([self.vectors, vectors])
            if self._index is not None:
                self._index.add(np.arange(first, len(self.vectors)), vectors)

    def arrays(self) -> Arrays:
        """What the index is restored from, beside the vectors; none where all rows are compared."""
        found = (self._built().code_arrays() if self.is_indexed else None) or {}
        return {f"{INDEX}{name}": array for name, array in found.items()}

    def _built(self) -> IVFIndex:
        with self._lock:
            if self._index is None:
                keys = np.arange(len(self.vectors))
                vectors = np.ascontiguousarray(self.vectors)
                self._index = IVFIndex.restore(keys, vectors, self._arrays, RECALL, self.most_scanned)
                self._arrays = None
                log.info("neighbours are found by %r", self._index)
            return self._index
