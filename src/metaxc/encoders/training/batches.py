"""Which queries share a batch: at random (DPR, ANCE), or near ones together (NGAME).

Every draw is a function of the seed, the step and the state, so that a resumed run draws what the killed one would
have drawn.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays


class Batches(Protocol):
    """The queries of each step."""

    def draw(self, step: int) -> Rows:
        """(batch,) query rows; called once per step, in order."""

    def notice(self, rows: Rows, queries: Floats) -> None:
        """What the step made of its queries, (batch, dim) embeddings."""

    def state(self) -> Arrays:
        """What a checkpoint has to keep."""

    def restore(self, arrays: Arrays) -> None:
        """Take up a state."""


class RandomBatches:
    """All queries in random order, anew each epoch.

    Args:
        queries: How many queries there are.
        batch: How many share a step.
        seed: Of the order.
    """

    def __init__(self, queries: int, batch: int, seed: int = 0):
        self.queries, self.batch, self.seed = queries, min(batch, queries), seed
        self.per_epoch = max(1, queries // self.batch)
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def draw(self, step: int) -> Rows:
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.queries)
        return self._order[place * self.batch : (place + 1) * self.batch]

    def notice(self, rows: Rows, queries: Floats) -> None:
        """Random order needs no embeddings."""

    def state(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        """A function of the step alone has nothing to take up."""


class ClusteredBatches:
    """Near queries together, so that the items of a batch are hard negatives for one another.

    Clusters are made from the newest embedding known of each query: the ones given at the start, then those that
    the steps leave behind, which cost nothing. They are made anew every `refresh` steps from the queries not yet
    seen in this epoch, and grow as training goes on: from single queries, a random batch, to `cluster`.

    Args:
        embeddings: (queries, dim) to start from.
        batch: How many queries share a step.
        steps: Of the whole training.
        cluster: Size of the clusters at the end.
        refresh: Steps between two clusterings.
        seed: Of clusters and order.
    """

    def __init__(
        self,
        embeddings: Floats,
        batch: int,
        steps: int,
        *,
        cluster: int = 64,
        refresh: int = 100,
        seed: int = 0,
    ):
        self.batch = min(batch, len(embeddings))
        self.steps, self.cluster, self.refresh, self.seed = steps, cluster, refresh, seed
        self.embeddings = np.array(embeddings, dtype=np.float32)
        self.left = np.empty(0, np.int64)

    def size(self, step: int) -> int:
        """Size of a cluster at a step: doubles in even stretches."""
        doublings = int(np.log2(max(self.cluster, 1))) + 1
        return int(2 ** min(doublings - 1, step * doublings // max(self.steps, 1)))

    def draw(self, step: int) -> Rows:
        short = len(self.left) < self.batch
        if short:
            self.left = np.arange(len(self.embeddings))
        if short or step % self.refresh == 0:
            random = np.random.default_rng([self.seed, step])
            self.left = self.left[clustered_order(self.embeddings[self.left], self.size(step), random)]
        rows, self.left = self.left[: self.batch], self.left[self.batch :]
        return rows

    def notice(self, rows: Rows, queries: Floats) -> None:
        self.embeddings[rows] = queries

    def state(self) -> Arrays:
        return {"embeddings": self.embeddings, "left": self.left}

    def restore(self, arrays: Arrays) -> None:
        self.embeddings, self.left = np.array(arrays["embeddings"]), np.array(arrays["left"])


def clustered_order(embeddings: Floats, size: int, random: np.random.Generator) -> Rows:
    """(n,) a permutation in which near neighbours stand together in groups of about `size`, the groups in
    random order, a fresh draw each call."""
    if size <= 1:
        return random.permutation(len(embeddings))
    groups = near_groups(embeddings, size, random)
    return np.concatenate([groups[i] for i in random.permutation(len(groups))])


def near_groups(embeddings: Floats, size: int, random: np.random.Generator) -> list[Rows]:
    """All rows in groups of near neighbours, at most `size` each: halved by random directions until they are small."""
    groups = [np.arange(len(embeddings))]
    while max(len(group) for group in groups) > size:
        halves: list[Rows] = []
        for group in groups:
            if len(group) <= size:
                halves.append(group)
                continue
            first, second = embeddings[random.choice(group, 2, replace=False)]
            order = group[np.argsort(embeddings[group] @ (first - second), kind="stable")]
            halves += [order[: len(order) // 2], order[len(order) // 2 :]]
        groups = halves
    return groups
