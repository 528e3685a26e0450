"""One small interface for everything a user would try instead.

A baseline is fitted on the observed items' clicks and then scores every item of the data set, the novel ones
by their texts alone. Scores, not vectors, are the contract, because BM25 and token interaction have no vectors;
those that have them are a `Dense`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.encoders import Encoder
from metaxc.index.topk import best_rows

MOST_SCORES = 8_000_000
"""Scores of queries × items held at once (32 MB)."""


class Scorer(Protocol):
    """A fitted baseline."""

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) float32, higher is better, the items in the data set's order."""


class Baseline(Protocol):
    """Something to compare with."""

    name: ClassVar[str]

    def fit(self, dataset: Dataset) -> Scorer:
        """Learn from the clicks on observed items (`metaxc.irene.training_clicks`), never from a novel item's,
        and take all items in by their texts."""


@dataclass(frozen=True)
class Dense:
    """A fitted baseline that is an encoder of queries and a vector per item.

    Args:
        encode_queries: Texts to (n, dim) float32.
        vectors: (items, dim) float32.
    """

    encode_queries: Callable[[Sequence[str]], Floats]
    vectors: Floats

    def scores(self, queries: Sequence[str]) -> Floats:
        found: Floats = self.encode_queries(queries) @ self.vectors.T
        return found


class Seen(NamedTuple):
    """What a baseline on an encoder learns from.

    Args:
        observed: (observed,) rows of the observed items that have a click.
        clicks: (queries, observed).
        queries: (queries, dim) the training queries that clicked one.
        items: (items, dim) all items, by their texts.
    """

    observed: Rows
    clicks: csr_array
    queries: Floats
    items: Floats


def embed_training_data(encoder: Encoder, dataset: Dataset) -> Seen:
    """The training clicks, with queries and items embedded."""
    observed, query_rows, clicks = training_clicks(dataset)
    queries = np.asarray(encoder.encode_queries(dataset.train.queries.texts)[query_rows])
    return Seen(observed, clicks, queries, np.asarray(encoder.encode_items(dataset.items.texts)))


def scorer_search(scorer: Scorer, items: int) -> Callable[[Sequence[str], int, Mask | None], Rows]:
    """The scorer as what `metaxc.evaluate` judges: (query texts, k, among) -> (queries, k) rows of items, best
    first, ties by row, −1 where there are no more."""

    def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        block = max(1, MOST_SCORES // max(items, 1))
        allowed = np.arange(items) if among is None else np.flatnonzero(among)
        found = np.full((len(queries), k), -1, dtype=np.int64)
        deep = min(k, len(allowed))
        for start in range(0, len(queries), block):
            scores = torch.from_numpy(scorer.scores(queries[start : start + block])[:, allowed])
            found[start : start + block, :deep] = allowed[best_rows(scores, deep)[1].numpy()]
        return found

    return search


def encode_once(encoder: Encoder, dataset: Dataset) -> Callable[[Sequence[str]], Floats]:
    """An encoder of queries that embeds the test queries together, the first time one of them is asked for.

    A search is asked about blocks and subsets of them; as one list they are encoded once, and found in the
    embedding cache by every baseline. Other queries are encoded as they come.
    """
    texts = [] if dataset.test is None else list(dataset.test.queries.texts)
    row_of = {text: row for row, text in enumerate(texts)}
    embedded: list[Floats] = []

    def encode(queries: Sequence[str]) -> Floats:
        if not queries or any(text not in row_of for text in queries):
            return encoder.encode_queries(queries)
        if not embedded:
            embedded.append(encoder.encode_queries(texts))
        return np.asarray(embedded[0][[row_of[text] for text in queries]], dtype=np.float32)

    return encode
