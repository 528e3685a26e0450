"""What a learner may see of a data set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.errors import DataError

Rows = NDArray[np.int64]


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
