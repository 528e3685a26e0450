"""Baselines on the embeddings of an encoder that need no gradient training: Siamese, ESZSL and a neighbour kernel.

*Siamese* is dense retrieval (Reimers and Gurevych, 2019; the Siamese encoders of the paper):
score(q, i) = ⟨embedding of q, embedding of i's text⟩ for observed and novel items alike. It learns nothing itself.

*ESZSL* (Romera-Paredes and Torr, 2015) is a bilinear map between query and item embeddings in closed form,
V = (XᵀX + γI)⁻¹ Xᵀ Y S (SᵀS + λI)⁻¹ with the embeddings X of the training queries and S of the observed items: the
least-squares fit of X V Sᵀ to Y with the paper's penalties γ|VSᵀ|² + λ|XV|² + γλ|V|². score(q, i) = xᵀ V s for every
item, observed ones too. Y is 1 for a click and 0 otherwise, not −1: with thousands of items per query the −1s would be
almost all of Y, and they only add a product a(q) · b(i) to the score that does not depend on the clicks. γ and λ, in
units of the mean eigenvalue, are tuned on one fold of pseudo-novel items. Both Gram matrices are diagonalised once, so
that each setting costs two matrix products.

The *neighbour kernel* is kernel regression of classifiers (Nadaraya, 1964; Watson, 1964), related to ConSE (Norouzi et
al., 2014). Observed items are scored by their ridge classifiers. A novel item's vector is the mean of its K nearest
observed items' classifiers, weighted by softmax(similarity / temperature), at unit length; the item's own text does not
enter, which is the difference from metaxc's `combine`. K and the temperature are tuned on one fold of pseudo-novel
items.

All of them take seconds once the texts are encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Floats
from metaxc.classifiers import ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.data import Dataset
from metaxc.encoders import Encoder
from metaxc.evaluation.searches import encode_test_queries_once
from metaxc.generators import Combine, gather
from metaxc.research.baselines.baseline import VectorScorer, embed_training_data
from metaxc.selectors import NearestSelector
from metaxc.tuning import TuningFold

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""ESZSL: candidates for γ and λ, in units of the mean eigenvalue of their Gram matrix."""

DEFAULT_PENALTY = 0.3
"""ESZSL: γ and λ where the data are too few for tuning."""

