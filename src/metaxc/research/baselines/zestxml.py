"""ZestXML: a sparse bilinear model of query terms and item terms (Gupta et al., 2021).

score(q, i) = φ(q)ᵀ W φ(i) over TF-IDF terms: a query about "heart attack" may find an item of "myocardial infarction"
because clicks taught that these terms go together, whether or not that item was ever clicked.

Learnt in the paper's two stages. *Which* weights there are: for each item term the `TERMS` query terms most correlated
with it over the clicks, by the cosine of their columns in XᵀYZ (X training queries, Y clicks, Z observed items), and
the term itself. *How large* they are: a logistic regression of clicked against unclicked pairs on the kept term pairs,
with the TF-IDF match and the correlations as two more features that all terms share.

Simplified: one vocabulary serves both sides, and items have no features but their text's terms (the authors' data
give each observed item a feature of its own, by which it is scored more like a classifier does: expect less than the
original on observed items); the support is chosen once, where the paper's hard thresholding is an optimiser; negatives
are random items and those that stage one ranks highest; liblinear fits the weights; at most `MOST_QUERIES` training
queries give pairs. A minute or two and under 1 GB for 50,000 queries and 13,000 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array

from metaxc.arrays import Floats, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.encoders.training.negatives import hardest
from metaxc.extras import import_extra
from metaxc.research.baselines.terms import Terms

TERMS = 50
HARD, RANDOM = 2, 8
"""Unclicked items per training query. On pseudo-novel items of icd10cm more hard ones did worse, and none did too."""

MOST_QUERIES = 60_000
MOST_PRODUCTS = 60_000_000
"""Term pairs looked up to make features; long texts get fewer training pairs."""

INVERSE_PENALTY = 0.03
"""C of the logistic regression; larger ones fit observed items' words and rank pseudo-novel items worse."""

SHARED_SCALE = 10.0
"""Of the two shared features, so that they are all but unpenalised."""


@dataclass(frozen=True)
class FittedZestXML:
    """The terms, the weights between them, and the items.

    Args:
        terms: The vocabulary.
        weights: (query terms, item terms) float32, W, the shared weight of the TF-IDF match on its diagonal.
        items: (items, terms) float32.
    """

    terms: Terms
    weights: csr_array
    items: csr_array

    def scores(self, queries: Sequence[str]) -> Floats:
        return _scores(self.terms(queries), self.weights, self.items)


class ZestXML:
    """A sparse bilinear model over terms.

    Args:
        seed: Of the training pairs.
    """

    name: ClassVar[str] = "ZestXML"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, dataset: Dataset) -> FittedZestXML:
        observed, query_rows, clicks = training_clicks(dataset)
        terms = Terms(dataset)
        items = terms(dataset.items.texts)
        seen = csr_array(items[observed])
        queries = terms([dataset.train.queries.texts[row] for row in query_rows])
        first = correlations(queries, seen, clicks, TERMS)
        rows, columns, clicked = training_pairs(queries, seen, clicks, first, self.seed)
        pairs = TermPairs(first)
        features = pairs.features(queries, seen, rows, columns)
        model = import_extra("sklearn.linear_model", "bench").LogisticRegression(
            C=INVERSE_PENALTY, solver="liblinear", random_state=self.seed
        )
        return FittedZestXML(terms, pairs.weights(model.fit(features, clicked).coef_[0]), items)


def correlations(queries: csr_array, items: csr_array, clicks: csr_array, many: int) -> csr_array:
    """(query terms, item terms) float32: for each item term its `many` most correlated query terms and itself, by
    cosine over the clicks, in [0, 1]; a term never clicked through has itself at a tiny weight."""
    clicked = csr_array(clicks @ items)
    together = csr_array(queries.T @ clicked).tocoo()
    size = np.sqrt(np.asarray(queries.multiply(queries).sum(axis=0)).ravel())
    clicked_size = np.sqrt(np.asarray(clicked.multiply(clicked).sum(axis=0)).ravel())
    row, column = together.coords
    value = together.data / np.maximum(size[row] * clicked_size[column], 1e-12)
    order = np.lexsort((row, -value, column))
    starts = np.searchsorted(column[order], np.arange(together.shape[1]))
    rank = np.arange(len(order)) - starts[column[order]]
    kept = order[(rank < many) | (row[order] == column[order])]
    best = csr_array((value[kept].astype(np.float32), (row[kept], column[kept])), shape=together.shape)
    return csr_array(best + diags_array(np.full(best.shape[0], 1e-6, np.float32)))


