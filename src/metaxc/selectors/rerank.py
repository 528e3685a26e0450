"""Re-ranking: any function that reads texts re-orders a shortlist that was selected by vectors.

The function may be a cross-encoder (`metaxc.selectors.cross_encoder`) or call a language model; it gets texts and
returns scores on any scale. These decide which K neighbours are selected and in which order. They are *not* passed to
the generator as similarities: its temperature was chosen on the scale of the first selector, and on another scale the
weights would collapse on one neighbour or spread over all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats, Rows
from metaxc.errors import DataError
from metaxc.selectors.nearest import Selector

Rerank = Callable[[list[str], list[list[str]]], "NDArray[np.floating]"]
"""(n item texts, n lists of candidate texts) → (n, candidates) scores, higher is better."""


class RerankSelector:
    """The K best of a shortlist, by a function that reads the texts.

    Args:
        first: Selects the shortlist.
        rerank: Scores the shortlist; a shorter list is padded with empty texts.
        texts: (m,) the texts at the rows of `first`: those of the observed items.
        shortlist: How many candidates the function sees; never fewer than K.
        weigh_by: `"similarity"`: each chosen row keeps the first selector's similarity. `"order"`: the chosen rows'
            similarities are reassigned, the largest to the row that `rerank` puts first: the scale stays the same, and
            the function also decides which neighbour counts most.
    """

    kind: ClassVar[str] = "rerank"

    def __init__(
        self,
        first: Selector,
        rerank: Rerank,
        texts: Sequence[str],
        *,
        shortlist: int = 20,
        weigh_by: Literal["similarity", "order"] = "similarity",
    ):
        if len(texts) != len(first.embeddings):
            raise DataError(
                "The texts do not fit the first selector",
                got=f"{len(texts):,} texts",
                expected=f"{len(first.embeddings):,}, one per row that it can select",
            )
        self.first, self.rerank, self.texts = first, rerank, list(texts)
        self.shortlist, self.weigh_by = shortlist, weigh_by

    def __repr__(self) -> str:
        by = getattr(self.rerank, "__name__", None) or repr(self.rerank)
        return f"RerankSelector({self.first!r}, {by}, shortlist={self.shortlist}, weigh_by={self.weigh_by!r})"

    @property
    def embeddings(self) -> Floats:
        return self.first.embeddings

    def select(
        self,
        embeddings: Floats,
        k: int,
        exclude_self: Rows | None = None,
        texts: Sequence[str] | None = None,
    ) -> tuple[Rows, Floats]:
        """As `Selector.select`, in the order of `rerank`; the similarities are the first selector's."""
        if texts is None or len(texts) != len(embeddings):
            raise DataError(
                "Re-ranking needs the items' texts",
                got="embeddings only"
                if texts is None
                else f"{len(texts)} texts, {len(embeddings)} embeddings",
                expected="one text per item",
                fix="represent items by their texts, or use a selector that needs none",
            )
        rows, scores = self.first.select(embeddings, max(k, self.shortlist), exclude_self, texts)
        if not len(rows):
            return rows[:, :k], scores[:, :k]
        candidates = [[self.texts[row] if row >= 0 else "" for row in line] for line in rows]
        given = np.asarray(self.rerank(list(texts), candidates), dtype=np.float64)
        if given.shape != rows.shape or np.isnan(given).any():
            raise DataError(
                "The re-ranking function did not return one score per candidate",
                got="NaN" if given.shape == rows.shape else f"shape {given.shape}",
                expected=f"numbers of shape {rows.shape}",
            )
        given[rows < 0] = -np.inf
        order = np.argsort(-given, axis=1, kind="stable")[:, :k]
        rows, scores = np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return rows, -np.sort(-scores, axis=1) if self.weigh_by == "order" else scores
