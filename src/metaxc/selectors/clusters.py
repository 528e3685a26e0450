"""Clusters of items: one vector informs all items of a cluster, as in DEXA.

A novel item belongs to the cluster with the nearest centroid. There are far fewer clusters than items, so the vector of
a cluster is learnt from more clicks and is less specific to an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.errors import DataError
from metaxc.index.topk import top_k

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
