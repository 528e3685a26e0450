"""An episode: items that play novel, which a generator learns from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.training_loop import EarlyStopping

FEWEST_HELD_OUT = 10
"""Held-out items and queries below which nothing can be validated."""


@dataclass(frozen=True)
class Episode:
    """Items that play novel, and everything that is known about them in one encoder's space.

    A generator sees an item's embedding and its neighbours' classifiers, and its loss is computed on the item's clicks.
    How far each of the two can be trusted depends on what the encoder knows: an encoder trained on an item's clicks has
    moved the item's embedding towards them, and a generator that learns on such items learns to trust the embedding
    more than a novel item's deserves. An episode is therefore complete in itself: encoder, classifiers and neighbours
    of one fit, and items which that fit has not seen (or has seen, for comparison). Episodes of several fits live in
    different spaces; a batch comes from one of them.

    Args:
        queries: (queries, dim) embeddings; may be memory-mapped.
        items: (items, dim) embeddings of the items that play novel.
        clicks: (queries, items); what the loss is computed on.
        classifiers: (observed, dim) the neighbours' classifiers, scaled by trust.
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
        """The episode without the clicks of the queries where `queries`, (queries,) bool, is True."""
        kept = np.repeat(~queries, np.diff(self.clicks.indptr))
        row = np.repeat(np.arange(len(queries)), np.diff(self.clicks.indptr))[kept]
        clicks = csr_array(
            (self.clicks.data[kept], (row, self.clicks.indices[kept])), shape=self.clicks.shape
        )
        return replace(self, clicks=clicks)

    def take(self, items: Rows) -> Episode:
        """The episode of some of its items."""
        return replace(
            self,
            items=self.items[items],
            clicks=csr_array(self.clicks[:, items]),
            neighbours=self.neighbours[items],
            scores=self.scores[items],
        )

    def hold_out(self, config: EarlyStopping, seed: int) -> tuple[Episode, Episode | None]:
        """The episode without some items and the queries that validate on them, and the held-out part; None, and the
        whole episode, where too little would be held out or left."""
        random = np.random.default_rng([seed, 2])
        clicked = np.flatnonzero(np.bincount(self.clicks.indices, minlength=len(self.items)))
        held = np.sort(
            random.permutation(clicked)[: min(int(config.share * len(clicked)), config.most_held_out)]
        )
        validation = self.take(held)
        asking = np.flatnonzero(np.diff(validation.clicks.indptr) > 0)
        most = min(config.most_held_out, max(int(config.share * len(self.queries)), FEWEST_HELD_OUT))
        asking = np.sort(random.permutation(asking)[:most])
        validating = np.isin(np.arange(len(self.queries)), asking)
        training = self.take(np.setdiff1d(np.arange(len(self.items)), held)).without(validating)
        if min(len(held), len(asking)) < FEWEST_HELD_OUT or not training.clicks.nnz:
            return self, None
        return training, validation.without(~validating)
