import numpy as np

from metaxc.selectors import NearestSelector
from metaxc.selectors.nearest import drop_one

ITEMS = np.array([[1, 0], [0.8, 0.6], [0, 1], [1, 0]], dtype=np.float32)


def test_nearest_first():
    rows, scores = NearestSelector(ITEMS).select(np.array([[0, 1]], np.float32), 2)
    assert rows.tolist() == [[2, 1]]
    np.testing.assert_allclose(scores, [[1.0, 0.6]])


def test_an_item_never_sees_itself_even_beside_a_twin():
    rows, _ = NearestSelector(ITEMS).select(ITEMS, 3, exclude_self=np.arange(4))
    assert rows.tolist() == [[3, 1, 2], [0, 3, 2], [1, 0, 3], [0, 1, 2]]


def test_padding_where_fewer_exist():
    rows, scores = NearestSelector(ITEMS[:2]).select(ITEMS[:1], 4, exclude_self=np.array([0]))
    assert rows.tolist() == [[1, -1, -1, -1]]
    assert np.isneginf(scores[0, 1:]).all()


def test_without_drops_the_last_where_there_is_nothing_to_drop():
    rows = np.array([[5, 6, 7], [5, 6, 7]])
    kept, scores = drop_one(rows, rows.astype(np.float32), np.array([6, 1]))
    assert kept.tolist() == [[5, 7], [5, 6]]
    assert scores.tolist() == [[5, 7], [5, 6]]


def test_an_item_that_is_none_of_the_observed_keeps_all_of_them():
    rows, _ = NearestSelector(ITEMS[:2]).select(ITEMS[:2], 4, exclude_self=np.array([0, -1]))
    assert rows.tolist() == [[1, -1, -1, -1], [1, 0, -1, -1]]
