"""Vectors that resemble those of a catalog, and the correct search results."""

from __future__ import annotations

import numpy as np

from metaxc.index import ExactIndex, IVFIndex, ScanIndex
from metaxc.index.search_plan import SearchPlan


class ThoroughIVFIndex(IVFIndex):
    """Scans all lists for a shortlist of 60, as the small `scan` index of the tests, so that its results are exact."""

    def __init__(self, dim: int, seed: int = 0, recall: float = 1.0):
        super().__init__(dim, seed, recall)
        self.plan = SearchPlan(recall, depths=(60.0, 600.0))

    def _measure(self, codes, target, reading):
        return self.plan


KINDS = [ExactIndex, ScanIndex, ThoroughIVFIndex]


def catalog_vectors(count: int, dim: int, seed: int, centres: int = 50):
    """(count, dim) float32: clustered, with varying norms."""
    random = np.random.default_rng(seed)
    middle = np.random.default_rng(99).standard_normal((centres, dim))
    vectors = middle[random.integers(0, centres, count)] + 0.8 * random.standard_normal((count, dim))
    lengths = random.lognormal(0, 0.25, (count, 1))
    return (lengths * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def brute_force(world: dict, queries, k: int, allowed=None):
    """Best keys (n, k) of a dict of vectors by key, scored in float64, ties by key."""
    keys = np.array(sorted(key for key in world if allowed is None or key in allowed), np.int64)
    answer = np.full((len(queries), k), -1, np.int64)
    if len(keys):
        vectors = np.stack([world[key] for key in keys.tolist()]).astype(np.float64)
        order = np.argsort(-(queries.astype(np.float64) @ vectors.T), axis=1, kind="stable")[:, :k]
        answer[:, : order.shape[1]] = keys[order]
    return answer


def recall(found, right) -> float:
    """Share of the correct keys that were found."""
    hits = [len(set(one) & set(other)) for one, other in zip(found.tolist(), right.tolist(), strict=True)]
    return sum(hits) / right.size


def stored_vectors(index, keys):
    """The vectors (n, dim) that an index has for the keys."""
    return index._table.vectors[index._table.find(np.asarray(keys))]
