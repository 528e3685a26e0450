"""Selectors choose what informs an item: the nearest observed items, or, as in DEXA, the nearest clusters of items.

A novel item belongs to the cluster with the nearest centroid. There are far fewer clusters than items, so the vector of
a cluster is learnt from more clicks and is less specific to an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.errors import DataError
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
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
    """The K nearest observed items by inner product: the paper's selector.

    Below 100,000 items all are compared; from there on an index finds nearly all of them (`metaxc.index.array_search`).

    Args:
        embeddings: (observed, dim) float32, the observed items' embeddings.
        arrays: What `items.arrays` returned for the same embeddings; None if an index is still to be built.
    """

    kind: ClassVar[str] = "nearest"

    def __init__(self, embeddings: Floats, arrays: Arrays | None = None):
        self.items = ArraySearch(embeddings, arrays, MOST_SCANNED)

    @property
    def embeddings(self) -> Floats:
        return self.items.vectors

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
            return self.items.search(embeddings, k)
        rows, scores = self.items.search(embeddings, k + 1)
        return drop_one(rows, scores, exclude_self)


def drop_one(rows: Rows, scores: Floats, unwanted: Rows) -> tuple[Rows, Floats]:
    """Drop each line's unwanted row wherever it is (duplicate texts may push it from the first place), or else the last
    column; (n, k + 1) becomes (n, k)."""
    kept = (rows != unwanted[:, None]) | (rows < 0)  # padding is never dropped twice, whatever is unwanted
    kept[kept.all(axis=1), -1] = False
    shape = (len(rows), rows.shape[1] - 1)
    return rows[kept].reshape(shape), scores[kept].reshape(shape)


KMEANS_BATCH = 4_096
FEW_CLUSTERS = 100
"""Up to here the k-means++ initialisation is cheap and finds groups that a random one may miss. With many clusters a
random initialisation ends no worse, in a fifth of the time."""


class ClusterSelector:
    """The nearest clusters by inner product; there is one neighbour vector per cluster.

    Args:
        centroids: (clusters, dim) float32, as `cluster` finds them.
    """

    kind: ClassVar[str] = "clusters"

    def __init__(self, centroids: Floats):
        self.centroids = centroids

    def __repr__(self) -> str:
        return f"ClusterSelector({len(self.centroids):,} clusters)"

    @property
    def embeddings(self) -> Floats:
        return self.centroids

    def select(
        self,
        embeddings: Floats,
        k: int,
        exclude_self: Rows | None = None,
        texts: Sequence[str] | None = None,
    ) -> tuple[Rows, Floats]:
        """See `Selector.select`; no item is a cluster, so `exclude_self` excludes nothing."""
        return top_k(embeddings, self.centroids, k)


def cluster(embeddings: Floats, n: int, seed: int = 0) -> tuple[Floats, Rows]:
    """At most n clusters of items: unit centroids (clusters, dim), and the cluster of each item (items,).

    Mini-batch k-means; clusters that become too small are restarted at another item, which keeps the sizes even. An
    item's cluster is the one that `ClusterSelector` selects for it; empty clusters are left out.

    Args:
        embeddings: (items, dim) float32, unit rows.
        n: How many clusters; at most one per item.
        seed: Draws the initialisation and the batches.
    """
    if not 1 <= n <= len(embeddings):
        raise DataError(
            "The number of clusters does not fit the items", got=n, expected=f"1 to {len(embeddings):,}"
        )
    from sklearn.cluster import MiniBatchKMeans  # type: ignore[import-untyped]

    means = MiniBatchKMeans(
        n,
        batch_size=max(KMEANS_BATCH, n),
        init="k-means++" if n <= FEW_CLUSTERS else "random",
        n_init=3 if n <= FEW_CLUSTERS else 1,
        reassignment_ratio=0.05,
        random_state=seed,
    )
    centroids = normalize_rows(means.fit(np.asarray(embeddings)).cluster_centers_)
    assigned = top_k(embeddings, centroids, 1)[0][:, 0]
    kept, assigned = np.unique(assigned, return_inverse=True)
    return centroids[kept], assigned.astype(np.int64)
