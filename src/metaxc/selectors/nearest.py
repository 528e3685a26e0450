"""The K observed items whose embeddings lie nearest: the paper's selector, exact and in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from metaxc.arrays import Floats, Rows
from metaxc.index.topk import top_k


class NearestSelector:
    """K nearest observed items by inner product.

    Args:
        embeddings: (observed, dim) float32, the observed items' embeddings.
    """

    kind: ClassVar[str] = "nearest"

    def __init__(self, embeddings: Floats):
        self.embeddings = embeddings

    def __repr__(self) -> str:
        return f"NearestSelector({len(self.embeddings):,} observed items)"

    def select(
        self,
        embeddings: Floats,
        k: int,
        exclude_self: Rows | None = None,
        texts: Sequence[str] | None = None,
    ) -> tuple[Rows, Floats]:
        if exclude_self is None:
            return top_k(embeddings, self.embeddings, k)
        rows, scores = top_k(embeddings, self.embeddings, k + 1)
        return without(rows, scores, exclude_self)


def without(rows: Rows, scores: Floats, unwanted: Rows) -> tuple[Rows, Floats]:
    """Drop each line's unwanted row wherever it stands (duplicate texts may push it from the first place),
    or else the last column."""
    kept = (rows != unwanted[:, None]) | (rows < 0)  # padding is never dropped twice, whatever is unwanted
    kept[kept.all(axis=1), -1] = False
    shape = (len(rows), rows.shape[1] - 1)
    return rows[kept].reshape(shape), scores[kept].reshape(shape)
