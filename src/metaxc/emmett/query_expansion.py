"""Query expansion: a query is moved towards what the training queries nearest to it clicked.

A novel item takes from its nearest observed items; a query can do the same with its nearest training queries,

    q' = q + strength · Σ softmax(similarity / temperature) · m,

where m is the mean embedding of the items that a training query clicked. Nothing is trained and no item vector changes.
It costs one search among the training queries, through an index where there are many, and their memory
(`metaxc bench ablations` has a row without it). Whether it is used,
and how strongly, is chosen on pseudo-novel items.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array

from metaxc.array_checks import AGAIN, check_rows, take_array
from metaxc.arrays import Floats, Rows
from metaxc.emmett.scoring import MOST, MOST_NEIGHBOURS
from metaxc.errors import ModelError
from metaxc.index.array_search import MOST_SCANNED, ArraySearch


class ExpansionConfig(BaseModel):
    """How a query is expanded. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    neighbours: int = Field(
        5, ge=1, le=MOST_NEIGHBOURS, description="training queries that a query is expanded by"
    )
    temperature: float = Field(
        0.1, gt=0, le=MOST, description="temperature of the softmax over their similarities"
    )
    strength: float = Field(
        0.5, ge=0, le=MOST, description="how far the query is moved; 0 leaves it unchanged"
    )


class QueryExpansion:
    """Training queries and what they clicked.

    Args:
        queries: (queries, dim) embeddings; rounded to half precision, as they are saved.
        clicks: (queries, observed) with at least one click per row.
        embeddings: (observed, dim) embeddings of the observed items.
        config: How queries are expanded.
        later: How many of the items, the last ones, the model was not trained on: their embeddings are saved with the
            queries.
        index: What `index_arrays` returned for the same queries; None if an index is still to be built.
    """

    def __init__(
        self,
        queries: Floats,
        clicks: csr_array,
        embeddings: Floats,
        config: ExpansionConfig | None = None,
        later: int = 0,
        index: Mapping[str, NDArray[Any]] | None = None,
    ):
        self.later = later
        self.queries = np.asarray(queries, dtype=np.float16).astype(np.float32)
        self._search = ArraySearch(self.queries, index, MOST_SCANNED)
        self.clicks = clicks
        self.embeddings = embeddings
        self.config = config or ExpansionConfig()
        counts = np.diff(clicks.indptr)
        weights = np.repeat(1.0 / np.maximum(counts, 1), counts).astype(np.float32)
        self._mean_clicks = csr_array((weights, clicks.indices, clicks.indptr), shape=clicks.shape)

    def __repr__(self) -> str:
        return f"QueryExpansion({len(self):,} queries, {self.config!r})"

    def __len__(self) -> int:
        return len(self.queries)

    @classmethod
    def sample(
        cls, queries: Floats, clicks: csr_array, embeddings: Floats, most: int, seed: int
    ) -> QueryExpansion:
        """Keep at most `most` training queries, drawn at random."""
        if len(queries) > most:
            rows = np.sort(np.random.default_rng(seed).choice(len(queries), most, replace=False))
            queries, clicks = queries[rows], csr_array(clicks[rows])
        return cls(queries, clicks, embeddings)

    def with_config(self, config: ExpansionConfig) -> QueryExpansion:
        """The same training queries with another configuration; arrays are shared and never written."""
        other = copy(self)
        other.config = config
        return other

    def nearest(self, queries: Floats, k: int) -> tuple[Rows, Floats]:
        """Rows and similarities, (n, k), of the training queries nearest to each query; −1 and −inf pad."""
        return self._search.search(queries, k)

    def direction(self, rows: Rows, scores: Floats, temperature: float) -> Floats:
        """(n, dim) float32: the mean embedding of what the training queries at `rows` clicked, weighted by a softmax of
        their similarity."""
        weights = torch.softmax(torch.from_numpy(scores) / temperature, dim=1).nan_to_num().numpy()
        found = rows >= 0
        starts = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        chosen = csr_array((weights[found], rows[found], starts), shape=(len(rows), len(self)))
        moved: Floats = ((chosen @ self._mean_clicks) @ self.embeddings).astype(np.float32)
        return moved

    def expand(self, queries: Floats) -> Floats:
        """(n, dim) float32: the expanded queries."""
        if not self.config.strength or not len(queries):
            return queries
        rows, scores = self.nearest(queries, self.config.neighbours)
        return queries + self.config.strength * self.direction(rows, scores, self.config.temperature)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save; the embeddings of the observed items are saved with the model."""
        return {
            "queries": self.queries.astype(np.float16),
            "starts": np.asarray(self.clicks.indptr, np.int64),
            "items": np.asarray(self.clicks.indices, np.int64),
            **({"later": self.embeddings[-self.later :]} if self.later else {}),
        }

    def index_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the index to save beside `arrays`; none where all training queries are compared."""
        return self._search.arrays()

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        embeddings: Floats,
        config: ExpansionConfig,
        file: Path = Path("memory.safetensors"),
    ) -> QueryExpansion:
        """Restore what `arrays` and `index_arrays` returned; arrays that do not fit together are a `ModelError`."""
        queries = take_array(arrays, "queries", file, (None, embeddings.shape[1]), ("float16",))
        starts = take_array(arrays, "starts", file, (len(queries) + 1,), ("int64",))
        items = take_array(arrays, "items", file, (None,), ("int64",))
        later = 0
        if "later" in arrays:
            more = take_array(arrays, "later", file, (None, embeddings.shape[1]), ("float32",))
            embeddings, later = np.concatenate([embeddings, more]), len(more)
        check_rows(items, len(embeddings), "clicks of the query expansion")
        if starts[0] != 0 or starts[-1] != len(items) or (np.diff(starts) < 0).any():
            raise ModelError(
                "The clicks of the query expansion do not fit together", got=file.name, fix=AGAIN
            )
        shape = (len(queries), len(embeddings))
        clicks = csr_array((np.ones(len(items), np.float32), items, starts), shape=shape)
        return cls(queries, clicks, embeddings, config, later, arrays)
