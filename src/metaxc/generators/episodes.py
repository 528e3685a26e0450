"""What a generator learns from: items that play novel, seen by one encoder.

A generator sees an item's embedding and its neighbours' classifiers, and is judged by the item's clicks. How much
each of the two can be trusted depends on what the encoder knows: an encoder trained on an item's clicks has put the
item's embedding where those clicks are, and a generator that learns on such items learns to trust the embedding
more than a novel item's deserves. An `Episode` is therefore complete in itself: encoder, classifiers and
neighbours of one fit, and items which that fit has not seen (or has, for comparison: `metaxc.irene.parts`).
Episodes of several fits differ in their spaces; a batch comes from one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows


@dataclass(frozen=True)
class Episode:
    """Items that play novel, and all there is to know about them in one encoder's space.

    Args:
        queries: (queries, dim) embeddings; may be memory-mapped.
        items: (items, dim) embeddings of the items that play novel.
        clicks: (queries, items); what the generator is judged by.
        classifiers: (observed, dim) what the neighbours lend, scaled by trust.
        neighbours: (items, K) rows of `classifiers`, −1 where padded; an item is not among its own.
        scores: (items, K) similarities by the same selector as in serving, −inf where padded.
    """

    queries: Floats
    items: Floats
    clicks: csr_array
    classifiers: Floats
    neighbours: Rows
    scores: Floats

    def without(self, queries: Mask) -> Episode:
        """The episode without the clicks of these queries: (queries,) bool."""
        kept = np.repeat(~queries, np.diff(self.clicks.indptr))
        row = np.repeat(np.arange(len(queries)), np.diff(self.clicks.indptr))[kept]
        clicks = csr_array(
            (self.clicks.data[kept], (row, self.clicks.indices[kept])), shape=self.clicks.shape
        )
        return replace(self, clicks=clicks)
