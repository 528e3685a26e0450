"""ESZSL: a bilinear map between query and item embeddings in closed form (Romera-Paredes and Torr, 2015).

Learns V = (XᵀX + γI)⁻¹ Xᵀ Y S (SᵀS + λI)⁻¹ with X the training queries' and S the observed items' embeddings; that is
the least squares of X V Sᵀ on Y with the paper's penalties γ|VSᵀ|² + λ|XV|² + γλ|V|². score(q, i) = xᵀ V s for every
item, observed ones too. Y is 1 for a click and 0 otherwise, not −1: with thousands of items per query the −1s would
be all but the whole of Y, and all they add to the score is one product a(q) · b(i) that no click decides.

γ and λ come from a log grid on one fold of pseudo-novel items. Both Gram matrices are diagonalised once, after which
a setting costs two products. Seconds in all, given the embeddings; γ and λ are relative to the mean eigenvalue.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.encoders import Encoder
from metaxc.research.baselines.baseline import Dense, embed_training_data, encode_once
from metaxc.tuning import TuningFold

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of both sides, in units of the mean eigenvalue of their Gram matrix."""

DEFAULT_PENALTY = 0.3
"""Where the data are too few to choose by."""


@dataclass(frozen=True)
class Problem:
    """The least-squares problem in the eigenvectors of both Gram matrices, where it is diagonal.

    Args:
        query_axes: (dim, dim) eigenvectors of XᵀX.
        query_values: (dim,) its eigenvalues.
        item_axes: (dim, dim) eigenvectors of SᵀS.
        item_values: (dim,) its eigenvalues.
        target: (dim, dim) XᵀYS in these axes.
    """

    query_axes: NDArray[np.float64]
    query_values: NDArray[np.float64]
    item_axes: NDArray[np.float64]
    item_values: NDArray[np.float64]
    target: NDArray[np.float64]

    @staticmethod
    def of(queries: Floats, items: Floats, clicks: csr_array) -> Problem:
        """From (queries, dim) and (observed, dim) embeddings and (queries, observed) clicks."""
        query_values, query_axes = np.linalg.eigh((queries.T @ queries).astype(np.float64))
        item_values, item_axes = np.linalg.eigh((items.T @ items).astype(np.float64))
        together = (queries.T @ (clicks @ items)).astype(np.float64)
        return Problem(query_axes, query_values, item_axes, item_values, query_axes.T @ together @ item_axes)

    def solve(self, gamma: float, lam: float) -> Floats:
        """(dim, dim) V for absolute penalties."""
        scaled = self.target / np.outer(self.query_values + gamma, self.item_values + lam)
        found: Floats = (self.query_axes @ scaled @ self.item_axes.T).astype(np.float32)
        return found

    def solve_relative(self, gamma: float, lam: float) -> Floats:
        """V for penalties in units of the mean eigenvalues, brought to unit spectral size: a positive factor ranks
        nothing differently, and keeps scores readable."""
        found = self.solve(gamma * float(self.query_values.mean()), lam * float(self.item_values.mean()))
        return found / max(float(np.linalg.norm(found, 2)), 1e-12)


class ESZSL:
    """A bilinear score learnt in closed form.

    Args:
        encoder: Any encoder.
        seed: Of the fold.
    """

    name: ClassVar[str] = "ESZSL"

    def __init__(self, encoder: Encoder, seed: int = 0):
        self.encoder, self.seed = encoder, seed

    def fit(self, dataset: Dataset) -> Dense:
        observed, clicks, queries, items = embed_training_data(self.encoder, dataset)
        gamma, lam = choose_penalties(queries, items[observed], clicks, self.seed)
        v = Problem.of(queries, items[observed], clicks).solve_relative(gamma, lam)
        return Dense(encode_once(self.encoder, dataset), items @ v.T)


def choose_penalties(queries: Floats, items: Floats, clicks: csr_array, seed: int) -> tuple[float, float]:
    """γ and λ that rank the held-out queries of one fold best; the larger ones where settings tie."""
    fold = TuningFold.draw(queries, clicks, seed)
    if fold is None:
        return DEFAULT_PENALTY, DEFAULT_PENALTY
    problem = Problem.of(queries[fold.training_rows], items[fold.fold.observed], fold.training_clicks)
    judged = {
        (gamma, lam): fold.quality(items @ problem.solve_relative(gamma, lam).T)
        for gamma, lam in product(PENALTIES, PENALTIES)
    }
    return max(judged, key=lambda pair: (judged[pair], pair))
