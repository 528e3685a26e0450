"""ZestXML: a sparse bilinear model of query terms and item terms (Gupta et al., 2021).

score(q, i) = φ(q)ᵀ W φ(i) over TF-IDF terms: a query about "heart attack" may find an item of "myocardial infarction"
because the clicks show that these terms go together, whether or not that item was ever clicked.

Training has the paper's two stages. The first chooses *which* weights are not 0: for each item term the `TERMS` query
terms that are most correlated with it over the clicks, by the cosine of their columns in XᵀYZ (X training queries,
Y clicks, Z observed items), and the term itself. The second fits *their values*: a logistic regression of clicked
against other pairs on the selected term pairs, with the TF-IDF match and the correlations as two more features that all
terms share.

Simplifications: both sides share one vocabulary, and items have no features except their text's terms (the authors'
data give each observed item a feature of its own, which makes its score more like a classifier's: expect less than the
original on observed items); the support is chosen once, where the paper's hard thresholding is an optimiser; negatives
are random items and those that the first stage ranks highest; liblinear fits the weights; at most `MAX_QUERIES`
training queries give pairs. It takes a minute or two and less than 1 GB for 50,000 queries and 13,000 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.encoders.training.negatives import hardest
from metaxc.research.baselines.term_matching import TermVectorizer

TERMS = 50
"""Query terms per item term."""

HARD, RANDOM = 2, 8
"""Negatives per training query. On pseudo-novel items of icd10cm more hard negatives were worse, and so was none."""

MAX_QUERIES = 60_000
MAX_PRODUCTS = 60_000_000
"""Term pairs that are looked up for the features; data sets with long texts get fewer training pairs."""

INVERSE_PENALTY = 0.03
"""C of the logistic regression; larger values overfit the observed items' words and rank pseudo-novel items worse."""

SHARED_SCALE = 10.0
"""Multiplies the two shared features, so that they are hardly penalised."""


