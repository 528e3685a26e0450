"""Clicks for training: the part of a data set that may be learnt from, how much each click counts, and the clicks of a
batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Floats, Mask, Rows
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.errors import DataError

DAY = 86_400.0
"""Seconds."""

LATE_SHARE = 0.001
"""Share of the clicks that may lie after the end of a log: a few wrong dates, years ahead, must not make all items
old."""

FEWEST_DISTINCT = 20
"""Times with fewer distinct values than this say too little about what came first."""


def click_weight(counts: Rows) -> Floats:
    """(pairs,) float32: how much pairs with this many click events count, 1 + ln(count).

    Repeated clicks of the same query on the same item are strongly correlated evidence: the second tells much less than
    a first click of another query, and the thousandth next to nothing. A pair that was clicked once counts 1 exactly.
    """
    return (1.0 + np.log(counts)).astype(np.float32)


def weighted_clicks(log: ClickLog) -> csr_array:
    """(queries, items) float32: the `click_weight` of each pair; the clicks themselves where every count is 1."""
    if log.counts is None:
        return log.clicks
    return csr_array(
        (click_weight(log.counts), log.clicks.indices, log.clicks.indptr), shape=log.clicks.shape
    )


def training_clicks(dataset: Dataset) -> tuple[Rows, Rows, csr_array]:
    """The clicks that a model may learn from. An item without clicks is novel even if it is not marked as novel.

    Returns:
        Rows of the observed items with a click, rows of the training queries that clicked one of them, and the clicks
        between the two: (queries, items) float32, the `click_weight` of each pair, 1 where it was clicked once.
    """
    allowed = dataset.observed_rows
    counts = np.bincount(dataset.train.clicks.indices, minlength=len(dataset.items))
    observed = allowed[counts[allowed] > 0]
    if not len(observed):
        raise DataError(
            "No observed item has a click", expected="clicks to learn from", fix="add more training clicks"
        )
    clicks = csr_array(weighted_clicks(dataset.train)[:, observed])
    query_rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
    return observed, query_rows, csr_array(clicks[query_rows])


@dataclass(frozen=True)
class ClickTimes:
    """When the items appeared and the clicks of a training matrix happened, in seconds since 1970.

    Args:
        items: (observed,) when each item appeared.
        first: (clicks.nnz,) the first click of each pair, in the order of the matrix's data.
        last: (clicks.nnz,) the last click of each pair.
    """

    items: Doubles
    first: Doubles
    last: Doubles


def training_times(dataset: Dataset, observed: Rows, query_rows: Rows) -> ClickTimes | None:
    """The times of what `training_clicks` returned; None where they are unknown or too few to tell what came first.

    An item appeared at its `first_seen` or, where that is unknown, at its first click.

    Args:
        dataset: The data set.
        observed: Rows of the observed items, from `training_clicks`.
        query_rows: Rows of the training queries, from `training_clicks`.
    """
    log = dataset.train
    if log.first_times is None or log.last_times is None or log.item_times is None:
        return None
    items = (
        log.item_times if dataset.items.first_seen is None else dataset.items.first_seen.astype(np.float64)
    )
    first, last = (
        csr_array((times, log.clicks.indices, log.clicks.indptr), shape=log.clicks.shape)[:, observed][
            query_rows
        ].data
        for times in (log.first_times, log.last_times)
    )
    times = ClickTimes(items[observed], first, last)
    enough = all(len(np.unique(part)) >= FEWEST_DISTINCT for part in (times.items, times.last))
    return times if enough else None


def days_since_last_click(
    clicks: csr_array, times: ClickTimes, now: float | None = None, past: Mask | None = None
) -> Floats:
    """(items,) float32: how many days before `now` each item was clicked last; 0 for an item without clicks.

    Args:
        clicks: (queries, items).
        times: When these clicks happened.
        now: Seconds since 1970; None for the time of the last click but one in a thousand (`LATE_SHARE`).
        past: (clicks.nnz,) bool, the clicks that count; None for all.
    """
    now = float(np.quantile(times.last, 1 - LATE_SHARE, method="higher")) if now is None else now
    counted = np.ones(clicks.nnz, dtype=bool) if past is None else past
    latest = np.full(clicks.shape[1], -np.inf)
    np.maximum.at(latest, clicks.indices[counted], np.minimum(times.last[counted], now))
    return np.where(np.isfinite(latest), (now - latest) / DAY, 0.0).astype(np.float32)


def clicks_per_item(clicks: csr_array) -> Rows | Doubles:
    """(items,) the sum of the weights of each item's clicks: int64, the number of queries that clicked it, where all
    weights are 1; float64 otherwise."""
    if (clicks.data == 1).all():
        return np.bincount(clicks.indices, minlength=clicks.shape[1]).astype(np.int64)
    return np.bincount(clicks.indices, weights=clicks.data, minlength=clicks.shape[1])


def draw_clicks(clicks: csr_array, rows: Rows, random: np.random.Generator) -> Rows:
    """One random clicked item for each query in `rows`, in proportion to the weights of its clicks.

    Args:
        clicks: (queries, items) weights, above 0.
        rows: (n,) queries that have a click.
        random: One number is drawn from it for each query.
    """
    starts, ends = clicks.indptr[rows], clicks.indptr[rows + 1]
    drawn = random.random(len(rows))
    lengths = (ends - starts).astype(np.int64)
    offsets = np.cumsum(lengths) - lengths
    weights = clicks.data[np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())]
    if (weights == 1).all():
        places = starts + (drawn * lengths).astype(np.int64)
    else:
        # All rows side by side: the first click whose cumulative weight is above the row's start plus the draw.
        above = np.cumsum(weights, dtype=np.float64)
        below = np.concatenate([[0.0], above])[offsets]
        target = below + drawn * (above[offsets + lengths - 1] - below)
        places = starts + np.clip(np.searchsorted(above, target, side="right") - offsets, 0, lengths - 1)
    return clicks.indices[places].astype(np.int64)


def click_mask(clicks: csr_array, query_rows: Rows, item_rows: Rows) -> Mask:
    """(queries, items) bool: which queries of a batch clicked which items of the batch."""
    distinct, column_of = np.unique(item_rows, return_inverse=True)
    part = clicks[query_rows]
    column = np.searchsorted(distinct, part.indices).clip(max=len(distinct) - 1)
    hit = distinct[column] == part.indices
    row = np.repeat(np.arange(len(query_rows)), np.diff(part.indptr))
    mask = np.zeros((len(query_rows), len(distinct)), dtype=bool)
    mask[row[hit], column[hit]] = True
    return mask[:, column_of]
