"""Batches of texts of one length, so that next to nothing of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from metaxc.encoders.tokens import TokenBags

Ints = NDArray[np.int64]


def batches_by_length(lengths: Ints, tokens: int) -> Iterator[Ints]:
    """Rows in batches, shortest first, each of at most `tokens` tokens when padded to its longest."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > tokens:
            yield order[start:end]
            start = end


def padded(bags: TokenBags, rows: Ints) -> tuple[Ints, Ints]:
    """Token ids and attention mask of the texts at `rows`, both (rows, longest), as a BERT-like model takes them."""
    taken = bags.take(rows)
    lengths = np.diff(taken.starts)
    mask = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = taken.tokens
    return ids, mask.astype(np.int64)
