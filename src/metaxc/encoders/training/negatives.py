"""Hard negatives that are added to a batch's own items: none, found by BM25 (DPR), or by the encoder itself (ANCE).

A hard negative is an item that ranks high for a query of the batch although the query did not click it. It is a
negative for the other queries of the batch too; where one of them clicked it, the loss leaves that pair out.

sentence-transformers' `mine_hard_negatives` mines once, before training, from text pairs with one positive each. Here
the encoder's index is refreshed while it trains, uses the embeddings that each step has just computed, excludes every
clicked item, and is part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.extras import import_extra
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
from metaxc.metrics import without_pairs

BLOCK_SCORES = 8_000_000


class Negatives:
    """Adds hard negatives to the items that the queries of a step clicked. The base class adds none."""

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        """Distinct item rows; called once per step.

        Args:
            step: The number of the step.
            query_rows: (batch,) the queries of the step.
            queries: (batch, dim) their embeddings, just computed.
            embed_items: Returns (items, dim) by the current encoder; costs an encoding of all items.
        """
        return np.empty(0, np.int64)

    def state(self) -> Arrays:
        """The state for a checkpoint."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Set the state to the result of `state`."""


class ListedNegatives(Negatives):
    """Negatives from a list per query that does not change, such as BM25's.

    Args:
        listed: (queries, n) item rows, −1 pads.
        per_query: The number of negatives drawn per query and step.
        seed: Decides the draw.
    """

    def __init__(self, listed: Rows, per_query: int = 1, seed: int = 0):
        self.listed, self.per_query, self.seed = listed, per_query, seed

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        return _sample(self.listed[query_rows], self.per_query, np.random.default_rng([self.seed, step]))


class IndexNegatives(Negatives):
    """The items that the encoder itself ranks highest, from an index of all items refreshed every `refresh` steps.

    Only the items may be out of date: a batch's queries search with the embeddings that the step has just computed.

    Args:
        items: (items, dim) embeddings by the encoder at the start of training.
        clicks: (queries, items).
        per_query: The number of negatives drawn per query and step.
        depth: Negatives are drawn from this many of the highest-ranked items.
        refresh: Steps between two encodings of all items.
        seed: Decides the draw.
    """

    def __init__(
        self,
        items: Floats,
        clicks: csr_array,
        *,
        per_query: int = 1,
        depth: int = 20,
        refresh: int = 200,
        seed: int = 0,
    ):
        self.items, self.clicks = (
            ArraySearch(np.asarray(items, dtype=np.float32), most_scanned=MOST_SCANNED),
            clicks,
        )
        self.per_query, self.depth, self.refresh, self.seed = per_query, depth, refresh, seed

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        if step and step % self.refresh == 0:
            self.items = ArraySearch(embed_items(), most_scanned=MOST_SCANNED)
        clicked = csr_array(self.clicks[query_rows])
        if self.items.is_indexed:
            most = int(np.diff(clicked.indptr).max(initial=0))
            found, _ = self.items.search(np.asarray(queries, np.float32), self.depth + most)
            best = without_pairs(found, clicked)[:, : self.depth]
        else:
            best = hardest(lambda rows: queries[rows] @ self.items.vectors.T, clicked, self.depth)
        return _sample(best, self.per_query, np.random.default_rng([self.seed, step]))

    def state(self) -> Arrays:
        return {"items": self.items.vectors}

    def restore(self, arrays: Arrays) -> None:
        self.items = ArraySearch(np.array(arrays["items"]), most_scanned=MOST_SCANNED)


def hardest(score: Callable[[Rows], Floats], clicks: csr_array, many: int) -> Rows:
    """(queries, many) item rows: the highest-scored items that the query did not click; −1 pads.

    Args:
        score: Returns (n, items) float32 scores for some rows of `clicks`; called in blocks.
        clicks: (queries, items).
        many: The number of items per query.
    """
    queries, items = clicks.shape
    found = np.full((queries, many), -1, dtype=np.int64)
    block = max(1, BLOCK_SCORES // items)
    for start in range(0, queries, block):
        part = np.arange(start, min(start + block, queries))
        scores, clicked = score(part), clicks[part]
        scores[np.repeat(np.arange(len(part)), np.diff(clicked.indptr)), clicked.indices] = -np.inf
        # Most scores by words are 0, so the order among ties does not matter.
        best, columns = torch.topk(torch.from_numpy(scores), min(many, items), dim=1)
        found[part, : best.shape[1]] = np.where(torch.isfinite(best), columns, -1)
    return found


def find_by_bm25(queries: Sequence[str], items: Sequence[str], clicks: csr_array, many: int = 10) -> Rows:
    """(queries, many) the highest-ranked items by BM25 (package bm25s) that were not clicked; −1 pads."""
    bm25s = import_extra("bm25s", "research")
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(items), show_progress=False), show_progress=False)
    clicked = np.diff(clicks.indptr)
    depth = min(len(items), many + int(clicked.max(initial=0)))
    tokens = bm25s.tokenize(list(queries), show_progress=False)
    best, scores = index.retrieve(tokens, k=depth, show_progress=False)
    listed = np.full((len(queries), many), -1, dtype=np.int64)
    for row, (columns, found) in enumerate(zip(best, scores, strict=True)):
        mine = clicks.indices[clicks.indptr[row] : clicks.indptr[row + 1]]
        kept = columns[(found > 0) & ~np.isin(columns, mine)][:many]
        listed[row, : len(kept)] = kept
    return listed


def _sample(listed: Rows, many: int, random: np.random.Generator) -> Rows:
    """Distinct entries, `many` drawn from each row; −1 pads."""
    keys = np.where(listed >= 0, random.random(listed.shape), np.inf)
    columns = np.argsort(keys, axis=1, kind="stable")[:, :many]
    drawn = np.unique(np.take_along_axis(listed, columns, axis=1))
    return drawn[drawn >= 0]