def training_pairs(
    queries: csr_array, items: csr_array, clicks: csr_array, weights: csr_array, seed: int
) -> tuple[Rows, Rows, Rows]:
    """Query rows, item columns, and whether clicked: the clicks of some queries, the items that `weights` ranks
    highest among the unclicked, and random unclicked ones."""
    random = np.random.default_rng(seed)
    rows = random.permutation(clicks.shape[0])[:MOST_QUERIES]
    per_query = HARD + RANDOM + clicks.nnz / clicks.shape[0]
    products = queries.nnz / queries.shape[0] * max(items.nnz / items.shape[0], 1.0) * per_query
    rows = np.sort(rows[: max(1, int(MOST_PRODUCTS / products))])
    part = csr_array(clicks[rows])
    hard = hardest(lambda some: _scores(queries[rows[some]], weights, items), csr_array(clicks[rows]), HARD)
    drawn = np.concatenate([hard, random.integers(clicks.shape[1], size=(len(rows), RANDOM))], axis=1)
    drawn_row = np.repeat(np.arange(len(rows)), drawn.shape[1])[drawn.ravel() >= 0]
    drawn_item = drawn.ravel()[drawn.ravel() >= 0]
    clicked_row, clicked_item = np.repeat(np.arange(len(rows)), np.diff(part.indptr)), part.indices
    keys = np.unique(drawn_row * clicks.shape[1] + drawn_item)
    keys = np.setdiff1d(keys, clicked_row * clicks.shape[1] + clicked_item)
    row = np.concatenate([clicked_row, keys // clicks.shape[1]])
    item = np.concatenate([clicked_item, keys % clicks.shape[1]])
    return rows[row], item, np.repeat([1, 0], [len(clicked_row), len(keys)])


class TermPairs:
    """The kept (query term, item term) pairs as columns of a feature matrix.

    Two more columns let all terms share a weight: that of the TF-IDF match, and that of the correlations. So the
    learnt weights of single pairs are what the clicks say beyond them.

    Args:
        kept: (query terms, item terms) the correlations of the kept pairs.
    """

    def __init__(self, kept: csr_array):
        row, column = kept.tocoo().coords
        self.terms = kept.shape[1]
        keys = row.astype(np.int64) * self.terms + column
        order = np.argsort(keys)
        self.keys, self.values = keys[order], kept.tocoo().data[order]

    def features(self, queries: csr_array, items: csr_array, rows: Rows, columns: Rows) -> csr_array:
        """(pairs, kept + 2) float32: φ(q)ₐ · φ(i)ᵦ for every kept (a, b), then the two shared ones."""
        blocks = [
            self._block(csr_array(queries[r]), csr_array(items[c]))
            for r, c in zip(_split(rows), _split(columns), strict=True)
        ]
        column, value, lengths = (np.concatenate(part) for part in zip(*blocks, strict=True))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        # liblinear takes 32-bit indices only; `MOST_PRODUCTS` keeps them within.
        places = (column.astype(np.int32), starts.astype(np.int32))
        return csr_array((value, *places), shape=(len(rows), len(self.keys) + 2))

    def _block(self, queries: csr_array, items: csr_array) -> tuple[Rows, Floats, Rows]:
        """Every term of a query with every term of its item, looked up among the kept pairs."""
        many, each = np.diff(queries.indptr), np.diff(items.indptr)
        row = np.repeat(np.arange(len(many)), many * each)
        within = np.arange(len(row)) - np.repeat(np.cumsum(many * each) - many * each, many * each)
        a, b = queries.indptr[row] + within // each[row], items.indptr[row] + within % each[row]
        key = queries.indices[a].astype(np.int64) * self.terms + items.indices[b]
        place = np.searchsorted(self.keys, key).clip(max=len(self.keys) - 1)
        hit = self.keys[place] == key
        row, place, value = row[hit], place[hit], (queries.data[a] * items.data[b])[hit]
        match = np.asarray(queries.multiply(items).sum(axis=1)).ravel()
        correlated = np.bincount(row, weights=value * self.values[place], minlength=len(many))
        shared = SHARED_SCALE * np.stack([match, correlated], axis=1).ravel().astype(np.float32)
        ends = np.repeat(np.cumsum(np.bincount(row, minlength=len(many))), 2)
        column = np.insert(place, ends, np.tile([len(self.keys), len(self.keys) + 1], len(many)))
        return column, np.insert(value, ends, shared), np.bincount(row, minlength=len(many)) + 2

    def weights(self, learnt: NDArray[np.float64]) -> csr_array:
        """(query terms, item terms) float32: W, the learnt and the shared weights added up in their places."""
        match, correlated = SHARED_SCALE * learnt[-2:]
        value = (learnt[:-2] + correlated * self.values).astype(np.float32)
        place = (self.keys // self.terms, self.keys % self.terms)
        kept = csr_array((value, place), shape=(self.terms, self.terms))
        return csr_array(kept + diags_array(np.full(self.terms, match, np.float32)))


def _scores(queries: csr_array, weights: csr_array, items: csr_array) -> Floats:
    found: Floats = (csr_array(queries @ weights) @ csc_array(items.T)).toarray()
    return found


def _split(rows: Rows, size: int = 50_000) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
