"""Items that a batch is shown beside its own: none, the best by BM25 (DPR), the best by the encoder itself (ANCE).

A negative is an item that ranks high for a query of the batch though the query did not click it. Other queries of the
batch see it too; where one of them clicked it, the loss leaves that pair out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.extras import import_extra

BLOCK_SCORES = 8_000_000


class Negatives(Protocol):
    """The items that a step sees beside the clicked ones."""

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        """Distinct item rows, called once per step.

        Args:
            step: Which.
            query_rows: (batch,) the step's queries.
            queries: (batch, dim) their embeddings, just made.
            embed_items: Makes (items, dim) by the encoder as it is now; costs an encoding of all items.
        """

    def state(self) -> Arrays:
        """What a checkpoint has to keep."""

    def restore(self, arrays: Arrays) -> None:
        """Take up a state."""


class NoNegatives:
    """The items of the batch are enough."""

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        return np.empty(0, np.int64)

    def state(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing to take up."""


class ListedNegatives(NoNegatives):
    """From a list per query that does not change, such as the best by BM25.

    Args:
        listed: (queries, many) item rows, −1 where there are no more.
        per_query: Drawn per query and step.
        seed: Of the draw.
    """

    def __init__(self, listed: Rows, per_query: int = 1, seed: int = 0):
        self.listed, self.per_query, self.seed = listed, per_query, seed

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        return _some_of_each(
            self.listed[query_rows], self.per_query, np.random.default_rng([self.seed, step])
        )


class IndexNegatives:
    """The best by the encoder itself, from an index of all items that is made anew every `refresh` steps.

    The query side is never stale: a batch's queries search the index with the embeddings the step has just made.

    Args:
        items: (items, dim) embeddings by the encoder as training starts.
        clicks: (queries, items).
        per_query: Drawn per query and step,
        depth: among this many of the best.
        refresh: Steps between two encodings of all items.
        seed: Of the draw.
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
        self.items, self.clicks = np.asarray(items, dtype=np.float32), clicks
        self.per_query, self.depth, self.refresh, self.seed = per_query, depth, refresh, seed

    def draw(self, step: int, query_rows: Rows, queries: Floats, embed_items: Callable[[], Floats]) -> Rows:
        if step and step % self.refresh == 0:
            self.items = embed_items()
        best = hardest(lambda rows: queries[rows] @ self.items.T, self.clicks[query_rows], self.depth)
        return _some_of_each(best, self.per_query, np.random.default_rng([self.seed, step]))

    def state(self) -> Arrays:
        return {"items": self.items}

    def restore(self, arrays: Arrays) -> None:
        self.items = np.array(arrays["items"])


def hardest(score: Callable[[Rows], Floats], clicks: csr_array, many: int) -> Rows:
    """(queries, many) columns of `clicks`, the best scored ones that the query did not click; −1 where there are no
    more.

    Args:
        score: Rows of `clicks` to (n, items) float32 scores; called in blocks.
        clicks: (queries, items).
        many: How many per query.
    """
    queries, items = clicks.shape
    found = np.full((queries, many), -1, dtype=np.int64)
    block = max(1, BLOCK_SCORES // items)
    for start in range(0, queries, block):
        part = np.arange(start, min(start + block, queries))
        scores, clicked = score(part), clicks[part]
        scores[np.repeat(np.arange(len(part)), np.diff(clicked.indptr)), clicked.indices] = -np.inf
        # Most scores of words are 0, and which of those that tie is taken matters to nobody.
        best, columns = torch.topk(torch.from_numpy(scores), min(many, items), dim=1)
        found[part, : best.shape[1]] = np.where(torch.isfinite(best), columns, -1)
    return found


def best_by_bm25(queries: Sequence[str], items: Sequence[str], clicks: csr_array, many: int = 10) -> Rows:
    """(queries, many) the items with most words in common that were not clicked, by the package bm25s; −1 pads."""
    bm25s = import_extra("bm25s", "research")
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(items), show_progress=False), show_progress=False)
    clicked = np.diff(clicks.indptr)
    deep = min(len(items), many + int(clicked.max(initial=0)))
    asked = bm25s.tokenize(list(queries), show_progress=False)
    best, scores = index.retrieve(asked, k=deep, show_progress=False)
    listed = np.full((len(queries), many), -1, dtype=np.int64)
    for row, (columns, found) in enumerate(zip(best, scores, strict=True)):
        mine = clicks.indices[clicks.indptr[row] : clicks.indptr[row + 1]]
        kept = columns[(found > 0) & ~np.isin(columns, mine)][:many]
        listed[row, : len(kept)] = kept
    return listed


def _some_of_each(listed: Rows, many: int, random: np.random.Generator) -> Rows:
    """Distinct entries, `many` drawn from each row; −1 is nothing."""
    keys = np.where(listed >= 0, random.random(listed.shape), np.inf)
    columns = np.argsort(keys, axis=1, kind="stable")[:, :many]
    drawn = np.unique(np.take_along_axis(listed, columns, axis=1))
    return drawn[drawn >= 0]
