"""BM25: words in common, with saturation and length (Robertson and Zaragoza, 2009), by the package `bm25s`.

Learns nothing from clicks; its statistics are those of all items' texts, the corpus it searches. bm25s works out
every (item, term) weight at indexing (Lucene's form, k₁ = 1.5, b = 0.75, English stop words left out);
score(q, i) = Σ over the query's terms of weight(i, term). Seconds to fit; scores by one sparse product of bm25s's own
weights, because its `retrieve` ranks one query at a time and has no mask per setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.extras import import_extra


class FittedBM25:
    """An index of bm25s over the items' texts.

    Args:
        index: A `bm25s.BM25` that has indexed the items.
        items: How many items.
    """

    def __init__(self, index: Any, items: int):
        self.index = index
        self.vocabulary: dict[str, int] = index.vocab_dict
        stored = index.scores
        terms = len(stored["indptr"]) - 1
        self.weights = csc_array(
            (stored["data"], stored["indices"], stored["indptr"]), shape=(items, terms), dtype=np.float32
        )

    def scores(self, queries: Sequence[str]) -> Floats:
        columns = [[self.vocabulary[t] for t in terms if t in self.vocabulary] for terms in tokens(queries)]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
        flat = np.asarray([column for row in columns for column in row], dtype=np.int64)
        counts = csr_array(
            (np.ones(len(flat), np.float32), flat, starts), shape=(len(columns), self.weights.shape[1])
        )
        found: Floats = (counts @ self.weights.T).toarray()
        return found


class BM25:
    """Okapi BM25 over the items' texts."""

    name: ClassVar[str] = "BM25"

    def fit(self, dataset: Dataset) -> FittedBM25:
        index = import_extra("bm25s", "bench").BM25()
        index.index(tokens(dataset.items.texts), show_progress=False)
        return FittedBM25(index, len(dataset.items))


def tokens(texts: Sequence[str]) -> list[list[str]]:
    """The texts' terms by bm25s's own tokenizer."""
    found: list[list[str]] = import_extra("bm25s", "bench").tokenize(
        list(texts), return_ids=False, show_progress=False
    )
    return found
