"""Selectors choose what informs an item; the default takes the nearest observed items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from metaxc.arrays import Floats, Rows
from metaxc.index.topk import top_k


class Selector(Protocol):
    """Chooses the rows of the neighbour vectors (by default the observed items' classifiers) that inform an item."""

    @property
    def embeddings(self) -> Floats:
        """(m, dim) float32: the item embedding that each row belongs to."""

    def select(
        self,
        embeddings: Floats,
        k: int,
        exclude_self: Rows | None = None,
        texts: Sequence[str] | None = None,
    ) -> tuple[Rows, Floats]:
        """Rows and their similarities, both (n, k), best first.

        Args:
            embeddings: (n, dim) item embeddings.
            k: How many; a row of −1 with score −inf pads where fewer exist.
            exclude_self: (n,) the row that each item is itself, −1 for none. In training an observed item must never
                see its own classifier.
            texts: (n,) the items' texts where they are known; only selectors that read texts use them.
        """


class NearestSelector:
    """The K nearest observed items by inner product: the paper's selector, exact.

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
        """See `Selector.select`."""
        if exclude_self is None:
            return top_k(embeddings, self.embeddings, k)
        rows, scores = top_k(embeddings, self.embeddings, k + 1)
        return drop_one(rows, scores, exclude_self)


def drop_one(rows: Rows, scores: Floats, unwanted: Rows) -> tuple[Rows, Floats]:
    """Drop each line's unwanted row wherever it is (duplicate texts may push it from the first place), or else the last
    column; (n, k + 1) becomes (n, k)."""
    kept = (rows != unwanted[:, None]) | (rows < 0)  # padding is never dropped twice, whatever is unwanted
    kept[kept.all(axis=1), -1] = False
    shape = (len(rows), rows.shape[1] - 1)
    return rows[kept].reshape(shape), scores[kept].reshape(shape)
