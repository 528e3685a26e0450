"""What near queries clicked: the query's side of a neighbourhood.

A novel item borrows from its nearest observed items; a query can borrow too, from the training queries nearest to
it. It is moved towards the items that they clicked,

    q' = q + strength · Σ softmax(similarity / temperature) · m,

m the mean embedding of what a remembered query clicked. Nothing is trained, and items need not know of it: only
what is searched with changes. It costs a search among the remembered queries, and their room (docs/results.md has
what it brings). Whether it is used, and how strongly, is chosen on pseudo-novel items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.index.topk import top_k


class Recall(BaseModel):
    """How a query uses the memory. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    neighbours: int = Field(5, ge=1, description="remembered queries that a query borrows from")
    temperature: float = Field(0.1, gt=0, description="how evenly they count")
    strength: float = Field(0.5, ge=0, description="how far the query is moved; 0 leaves it alone")


class QueryMemory:
    """Training queries and what they clicked.

    Args:
        queries: (remembered, dim) embeddings; kept with half precision, so that a saved memory is the same.
        clicks: (remembered, observed) with at least one click per row.
        embeddings: (observed, dim) of the observed items.
        recall: How it is used.
    """

    def __init__(self, queries: Floats, clicks: csr_array, embeddings: Floats, recall: Recall | None = None):
        self.queries = np.asarray(queries, dtype=np.float16).astype(np.float32)
        self.clicks = clicks
        self.embeddings = embeddings
        self.recall = recall or Recall()
        counts = np.maximum(np.diff(clicks.indptr), 1)
        evenly = np.repeat(1.0 / counts, np.diff(clicks.indptr)).astype(np.float32)
        self._evenly = csr_array((evenly, clicks.indices, clicks.indptr), shape=clicks.shape)

    def __repr__(self) -> str:
        return f"QueryMemory({len(self):,} queries, {self.recall!r})"

    def __len__(self) -> int:
        return len(self.queries)

    @classmethod
    def sample(
        cls, queries: Floats, clicks: csr_array, embeddings: Floats, most: int, seed: int
    ) -> QueryMemory:
        """A memory of at most `most` queries, drawn at random."""
        if len(queries) > most:
            rows = np.sort(np.random.default_rng(seed).choice(len(queries), most, replace=False))
            queries, clicks = queries[rows], csr_array(clicks[rows])
        return cls(queries, clicks, embeddings)

    def using(self, recall: Recall) -> QueryMemory:
        """The same memory, used in another way."""
        other = object.__new__(QueryMemory)
        other.__dict__.update(self.__dict__, recall=recall)
        return other

    def near(self, queries: Floats, k: int) -> tuple[Rows, Floats]:
        """The k remembered queries nearest to each: rows and similarities, (n, k), −1 and −inf pad."""
        return top_k(queries, self.queries, k)

    def towards(self, rows: Rows, scores: Floats, temperature: float) -> Floats:
        """(n, dim) float32: the mean embedding of what the queries at `rows` clicked, the nearer the more."""
        weights = torch.softmax(torch.from_numpy(scores) / temperature, dim=1).nan_to_num().numpy()
        there = rows >= 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        picked = csr_array((weights[there], rows[there], starts), shape=(len(rows), len(self)))
        moved: Floats = ((picked @ self._evenly) @ self.embeddings).astype(np.float32)
        return moved

    def expand(self, queries: Floats) -> Floats:
        """(n, dim) float32: the queries, moved towards what their nearest remembered queries clicked."""
        if not self.recall.strength or not len(queries):
            return queries
        rows, scores = self.near(queries, self.recall.neighbours)
        return queries + self.recall.strength * self.towards(rows, scores, self.recall.temperature)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What to save; the embeddings are the model's."""
        return {
            "queries": self.queries.astype(np.float16),
            "starts": np.asarray(self.clicks.indptr, np.int64),
            "items": np.asarray(self.clicks.indices, np.int64),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], embeddings: Floats, recall: Recall) -> QueryMemory:
        """A memory from what `arrays` gave."""
        shape = (len(arrays["queries"]), len(embeddings))
        ones = np.ones(len(arrays["items"]), np.float32)
        clicks = csr_array((ones, arrays["items"], arrays["starts"]), shape=shape)
        return cls(arrays["queries"], clicks, embeddings, recall)
