"""Folds: observed items that play novel and queries that play test, on which constants are chosen.

A fold should look like what will happen. Where items and queries have times, the newest items play novel and the latest
queries play test, in windows that go back in time; otherwise both are drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows

SHARE = 0.15
"""The share of the queries that play test, and of the items that play novel where nothing else is known."""

FEWEST_DISTINCT = 20
"""Times with fewer distinct values than this say too little about what came first."""

FEWEST_ITEMS, FEWEST_QUERIES = 10, 50
"""Below this many pseudo-novel items, or queries that click one, the defaults are a better guess."""


@dataclass(frozen=True)
class Fold:
    """Which observed items play novel and which queries play test.

    Args:
        pseudo_novel: (observed,) bool, the items that play novel.
        held: (queries,) bool, the queries that play test.
        later_items: (observed,) bool, items that did not exist yet: neither learnt from nor ranked; None for none.
        later_queries: (queries,) bool, queries that had not been asked yet; None for none.
    """

    pseudo_novel: Mask
    held: Mask
    later_items: Mask | None = None
    later_queries: Mask | None = None

    @property
    def novel(self) -> Rows:
        """Columns of the pseudo-novel items."""
        return np.flatnonzero(self.pseudo_novel)

    @property
    def observed(self) -> Rows:
        """Columns of the items that remain observed."""
        return np.flatnonzero(_without(~self.pseudo_novel, self.later_items))

    def training(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the queries that remain to learn from, and their clicks on the remaining items."""
        kept = csr_array(clicks[:, self.observed])
        rows = np.flatnonzero(_without((np.diff(kept.indptr) > 0) & ~self.held, self.later_queries))
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
    def partition(
        clicks: csr_array, seed: int, count: int, share: float = SHARE, item_share: float | None = None
    ) -> list[Fold]:
        """At most `count` random folds that share no pseudo-novel item and no held-out query; those with too few data
        to choose anything by are left out.

        They are disjoint because what a generator learns on one fold's items is validated on another's.

        Args:
            clicks: (queries, observed).
            seed: Draws the two permutations that are cut into folds.
            count: How many folds.
            share: The share of the queries in each fold, at most 1 / count.
            item_share: The share of the items in each fold, alike; None for `share`.
        """
        random = np.random.default_rng(seed)
        queries, items = clicks.shape
        item_order, query_order = random.permutation(items), random.permutation(queries)
        most = 1 / max(count, 1)
        shares = (min(share if item_share is None else item_share, most), min(share, most))
        folds = []
        for number in range(count):
            pseudo_novel, held = np.zeros(items, dtype=bool), np.zeros(queries, dtype=bool)
            for mask, order, part in zip(
                (pseudo_novel, held), (item_order, query_order), shares, strict=True
            ):
                size = int(part * len(order))
                mask[order[number * size : (number + 1) * size]] = True
            fold = Fold(pseudo_novel, held)
            if fold.is_enough(clicks):
                folds.append(fold)
        return folds

    @staticmethod
    def roll_back(
        clicks: csr_array,
        item_times: Doubles,
        query_times: Doubles,
        count: int,
        share: float = SHARE,
        item_share: float | None = None,
    ) -> list[Fold]:
        """At most `count` windows of time, the latest first; those with too few data to choose anything by are left
        out.

        In each window the newest items play novel and the latest queries play test; what came after the window is left
        out, so that the past predicts the future. The windows share no pseudo-novel item and no held-out query.

        Args:
            clicks: (queries, observed).
            item_times: (observed,) when each item appeared.
            query_times: (queries,) when each query was asked.
            count: How many windows.
            share: The share of the queries of the time before it that a window holds out.
            item_share: The share of the items, alike; None for `share`.
        """
        orders = [np.argsort(times, kind="stable") for times in (item_times, query_times)]
        shares = (share if item_share is None else item_share, share)
        folds = []
        for _ in range(count):
            masks: list[Mask] = []
            for place, (order, part) in enumerate(zip(orders, shares, strict=True)):
                size = (clicks.shape[1], clicks.shape[0])[place]
                cut = len(order) - int(part * len(order))
                held, later = np.zeros(size, dtype=bool), np.ones(size, dtype=bool)
                held[order[cut:]], later[order] = True, False
                masks += [held, later]
                orders[place] = order[:cut]
            fold = Fold(masks[0], masks[2], masks[1], masks[3])
            if fold.is_enough(clicks):
                folds.append(fold)
        return folds


def tell_order(times: Doubles | None) -> bool:
    """Whether times are known and differ enough to tell what came first."""
    return times is not None and len(np.unique(times)) >= FEWEST_DISTINCT


def _without(mask: Mask, excluded: Mask | None) -> Mask:
    return mask if excluded is None else mask & ~excluded
