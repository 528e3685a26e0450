"""The interface of all baselines.

A baseline is fitted on the clicks of the observed items and then scores every item of the data set, novel ones by their
texts alone. The contract is scores, not vectors, because BM25 and token matching have no vectors; baselines that have
them return a `VectorScorer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.encoders import Encoder
from metaxc.evaluation.searches import QueryEncoder, Search
from metaxc.index.topk import best_rows

MAX_SCORES = 8_000_000
"""Scores of queries × items in memory at once (32 MB)."""


class Scorer(Protocol):
    """A fitted baseline."""

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) float32, higher is better, the items in the data set's order."""


class Baseline(Protocol):
    """A method to compare with."""

    name: ClassVar[str]

    def fit(self, dataset: Dataset) -> Scorer:
        """Train on the clicks on observed items (`metaxc.data.clicks.training_clicks`), never on a novel item's
        clicks, and represent all items by their texts."""


@dataclass(frozen=True)
class VectorScorer:
    """A fitted baseline that consists of a query encoder and a vector per item.

    Args:
        encode_queries: Texts to (n, dim) float32.
        vectors: (items, dim) float32.
    """

    encode_queries: QueryEncoder
    vectors: Floats

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) inner products."""
        scores: Floats = self.encode_queries(queries) @ self.vectors.T
        return scores


class TrainingData(NamedTuple):
    """What a baseline that uses an encoder is trained on.

    Args:
        observed: (observed,) rows of the observed items that have a click.
        clicks: (queries, observed).
        queries: (queries, dim) the training queries that clicked an observed item.
        items: (items, dim) all items, by their texts.
    """

    observed: Rows
    clicks: csr_array
    queries: Floats
    items: Floats


def embed_training_data(encoder: Encoder, dataset: Dataset) -> TrainingData:
    """The training clicks, with embeddings of queries and items."""
    observed, query_rows, clicks = training_clicks(dataset)
    queries = np.asarray(encoder.encode_queries(dataset.train.queries.texts)[query_rows])
    return TrainingData(observed, clicks, queries, np.asarray(encoder.encode_items(dataset.items.texts)))


def scorer_search(scorer: Scorer, items: int, *, matches_only: bool = False) -> Search:
    """The scorer as a search for `metaxc.evaluate`; equal scores rank by row.

    Args:
        scorer: A fitted baseline.
        items: Number of items.
        matches_only: Returns only items with a score above 0. By terms, the others have no term of the query, and their
            order says nothing.
    """

    def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        block = max(1, MAX_SCORES // max(items, 1))
        allowed = np.arange(items) if among is None else np.flatnonzero(among)
        ranked = np.full((len(queries), k), -1, dtype=np.int64)
        depth = min(k, len(allowed))
        for start in range(0, len(queries), block):
            scores = torch.from_numpy(scorer.scores(queries[start : start + block])[:, allowed])
            best, rows = best_rows(scores, depth)
            found = allowed[rows.numpy()]
            ranked[start : start + block, :depth] = np.where(best > 0, found, -1) if matches_only else found
        return ranked

    return search
