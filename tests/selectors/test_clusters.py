import numpy as np
import pytest

from metaxc.classifiers.classifiers import normalize_rows
from metaxc.errors import DataError
from metaxc.selectors import ClusterSelector, cluster


def groups(number=12, size=25, dim=16, seed=0):
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(dim, dim)))[0][:number]
    return normalize_rows(np.repeat(axes, size, axis=0) + 0.05 * random.normal(size=(number * size, dim)))


def test_the_nearest_cluster_first_and_padding():
    centroids = np.array([[1, 0], [0, 1]], dtype=np.float32)
    rows, scores = ClusterSelector(centroids).select(np.array([[0.6, 0.8]], np.float32), 3)
    assert rows.tolist() == [[1, 0, -1]]
    np.testing.assert_allclose(scores[0, :2], [0.8, 0.6], rtol=1e-6)
    assert np.isneginf(scores[0, 2])


def test_groups_are_found():
    items = groups()
    centroids, assigned = cluster(items, 12, seed=0)
    together = assigned.reshape(12, 25)
    assert (together == together[:, :1]).all()
    assert len(np.unique(together[:, 0])) == len(centroids) == 12
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)


def test_an_item_is_in_the_cluster_the_selector_gives_it_and_none_is_empty_or_huge():
    items = normalize_rows(np.random.default_rng(1).normal(size=(600, 8)))
    centroids, assigned = cluster(items, 40, seed=3)
    np.testing.assert_array_equal(ClusterSelector(centroids).select(items, 1)[0][:, 0], assigned)
    sizes = np.bincount(assigned, minlength=len(centroids))
    assert sizes.min() >= 1
    assert sizes.max() <= 4 * 600 / 40
    assert np.array_equal(cluster(items, 40, seed=3)[0], centroids)


def test_twins_leave_no_empty_cluster():
    centroids, assigned = cluster(np.repeat(np.eye(3, dtype=np.float32), 4, axis=0), 6)
    assert len(centroids) == 3
    assert sorted(np.bincount(assigned).tolist()) == [4, 4, 4]


def test_more_clusters_than_items():
    with pytest.raises(DataError, match="number of clusters"):
        cluster(np.eye(3, dtype=np.float32), 4)
