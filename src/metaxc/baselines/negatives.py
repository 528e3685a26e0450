"""Hard negatives: what a first ranking puts on top though it was not clicked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

BLOCK_SCORES = 8_000_000


def hardest(score: Callable[[Rows], Floats], rows: Rows, clicks: csr_array, many: int) -> Rows:
    """(rows, many) columns of `clicks`, the best scored ones that the query did not click; −1 where there are no more.

    Args:
        score: Rows of `clicks` to (n, items) float32 scores; called in blocks.
        rows: Which queries.
        clicks: (queries, items).
        many: How many per query.
    """
    items = clicks.shape[1]
    found = np.full((len(rows), many), -1, dtype=np.int64)
    block = max(1, BLOCK_SCORES // items)
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        scores, clicked = score(part), clicks[part]
        scores[np.repeat(np.arange(len(part)), np.diff(clicked.indptr)), clicked.indices] = -np.inf
        # Most scores of words are 0, and which of those that tie is taken matters to nobody.
        best, columns = torch.topk(torch.from_numpy(scores), min(many, items), dim=1)
        found[start : start + block, : best.shape[1]] = np.where(torch.isfinite(best), columns, -1)
    return found