NEIGHBOURS = (1, 3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
DEFAULT_KERNEL = (5, 0.1)
"""Neighbour kernel: K and temperature where the data are too few for tuning."""


class Siamese:
    """Dense retrieval by the embeddings of the texts.

    Args:
        encoder: Any encoder.
    """

    name: ClassVar[str] = "Siamese"

    def __init__(self, encoder: Encoder):
        self.encoder = encoder

    def fit(self, dataset: Dataset) -> VectorScorer:
        """Encode all items."""
        items = np.asarray(self.encoder.encode_items(dataset.items.texts), dtype=np.float32)
        return VectorScorer(encode_test_queries_once(self.encoder.encode_queries, dataset), items)


@dataclass(frozen=True)
class BilinearProblem:
    """ESZSL's least-squares problem in the eigenvectors of both Gram matrices, where it is diagonal.

    Args:
        query_axes: (dim, dim) eigenvectors of XᵀX.
        query_values: (dim,) its eigenvalues.
        item_axes: (dim, dim) eigenvectors of SᵀS.
        item_values: (dim,) its eigenvalues.
        target: (dim, dim) XᵀYS in these axes.
    """

    query_axes: Doubles
    query_values: Doubles
    item_axes: Doubles
    item_values: Doubles
    target: Doubles

    @staticmethod
    def build(queries: Floats, items: Floats, clicks: csr_array) -> BilinearProblem:
        """From (queries, dim) and (observed, dim) embeddings and (queries, observed) clicks."""
        query_values, query_axes = np.linalg.eigh((queries.T @ queries).astype(np.float64))
        item_values, item_axes = np.linalg.eigh((items.T @ items).astype(np.float64))
        target = query_axes.T @ (queries.T @ (clicks @ items)).astype(np.float64) @ item_axes
        return BilinearProblem(query_axes, query_values, item_axes, item_values, target)

    def solve(self, gamma: float, lam: float) -> Floats:
        """(dim, dim) V for absolute penalties."""
        scaled = self.target / np.outer(self.query_values + gamma, self.item_values + lam)
        v: Floats = (self.query_axes @ scaled @ self.item_axes.T).astype(np.float32)
        return v

    def solve_relative(self, gamma: float, lam: float) -> Floats:
        """V for penalties in units of the mean eigenvalues, scaled to a spectral norm of 1, which does not change any
        ranking."""
        v = self.solve(gamma * float(self.query_values.mean()), lam * float(self.item_values.mean()))
        return v / max(float(np.linalg.norm(v, 2)), 1e-12)


class ESZSL:
    """A bilinear score in closed form.

    Args:
        encoder: Any encoder.
        seed: Seed of the fold for tuning.
    """

    name: ClassVar[str] = "ESZSL"

    def __init__(self, encoder: Encoder, seed: int = 0):
        self.encoder, self.seed = encoder, seed

    def fit(self, dataset: Dataset) -> VectorScorer:
        """Tune the penalties, then solve on all training clicks."""
        observed, clicks, queries, items = embed_training_data(self.encoder, dataset)
        gamma, lam = tune_penalties(queries, items[observed], clicks, self.seed)
        v = BilinearProblem.build(queries, items[observed], clicks).solve_relative(gamma, lam)
        return VectorScorer(encode_test_queries_once(self.encoder.encode_queries, dataset), items @ v.T)


def tune_penalties(queries: Floats, items: Floats, clicks: csr_array, seed: int) -> tuple[float, float]:
    """γ and λ that rank the validation queries of one fold best; the larger ones where settings tie."""
    fold = TuningFold.draw(queries, clicks, seed)
    if fold is None:
        return DEFAULT_PENALTY, DEFAULT_PENALTY
    observed = items[fold.fold.observed]
    problem = BilinearProblem.build(queries[fold.training_rows], observed, fold.training_clicks)
    qualities = {
        (gamma, lam): fold.quality(items @ problem.solve_relative(gamma, lam).T)
        for gamma, lam in product(PENALTIES, PENALTIES)
    }
    return max(qualities, key=lambda pair: (qualities[pair], pair))


class NeighbourKernel:
    """Novel items by their neighbours' classifiers alone.

    Args:
        encoder: Any encoder.
        seed: Seed of the fold for tuning.
    """

    name: ClassVar[str] = "Neighbour kernel"

    def __init__(self, encoder: Encoder, seed: int = 0):
        self.encoder, self.seed = encoder, seed

    def fit(self, dataset: Dataset) -> VectorScorer:
        """Fit the observed items' classifiers, and average them for all other items."""
        observed, clicks, queries, items = embed_training_data(self.encoder, dataset)
        k, temperature = tune_kernel(queries, items[observed], clicks, self.seed)
        classifiers = ridge(queries, clicks).weights
        others = np.setdiff1d(np.arange(len(items)), observed)
        vectors = np.empty((len(items), classifiers.shape[1]), np.float32)
        vectors[observed] = classifiers
        vectors[others] = average_neighbours(items[others], items[observed], classifiers, k, temperature)
        return VectorScorer(encode_test_queries_once(self.encoder.encode_queries, dataset), vectors)


def average_neighbours(
    embeddings: Floats, observed: Floats, classifiers: Floats, k: int, temperature: float
) -> Floats:
    """(items, dim) unit rows: the softmax-weighted mean of the classifiers of each item's K nearest observed items."""
    rows, similarities = NearestSelector(observed).select(embeddings, k)
    selected = gather(classifiers, rows)
    mean = Combine(1.0, temperature).generate(np.zeros_like(embeddings), selected, similarities)
    return normalize_rows(mean)


def tune_kernel(queries: Floats, items: Floats, clicks: csr_array, seed: int) -> tuple[int, float]:
    """K and temperature that rank the validation queries of one fold best; the first where settings tie."""
    fold = TuningFold.draw(queries, clicks, seed)
    if fold is None:
        return DEFAULT_KERNEL
    observed, novel = fold.fold.observed, fold.fold.novel
    classifiers = ridge(queries[fold.training_rows], fold.training_clicks).weights
    vectors = np.empty_like(items)
    vectors[observed] = classifiers
    qualities = {}
    for k, temperature in product(NEIGHBOURS, TEMPERATURES):
        vectors[novel] = average_neighbours(items[novel], items[observed], classifiers, k, temperature)
        qualities[k, temperature] = fold.quality(vectors)
    return max(qualities, key=lambda pair: qualities[pair])
