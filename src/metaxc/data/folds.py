"""Folds: observed items that play novel and queries that play test, on which constants are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows

SHARE = 0.15
FEWEST_ITEMS, FEWEST_QUERIES = 10, 50
"""Below this many pseudo-novel items, or queries that click one, the defaults are a better guess."""


@dataclass(frozen=True)
class Fold:
    """Which observed items play novel and which queries play test.

    Args:
        pseudo_novel: (observed,) bool, the items that play novel.
        held: (queries,) bool, the queries that play test.
    """

    pseudo_novel: Mask
    held: Mask

    @property
    def novel(self) -> Rows:
        """Columns of the pseudo-novel items."""
        return np.flatnonzero(self.pseudo_novel)

    @property
    def observed(self) -> Rows:
        """Columns of the items that remain observed."""
        return np.flatnonzero(~self.pseudo_novel)

    def training(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the queries that remain to learn from, and their clicks on the remaining items."""
        kept = csr_array(clicks[:, self.observed])
        rows = np.flatnonzero((np.diff(kept.indptr) > 0) & ~self.held)
        return rows, csr_array(kept[rows])

    def validating(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the held-out queries that clicked a pseudo-novel item, and those clicks."""
        rows = np.flatnonzero(self.held)
        validated = csr_array(clicks[rows][:, self.novel])
        some = np.diff(validated.indptr) > 0
        return rows[some], csr_array(validated[some])

    def is_enough(self, clicks: csr_array) -> bool:
        """Whether there are enough items and queries to choose by, and something left to learn from."""
        if self.pseudo_novel.sum() < FEWEST_ITEMS or len(self.validating(clicks)[0]) < FEWEST_QUERIES:
            return False
        return len(self.training(clicks)[0]) > 0

    @staticmethod
    def draw(clicks: csr_array, seed: int, share: float = SHARE) -> Fold | None:
        """A random fold, or None where there are too few data to choose anything by."""
        return next(iter(Fold.partition(clicks, seed, 1, share)), None)

    @staticmethod
    def partition(clicks: csr_array, seed: int, count: int, share: float = SHARE) -> list[Fold]:
        """At most `count` random folds that share no pseudo-novel item and no held-out query; those with too few data
        to choose anything by are left out.

        They are disjoint because what a generator learns on one fold's items is validated on another's.

        Args:
            clicks: (queries, observed).
            seed: Draws the two permutations that are cut into folds.
            count: How many folds.
            share: The share of the items and of the queries in each fold, at most 1 / count.
        """
        random = np.random.default_rng(seed)
        queries, items = clicks.shape
        item_order, query_order = random.permutation(items), random.permutation(queries)
        share = min(share, 1 / max(count, 1))
        folds = []
        for number in range(count):
            pseudo_novel, held = np.zeros(items, dtype=bool), np.zeros(queries, dtype=bool)
            for mask, order in ((pseudo_novel, item_order), (held, query_order)):
                size = int(share * len(order))
                mask[order[number * size : (number + 1) * size]] = True
            fold = Fold(pseudo_novel, held)
            if fold.is_enough(clicks):
                folds.append(fold)
        return folds
