"""Reciprocal rank fusion: several rankings made one by their ranks alone (Cormack, Clarke and Büttcher, 2009).

    score(item) = Σ over rankings of 1 / (60 + rank of the item), the first rank being 1

An item that a ranking does not have gets nothing from it. It needs no training and no comparable scores, so it is what
hybrid search (an encoder and BM25) usually does; the constant 60 is the paper's and that of search engines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaxc.arrays import Mask, Rows
from metaxc.errors import DataError
from metaxc.evaluation.searches import Search

RRF_CONSTANT = 60


def fuse_rankings(rankings: Sequence[Rows], k: int, constant: int = RRF_CONSTANT) -> Rows:
    """(queries, k) int64: the items with the highest sums of 1 / (constant + rank); −1 pads, equal sums rank by row.

    Args:
        rankings: Of each, (queries, depth) rows of items, best first; −1 for no result. Depths may differ.
        k: The number of items per query.
        constant: The larger it is, the less the first ranks count more than the others.
    """
    if len({len(ranking) for ranking in rankings}) != 1:
        raise DataError(
            "The rankings cannot be fused",
            got=f"rankings of {[len(ranking) for ranking in rankings]} queries",
            expected="one or more rankings of the same queries",
        )
    fused = np.full((len(rankings[0]), k), -1, dtype=np.int64)
    gains = np.concatenate([1.0 / (constant + 1 + np.arange(ranking.shape[1])) for ranking in rankings])
    for query, rows in enumerate(np.concatenate(rankings, axis=1)):
        found = rows >= 0
        items, places = np.unique(rows[found], return_inverse=True)
        scores = np.bincount(places, gains[found], minlength=len(items))
        best = items[np.argsort(-scores, kind="stable")[:k]]
        fused[query, : len(best)] = best
    return fused


def fuse_searches(searches: Sequence[Search]) -> Search:
    """A search by the fused rankings of several. Each ranks the items that may be ranked, as deep as the fused one."""

    def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        return fuse_rankings([one(queries, k, among) for one in searches], k)

    return search
