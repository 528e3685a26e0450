"""Clicks for training: the part of a data set that may be learnt from, and the clicks of a batch."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.errors import DataError


def training_clicks(dataset: Dataset) -> tuple[Rows, Rows, csr_array]:
    """The clicks that a model may learn from. An item without clicks is novel even if it is not marked as novel.

    Returns:
        Rows of the observed items with a click, rows of the training queries that clicked one of them, and the clicks
        between the two: (queries, items) float32.
    """
    allowed = dataset.observed_rows
    counts = np.bincount(dataset.train.clicks.indices, minlength=len(dataset.items))
    observed = allowed[counts[allowed] > 0]
    if not len(observed):
        raise DataError(
            "No observed item has a click", expected="clicks to learn from", fix="add more training clicks"
        )
    clicks = csr_array(dataset.train.clicks[:, observed])
    query_rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
    return observed, query_rows, csr_array(clicks[query_rows])


def draw_clicks(clicks: csr_array, rows: Rows, random: np.random.Generator) -> Rows:
    """One random clicked item for each query in `rows`."""
    starts, ends = clicks.indptr[rows], clicks.indptr[rows + 1]
    places = starts + (random.random(len(rows)) * (ends - starts)).astype(np.int64)
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
