"""Observed items that play novel, and queries that play test: what is chosen is chosen on these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

SHARE = 0.15
FEWEST_ITEMS, FEWEST_QUERIES = 10, 50
"""Below this many pseudo-novel items, or queries that click one, the defaults are a better guess."""


@dataclass(frozen=True)
class Fold:
    """Which observed items play novel and which queries play test.

    Args:
        pseudo_novel: (observed,) bool.
        held: (queries,) bool.
    """

    pseudo_novel: Mask
    held: Mask

    def training(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the queries that remain to learn from, and their clicks on the remaining items."""
        kept = csr_array(clicks[:, np.flatnonzero(~self.pseudo_novel)])
        rows = np.flatnonzero((np.diff(kept.indptr) > 0) & ~self.held)
        return rows, csr_array(kept[rows])

    def judging(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the held-out queries that clicked a pseudo-novel item, and those clicks."""
        rows = np.flatnonzero(self.held)
        judged = csr_array(clicks[rows][:, np.flatnonzero(self.pseudo_novel)])
        some = np.diff(judged.indptr) > 0
        return rows[some], csr_array(judged[some])

    def is_enough(self, clicks: csr_array) -> bool:
        """Whether there are items and queries enough to choose by, and something left to learn from."""
        if self.pseudo_novel.sum() < FEWEST_ITEMS or len(self.judging(clicks)[0]) < FEWEST_QUERIES:
            return False
        return len(self.training(clicks)[0]) > 0

    @staticmethod
    def draw(clicks: csr_array, seed: int, share: float = SHARE) -> Fold | None:
        """A random fold, or None where the data are too few to choose anything by."""
        random = np.random.default_rng(seed)
        queries, items = clicks.shape
        pseudo_novel, held = np.zeros(items, dtype=bool), np.zeros(queries, dtype=bool)
        pseudo_novel[random.permutation(items)[: int(share * items)]] = True
        held[random.permutation(queries)[: int(share * queries)]] = True
        fold = Fold(pseudo_novel, held)
        return fold if fold.is_enough(clicks) else None
