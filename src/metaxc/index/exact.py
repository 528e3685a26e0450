"""Exact search over all vectors of a table: `ExactIndex`, and what it shares with `ScanIndex`.

A matrix product rounds the same row differently at different positions, so equal vectors would not tie and their order
would be random. Here the product only finds candidates; their scores are computed again, each row by itself, and ties
are ordered by key. So a score is the same to the last bit in every index, for a single query or in a batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metaxc.arrays import Floats, Keys, Rows
from metaxc.artifacts import Arrays, atomic_folder, save_arrays, save_json
from metaxc.index.topk import top_k
from metaxc.index.vector_table import (
    ReadWriteLock,
    VectorTable,
    validate_k,
    validate_keys,
    validate_vectors,
)

EXTRA_CANDIDATES = 16
"""Candidates beyond k, so that rounding and most ties are resolved without looking at all scores again."""

ROUNDING = 8 * float(np.finfo(np.float32).eps)
"""Times √dim · |query| · |vector|: more than the difference between two float32 inner products of the same vectors."""

BLOCK_BYTES = 32 << 20
"""Bytes of vectors that are gathered at a time for a batch of queries."""

FOLDER_KIND = "index"
VECTORS_FILE, CODES_FILE, ABOUT_FILE = "vectors.safetensors", "codes.safetensors", "index.json"


class TableIndex:
    """What all indexes share: a table of vectors behind a lock, exact search, and saving.

    Args:
        dim: Length of a vector.
    """

    kind: ClassVar[str]

    def __init__(self, dim: int):
        self.dim = dim
        self._table = VectorTable(dim)
        self._lock = ReadWriteLock()

    def __len__(self) -> int:
        return self._table.count

    def __contains__(self, key: int) -> bool:
        return key in self._table

    def search_exactly(self, vectors: Floats, k: int) -> tuple[Keys, Floats]:
        """Find the k best keys of each query by comparing every vector."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            return search_table(self._table, queries, k)

    def save(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Write the index as it is now; it may change while the folder is written."""
        with self._lock.reading():
            keys, vectors = self._table.copy_contents()
            codes = self.code_arrays()
        with atomic_folder(folder, FOLDER_KIND, overwrite=True, in_catalog=True) as new:
            save_arrays(new / VECTORS_FILE, {"keys": keys, "vectors": vectors})
            if codes is not None:
                save_arrays(new / CODES_FILE, codes)
            about = {"kind": self.kind, "dim": self.dim, "count": len(keys), "coded": codes is not None}
            save_json(new / ABOUT_FILE, {**about, "facts": metadata})

    def code_arrays(self) -> Arrays | None:
        return None


class ExactIndex(TableIndex):
    """Exact search by a matrix product over all vectors. See `metaxc.index.interface.Index` for the methods.

    Args:
        dim: Length of a vector.

    Example:
        >>> index = ExactIndex(2)
        >>> index.add(np.array([7, 8]), np.array([[1, 0], [0, 1]], np.float32))
        >>> index.search(np.array([[0.1, 0.9]], np.float32), 1)[0]
        array([[8]])
    """

    kind: ClassVar[str] = "exact"

    def __repr__(self) -> str:
        return f"ExactIndex({len(self):,} vectors of {self.dim} dimensions)"

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add or replace vectors."""
        keys = validate_keys(keys)
        vectors = validate_vectors(vectors, self.dim, len(keys))
        with self._lock.writing():
            self._table.upsert(keys, vectors)

    def remove(self, keys: Keys) -> None:
        """Remove vectors; an unknown key is a `DataError`."""
        keys = validate_keys(keys)
        with self._lock.writing():
            self._table.remove(keys)

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """Find the k best keys of each query."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            allowed_rows = None if allowed is None else self._table.find_known(np.asarray(allowed, np.int64))
            return search_table(self._table, queries, k, allowed_rows)

    @classmethod
    def from_vectors(cls, keys: Keys, vectors: Floats) -> ExactIndex:
        """Build an index of keys and vectors that have been validated."""
        index = cls(vectors.shape[1])
        index._table.upsert(keys, vectors)
        return index


def empty_results(queries: int, k: int) -> tuple[Keys, Floats]:
    """Keys (queries, k) of −1 and scores of −inf, to be filled in."""
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)


def rank_candidates(table: VectorTable, query: Floats, candidates: Rows, k: int) -> tuple[Rows, Floats]:
    """Score candidate rows exactly and rank the best k of them.

    Args:
        table: The vectors.
        query: (dim,) float32.
        candidates: (c,) rows of the table.
        k: Number of results.

    Returns:
        Positions in `candidates`, and scores, best first, ties by key.
    """
    scores = np.vecdot(table.vectors[candidates], query)
    positions = np.arange(len(scores))
    if len(scores) > 4 * k:
        positions = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    order = positions[np.lexsort((table.keys[candidates[positions]], -scores[positions]))[:k]]
    return order, scores[order]


def search_table(
    table: VectorTable, queries: Floats, k: int, allowed_rows: Rows | None = None
) -> tuple[Keys, Floats]:
    """Find the k best rows of a table for each query, exactly.

    Args:
        table: The vectors.
        queries: (n, dim) float32.
        k: Number of results.
        allowed_rows: Rows that may be returned, all if None.

    Returns:
        keys (n, k) int64 and scores (n, k) float32, best first, ties by key, padded with −1 and −inf.
    """
    keys, scores = empty_results(len(queries), k)
    matrix = table.vectors[: table.count] if allowed_rows is None else table.vectors[allowed_rows]
    if len(matrix) == 0 or len(queries) == 0:
        return keys, scores
    remaining = [0]
    if len(queries) > 1:
        remaining = _search_batch(table, queries, k, allowed_rows, matrix, keys, scores)
    for query in remaining:
        found, found_scores = _search_one(table, queries[query], k, allowed_rows, matrix)
        keys[query, : len(found)] = table.keys[found]
        scores[query, : len(found)] = found_scores
    return keys, scores


def _search_one(
    table: VectorTable, query: Floats, k: int, allowed_rows: Rows | None, matrix: Floats
) -> tuple[Rows, Floats]:
    approximate = matrix @ query
    width = k + EXTRA_CANDIDATES
    if len(approximate) <= width:
        rows = np.arange(len(approximate))
    else:
        rows = np.argpartition(approximate, len(approximate) - width)[len(approximate) - width :]
    order, scores = rank_candidates(table, query, _table_rows(rows, allowed_rows), k)
    if len(rows) < len(approximate):
        last = rows[order[-1]]
        lowest = approximate[last] - _rounding_error(query, matrix[last])
        if approximate[rows].min() >= lowest:  # rows beyond the candidates may tie with the last result
            rows = np.flatnonzero(approximate >= lowest)
            order, scores = rank_candidates(table, query, _table_rows(rows, allowed_rows), k)
    return _table_rows(rows[order], allowed_rows), scores


def _search_batch(
    table: VectorTable,
    queries: Floats,
    k: int,
    allowed_rows: Rows | None,
    matrix: Floats,
    keys: Keys,
    scores: Floats,
) -> list[int]:
    """Fill in the results; return the queries that must be searched one by one because of ties."""
    width = min(k + EXTRA_CANDIDATES, len(matrix))
    rows, approximate = top_k(queries, matrix, width)
    found = min(k, width)
    remaining: list[int] = []
    step = max(1, BLOCK_BYTES // (width * matrix.shape[1] * 4))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        exact = np.vecdot(matrix[rows[block]], queries[block, None, :])
        candidate_keys = table.keys[_table_rows(rows[block], allowed_rows)]
        order = np.lexsort((candidate_keys, -exact), axis=-1)[:, :found]
        keys[block, :found] = np.take_along_axis(candidate_keys, order, 1)
        scores[block, :found] = np.take_along_axis(exact, order, 1)
        if width < len(matrix):
            last = np.take_along_axis(rows[block], order[:, -1:], 1)[:, 0]
            lowest = np.take_along_axis(approximate[block], order[:, -1:], 1)[:, 0]
            tied = approximate[block, -1] >= lowest - _rounding_error(queries[block], matrix[last])
            remaining += (start + np.flatnonzero(tied)).tolist()
    return remaining


def _rounding_error(queries: Floats, vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(queries, axis=-1) * np.linalg.norm(vectors, axis=-1)
    return lengths * np.float32(ROUNDING * np.sqrt(vectors.shape[-1]))


def _table_rows(rows: Rows, allowed_rows: Rows | None) -> Rows:
    return rows if allowed_rows is None else allowed_rows[rows]
