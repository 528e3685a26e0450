"""Which queries share a batch: random ones (DPR, ANCE), or near ones (NGAME).

Every draw is a function of the seed, the step and the state, so that a resumed run draws the same batches as one that
was never killed.
"""

from __future__ import annotations

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays

SKETCH = 32
"""Random directions of a sketch: clusters need no more than to tell near rows from far ones."""

SKETCH_BLOCK = 65_536


class Batches:
    """The queries of each step. The base class has no state and ignores the embeddings."""

    def draw(self, step: int) -> Rows:
        """(batch,) query rows; called once per step, in order."""
        raise NotImplementedError

    def update(self, rows: Rows, queries: Floats) -> None:
        """Receive the (batch, dim) embeddings that the step computed for its queries."""

    def state(self) -> Arrays:
        """The state for a checkpoint."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Set the state to the result of `state`."""


class RandomBatches(Batches):
    """All queries in random order, a new order for each epoch.

    Args:
        queries: The number of queries.
        batch: The number of queries per step.
        seed: Decides the order.
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


class ClusteredBatches(Batches):
    """Batches of near queries, so that the items of a batch are hard negatives for one another.

    Queries are clustered by their latest embeddings: those given at the start, then those that the training steps
    compute anyway. They are clustered again every `refresh` steps, without the queries already seen in this epoch, and
    clusters grow during training: from single queries, which is a random batch, to `cluster`.

    Args:
        embeddings: (queries, dim) at the start of training.
        batch: The number of queries per step.
        steps: The total number of training steps.
        cluster: The size of the clusters at the end of training.
        refresh: Steps between two clusterings.
        seed: Decides clusters and order.
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
        """The size of a cluster at a step; it doubles at regular intervals."""
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

    def update(self, rows: Rows, queries: Floats) -> None:
        self.embeddings[rows] = queries

    def state(self) -> Arrays:
        return {"embeddings": self.embeddings, "left": self.left}

    def restore(self, arrays: Arrays) -> None:
        self.embeddings, self.left = np.array(arrays["embeddings"]), np.array(arrays["left"])


def sketch(embeddings: Floats, seed: int) -> Floats:
    """(n, `SKETCH`) float32: the embeddings on random directions, in which near neighbours mostly stay near.

    Clusters of many rows are found in them with a fraction of the memory. The embeddings may be memory-mapped."""
    dim = embeddings.shape[1]
    if dim <= SKETCH:
        return np.array(embeddings, dtype=np.float32)
    directions = np.random.default_rng(seed).normal(size=(dim, SKETCH)).astype(np.float32)
    blocks = range(0, len(embeddings), SKETCH_BLOCK)
    return np.concatenate([np.asarray(embeddings[at : at + SKETCH_BLOCK]) @ directions for at in blocks])


def clustered_order(embeddings: Floats, size: int, random: np.random.Generator) -> Rows:
    """(n,) row numbers in which near neighbours are together in clusters of about `size`, the clusters in random
    order; each call draws a new order."""
    if size <= 1:
        return random.permutation(len(embeddings))
    clusters = build_clusters(embeddings, size, random)
    return np.concatenate([clusters[i] for i in random.permutation(len(clusters))])


def build_clusters(embeddings: Floats, size: int, random: np.random.Generator) -> list[Rows]:
    """All rows in clusters of near neighbours of at most `size`: halved along random directions until small enough."""
    clusters = [np.arange(len(embeddings))]
    while max(len(cluster) for cluster in clusters) > size:
        halves: list[Rows] = []
        for cluster in clusters:
            if len(cluster) <= size:
                halves.append(cluster)
                continue
            first, second = embeddings[random.choice(cluster, 2, replace=False)]
            order = cluster[np.argsort(embeddings[cluster] @ (first - second), kind="stable")]
            halves += [order[: len(order) // 2], order[len(order) // 2 :]]
        clusters = halves
    return clusters
