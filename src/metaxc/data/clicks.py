"""Clicks as a learner meets them: what it may see of a data set, and the pairs of one batch."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.errors import DataError


def training_clicks(dataset: Dataset) -> tuple[Rows, Rows, csr_array]:
    """What a learner may see: rows of the observed items that have a click, rows of the training queries
    that clicked one, and the clicks between them. An item without a click is novel, whatever a list says."""
    allowed = dataset.observed_rows
    counts = np.bincount(dataset.train.clicks.indices, minlength=len(dataset.items))
    observed = allowed[counts[allowed] > 0]
    if not len(observed):
        raise DataError(
            "No observed item has a click", expected="clicks to learn from", fix="give more training clicks"
        )
    clicks = csr_array(dataset.train.clicks[:, observed])
    query_rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
    return observed, query_rows, csr_array(clicks[query_rows])


def draw_clicks(clicks: csr_array, rows: Rows, random: np.random.Generator) -> Rows:
    """One clicked item of each query at `rows`, at random."""
    starts, ends = clicks.indptr[rows], clicks.indptr[rows + 1]
    places = starts + (random.random(len(rows)) * (ends - starts)).astype(np.int64)
    return clicks.indices[places].astype(np.int64)


def click_mask(clicks: csr_array, query_rows: Rows, item_rows: Rows) -> Mask:
    """(queries, items) bool: which query of a batch clicked which item of it."""
    distinct, column_of = np.unique(item_rows, return_inverse=True)
    part = clicks[query_rows]
    column = np.searchsorted(distinct, part.indices).clip(max=len(distinct) - 1)
    hit = distinct[column] == part.indices
    row = np.repeat(np.arange(len(query_rows)), np.diff(part.indptr))
    mask = np.zeros((len(query_rows), len(distinct)), dtype=bool)
    mask[row[hit], column[hit]] = True
    return mask[:, column_of]