@dataclass(frozen=True)
class FittedZestXML:
    """The vocabulary, the term weights, and the items.

    Args:
        terms: The vocabulary.
        weights: (query terms, item terms) float32, W, with the shared weight of the TF-IDF match on its diagonal.
        items: (items, terms) float32.
    """

    terms: TermVectorizer
    weights: csr_array
    items: csr_array

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) bilinear scores."""
        return _scores(self.terms(queries), self.weights, self.items)


class ZestXML:
    """A sparse bilinear model over terms.

    Args:
        seed: Seed of the training pairs.
    """

    name: ClassVar[str] = "ZestXML"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, dataset: Dataset) -> FittedZestXML:
        """Choose and fit the term weights on the clicks on observed items."""
        observed, query_rows, clicks = training_clicks(dataset)
        terms = TermVectorizer(dataset)
        items = terms(dataset.items.texts)
        observed_items = csr_array(items[observed])
        queries = terms([dataset.train.queries.texts[row] for row in query_rows])
        correlated = correlate_terms(queries, observed_items, clicks, TERMS)
        rows, columns, clicked = draw_training_pairs(queries, observed_items, clicks, correlated, self.seed)
        pairs = TermPairs(correlated)
        features = pairs.features(queries, observed_items, rows, columns)
        model = LogisticRegression(C=INVERSE_PENALTY, solver="liblinear", random_state=self.seed)
        return FittedZestXML(terms, pairs.weights(model.fit(features, clicked).coef_[0]), items)


def correlate_terms(queries: csr_array, items: csr_array, clicks: csr_array, limit: int) -> csr_array:
    """(query terms, item terms) float32: for each item term its `limit` most correlated query terms and itself.

    The values are cosines over the clicks, in [0, 1]; an item term without clicks has itself at a tiny weight.
    """
    clicked = csr_array(clicks @ items)
    together = csr_array(queries.T @ clicked).tocoo()
    size = np.sqrt(np.asarray(queries.multiply(queries).sum(axis=0)).ravel())
    clicked_size = np.sqrt(np.asarray(clicked.multiply(clicked).sum(axis=0)).ravel())
    row, column = together.coords
    value = together.data / np.maximum(size[row] * clicked_size[column], 1e-12)
    order = np.lexsort((row, -value, column))
    starts = np.searchsorted(column[order], np.arange(together.shape[1]))
    rank = np.arange(len(order)) - starts[column[order]]
    selected = order[(rank < limit) | (row[order] == column[order])]
    best = csr_array(
        (value[selected].astype(np.float32), (row[selected], column[selected])), shape=together.shape
    )
    return csr_array(best + diags_array(np.full(best.shape[0], 1e-6, np.float32)))


def draw_training_pairs(
    queries: csr_array, items: csr_array, clicks: csr_array, weights: csr_array, seed: int
) -> tuple[Rows, Rows, Rows]:
    """Query rows, item columns, and 1 for a click: the clicks of some queries, the items that `weights` ranks highest
    among those not clicked, and random items that were not clicked."""
    random = np.random.default_rng(seed)
    rows = random.permutation(clicks.shape[0])[:MAX_QUERIES]
    per_query = HARD + RANDOM + clicks.nnz / clicks.shape[0]
    products = queries.nnz / queries.shape[0] * max(items.nnz / items.shape[0], 1.0) * per_query
    rows = np.sort(rows[: max(1, int(MAX_PRODUCTS / products))])
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
    """The selected (query term, item term) pairs as columns of a feature matrix.

    Two more columns have weights that all terms share: the TF-IDF match and the correlations. The weights of single
    pairs then express what the clicks add to them.

    Args:
        selected: (query terms, item terms) the correlations of the selected pairs.
    """

    def __init__(self, selected: csr_array):
        row, column = selected.tocoo().coords
        self.terms = selected.shape[1]
        keys = row.astype(np.int64) * self.terms + column
        order = np.argsort(keys)
        self.keys, self.values = keys[order], selected.tocoo().data[order]

    def features(self, queries: csr_array, items: csr_array, rows: Rows, columns: Rows) -> csr_array:
        """(pairs, selected + 2) float32: φ(q)ₐ · φ(i)ᵦ for every selected (a, b), then the two shared features."""
        blocks = [
            self._block(csr_array(queries[r]), csr_array(items[c]))
            for r, c in zip(_split(rows), _split(columns), strict=True)
        ]
        column, value, lengths = (np.concatenate(part) for part in zip(*blocks, strict=True))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        # liblinear accepts 32-bit indices only; `MAX_PRODUCTS` guarantees that they suffice.
        places = (column.astype(np.int32), starts.astype(np.int32))
        return csr_array((value, *places), shape=(len(rows), len(self.keys) + 2))

    def _block(self, queries: csr_array, items: csr_array) -> tuple[Rows, Floats, Rows]:
        """Every term of a query with every term of its item, looked up among the selected pairs."""
        query_terms, item_terms = np.diff(queries.indptr), np.diff(items.indptr)
        products = query_terms * item_terms
        row = np.repeat(np.arange(len(products)), products)
        within = np.arange(len(row)) - np.repeat(np.cumsum(products) - products, products)
        a = queries.indptr[row] + within // item_terms[row]
        b = items.indptr[row] + within % item_terms[row]
        key = queries.indices[a].astype(np.int64) * self.terms + items.indices[b]
        place = np.searchsorted(self.keys, key).clip(max=len(self.keys) - 1)
        hit = self.keys[place] == key
        row, place, value = row[hit], place[hit], (queries.data[a] * items.data[b])[hit]
        match = np.asarray(queries.multiply(items).sum(axis=1)).ravel()
        correlated = np.bincount(row, weights=value * self.values[place], minlength=len(products))
        shared = SHARED_SCALE * np.stack([match, correlated], axis=1).ravel().astype(np.float32)
        ends = np.repeat(np.cumsum(np.bincount(row, minlength=len(products))), 2)
        column = np.insert(place, ends, np.tile([len(self.keys), len(self.keys) + 1], len(products)))
        return column, np.insert(value, ends, shared), np.bincount(row, minlength=len(products)) + 2

    def weights(self, coefficients: Doubles) -> csr_array:
        """(query terms, item terms) float32: W, the sum of the single and the shared weights."""
        match, correlated = SHARED_SCALE * coefficients[-2:]
        value = (coefficients[:-2] + correlated * self.values).astype(np.float32)
        place = (self.keys // self.terms, self.keys % self.terms)
        single = csr_array((value, place), shape=(self.terms, self.terms))
        return csr_array(single + diags_array(np.full(self.terms, match, np.float32)))


def _scores(queries: csr_array, weights: csr_array, items: csr_array) -> Floats:
    scores: Floats = (csr_array(queries @ weights) @ csc_array(items.T)).toarray()
    return scores


def _split(rows: Rows, size: int = 50_000) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
