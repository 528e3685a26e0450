"""Folds: observed items that play novel and queries that play test, on which constants are chosen.

A fold should look like what will happen. Where items and queries have times, the newest items play novel and the latest
queries play test, in windows that go back in time; otherwise both are drawn at random, the queries in part by whole
intents: queries that click the same items are different words for one thing, and future queries ask for new things too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data.clicks import ClickTimes, days_since_last_click, training_times
from metaxc.data.dataset import Dataset

SHARE = 0.15
"""The share of the queries that play test, and of the items that play novel where nothing else is known."""

NOVEL_SHARES = (0.05, 0.2)
"""Bounds for the share of the observed items that play novel: fewer cannot be measured, more leave too few to learn."""

BY_INTENT = 0.5
"""The share of a random fold's held-out queries that is held out with all other queries that click the same items.
Where nearly every query has such a twin left to learn from, classifiers look better than they are for queries that have
none (docs/decisions.md)."""

FEWEST_ITEMS, FEWEST_QUERIES = 10, 50
"""Below this many pseudo-novel items, or queries that click one, the defaults are a better guess."""


@dataclass(frozen=True)
class Fold:
    """Which observed items play novel and which queries play test.

    Args:
        pseudo_novel: (observed,) bool, the items that play novel.
        held: (queries,) bool, the queries that play test.
        later_items: (observed,) bool, items that did not exist yet: neither learnt from nor ranked; None for none.
        past: (clicks.nnz,) bool, the clicks that may be learnt from; None for those of the queries not held out.
        future: (clicks.nnz,) bool, the clicks that validate; None for those of the held-out queries.
        ages: (observed,) float32, days between an item's last click that may be learnt from and the beginning of the
            window, 0 where there is none; None for a random fold.
    """

    pseudo_novel: Mask
    held: Mask
    later_items: Mask | None = None
    past: Mask | None = None
    future: Mask | None = None
    ages: Floats | None = None

    @property
    def follows_time(self) -> bool:
        """Whether it is a window of time, in which the past predicts the future; otherwise it is random."""
        return self.past is not None

    @property
    def novel(self) -> Rows:
        """Columns of the pseudo-novel items."""
        return np.flatnonzero(self.pseudo_novel)

    @property
    def observed(self) -> Rows:
        """Columns of the items that remain observed."""
        left = ~self.pseudo_novel if self.later_items is None else ~(self.pseudo_novel | self.later_items)
        return np.flatnonzero(left)

    def training(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the queries that remain to learn from, and their clicks on the remaining items."""
        kept = csr_array(_only(clicks, self.past)[:, self.observed])
        some = np.diff(kept.indptr) > 0
        rows = np.flatnonzero(some if self.past is not None else some & ~self.held)
        return rows, csr_array(kept[rows])

    def validation(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the held-out queries, and the clicks, on items that exist, that validate."""
        rows = np.flatnonzero(self.held)
        judged = csr_array(_only(clicks, self.future)[rows])
        if self.later_items is not None:
            judged = _only(judged, ~self.later_items[judged.indices])
        return rows, judged

    def validating(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the held-out queries that clicked a pseudo-novel item, and those clicks."""
        rows, judged = self.validation(clicks)
        validated = csr_array(judged[:, self.novel])
        some = np.diff(validated.indptr) > 0
        return rows[some], csr_array(validated[some])

    def is_enough(self, clicks: csr_array) -> bool:
        """Whether there are enough items and queries to choose by, and something left to learn from."""
        if self.pseudo_novel.sum() < FEWEST_ITEMS or len(self.validating(clicks)[0]) < FEWEST_QUERIES:
            return False
        return len(self.training(clicks)[0]) > 0

    @staticmethod
    def covering(folds: list[Fold]) -> Fold:
        """One fold that holds out what any of these does: what is trained without it knows nothing that one of them
        validates with. Of windows of time that is the earliest; of random folds, all of them together."""
        if folds[-1].follows_time:
            return folds[-1]
        pseudo_novel = np.logical_or.reduce([fold.pseudo_novel for fold in folds])
        return Fold(pseudo_novel, np.logical_or.reduce([fold.held for fold in folds]))

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

        They are disjoint because what a generator learns on one fold's items is validated on another's. Of the queries
        `BY_INTENT` are held out by whole intents, where their items are clicked by others too; the others one by one.

        Args:
            clicks: (queries, observed).
            seed: Draws the permutations that are cut into folds.
            count: How many folds.
            share: The share of the queries in each fold, at most 1 / count.
            item_share: The share of the items in each fold, alike; None for `share`.
        """
        random = np.random.default_rng(seed)
        queries, items = clicks.shape
        most = 1 / max(count, 1)
        novel = int(min(share if item_share is None else item_share, most) * items)
        asked = int(min(share, most) * queries)
        item_parts = _cut(random.permutation(items), count, novel)
        whole = _shuffled_by_intent(clicks, random)
        by_intent = _cut(whole, count, min(int(BY_INTENT * asked), len(whole) // max(count, 1)))
        left = np.setdiff1d(np.arange(queries), by_intent)
        one_by_one = _cut(random.permutation(left), count, asked - by_intent.shape[1])
        folds = []
        for number in range(count):
            pseudo_novel, held = np.zeros(items, dtype=bool), np.zeros(queries, dtype=bool)
            pseudo_novel[item_parts[number]] = True
            held[by_intent[number]] = held[one_by_one[number]] = True
            fold = Fold(pseudo_novel, held)
            if fold.is_enough(clicks):
                folds.append(fold)
        return folds

    @staticmethod
    def roll_back(
        clicks: csr_array,
        times: ClickTimes,
        count: int,
        share: float = SHARE,
        item_share: float | None = None,
    ) -> list[Fold]:
        """At most `count` windows of time, the latest first; those with too few data to choose anything by are left
        out.

        In each window the newest items play novel and the latest clicks validate; what came after the window is left
        out, so that the past predicts the future. A query that was asked before and in a window is learnt from by its
        earlier clicks and validates by its later ones. The windows share no pseudo-novel item.

        Args:
            clicks: (queries, observed).
            times: When the items appeared and the clicks happened.
            count: How many windows.
            share: The share of the clicks before its end that a window validates on.
            item_share: The share of the items, alike; None for `share`.
        """
        order = np.argsort(times.items, kind="stable")
        owner = np.repeat(np.arange(clicks.shape[0]), np.diff(clicks.indptr))
        end, folds = np.inf, []
        for _ in range(count):
            cut = len(order) - int((share if item_share is None else item_share) * len(order))
            pseudo_novel, later = (
                np.zeros(len(times.items), dtype=bool),
                np.ones(len(times.items), dtype=bool),
            )
            pseudo_novel[order[cut:]], later[order] = True, False
            before_end = times.first <= end
            if not before_end.any():
                break
            begin = float(np.quantile(np.minimum(times.last[before_end], end), 1 - share))
            past, future = times.first <= begin, before_end & (times.last > begin)
            held = np.zeros(clicks.shape[0], dtype=bool)
            held[owner[future]] = True
            learnt = past & ~pseudo_novel[clicks.indices]
            ages = days_since_last_click(clicks, times, begin, learnt)
            fold = Fold(pseudo_novel, held, later, past, future, ages)
            if fold.is_enough(clicks):
                folds.append(fold)
            order, end = order[:cut], begin
        return folds


def draw_folds(dataset: Dataset, training: tuple[Rows, Rows, csr_array], count: int, seed: int) -> list[Fold]:
    """At most `count` folds that look like what will happen: windows of time where times are known, otherwise random.

    As large a share of the observed items plays novel as is novel in the data set, within `NOVEL_SHARES`; where that
    gives too few validation queries, `SHARE`.

    Args:
        dataset: The data set.
        training: What `training_clicks` returned for it.
        count: How many folds.
        seed: Draws random folds.
    """
    observed, query_rows, clicks = training
    times = training_times(dataset, observed, query_rows)
    for share in (float(np.clip(dataset.novel_mask.mean(), *NOVEL_SHARES)), SHARE):
        if times is None:
            folds = Fold.partition(clicks, seed, count, item_share=share)
        else:
            folds = Fold.roll_back(clicks, times, count, item_share=share)
        if folds:
            return folds
    return []


def _cut(order: Rows, count: int, size: int) -> Rows:
    """(count, size): an order cut into parts; what is left over is in none."""
    return order[: count * size].reshape(count, size)


def _shuffled_by_intent(clicks: csr_array, random: np.random.Generator) -> Rows:
    """The queries in random order, those that click the same items beside each other. Left out are those without which
    an item would have no click at all: it would have to play novel."""
    groups: dict[bytes, int] = {}
    ordered = clicks.copy()
    ordered.sort_indices()
    rows = np.split(ordered.indices, ordered.indptr[1:-1])
    group = np.array([groups.setdefault(row.tobytes(), len(groups)) for row in rows], dtype=np.int64)
    owner = np.repeat(np.arange(clicks.shape[0]), np.diff(clicks.indptr))
    same = np.bincount(group)[group[owner]]  # clicks of the intent on each item that it clicks
    only = np.bincount(clicks.indices, minlength=clicks.shape[1])[clicks.indices] <= same
    needed = np.bincount(owner[only], minlength=clicks.shape[0]) > 0
    order = np.argsort(random.permutation(len(groups))[group], kind="stable")
    return order[~needed[order]]


def _only(clicks: csr_array, kept: Mask | None) -> csr_array:
    """The clicks that are kept, of those in the order of `clicks.data`."""
    if kept is None:
        return clicks
    rows = np.repeat(np.arange(clicks.shape[0]), np.diff(clicks.indptr))[kept]
    part = csr_array((clicks.data[kept], (rows, clicks.indices[kept])), shape=clicks.shape)
    part.sort_indices()
    return part
