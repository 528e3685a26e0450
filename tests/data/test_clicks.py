import numpy as np
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.data.clicks import (
    click_mask,
    click_weight,
    clicks_per_item,
    draw_clicks,
    training_clicks,
    weighted_clicks,
)


def test_a_repeated_click_counts_by_its_logarithm():
    weights = click_weight(np.array([1, 2, 1000, 10**9]))
    assert weights.dtype == np.float32
    assert weights[0] == 1
    np.testing.assert_allclose(weights, [1, 1.6931472, 7.9077554, 21.723267], rtol=1e-6)


def dataset(counts):
    items, queries = {name: name for name in "abc"}, {name: name for name in "xyz"}
    clicks = [("x", "a"), ("x", "b"), ("y", "c"), ("z", "a"), ("z", "b")]
    return Dataset.of(items, queries, clicks, counts=counts).with_novel(["c"])


def test_training_clicks_are_weighted_by_their_counts():
    observed, queries, clicks = training_clicks(dataset([3, 1, 9, 1, 2]))
    assert observed.tolist() == [0, 1]
    assert queries.tolist() == [0, 2]
    log = np.log(np.float64([3, 1, 1, 2])).reshape(2, 2)
    np.testing.assert_allclose(clicks.toarray(), 1 + log, rtol=1e-6)
    assert clicks.dtype == np.float32


def test_clicks_that_happened_once_are_ones_and_the_log_stays_binary():
    once = dataset([1, 1, 1, 1, 1])
    assert weighted_clicks(once.train) is once.train.clicks
    assert training_clicks(once)[2].toarray().tolist() == [[1, 1], [1, 1]]
    assert set(dataset([3, 1, 9, 1, 2]).train.clicks.data) == {1}


def test_clicks_per_item_are_numbers_or_sums_of_weights():
    ones = clicks_per_item(csr_array(np.float32([[1, 0, 1], [1, 0, 0]])))
    assert ones.dtype == np.int64
    assert ones.tolist() == [2, 0, 1]
    weights = clicks_per_item(csr_array(np.float32([[1, 0, 2.5], [1.5, 0, 0]])))
    assert weights.dtype == np.float64
    assert weights.tolist() == [2.5, 0, 2.5]


def test_the_mask_marks_the_clicked_pairs_of_a_batch():
    clicks = csr_array(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], np.float32))
    mask = click_mask(clicks, np.array([2, 0]), np.array([2, 1, 2, 0]))
    assert mask.tolist() == [[True, False, True, False], [True, False, True, True]]


def test_every_click_is_drawn_eventually_and_nothing_else():
    clicks = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]], np.float32))
    random = np.random.default_rng(0)
    drawn = np.stack([draw_clicks(clicks, np.array([0, 1]), random) for _ in range(50)])
    assert set(drawn[:, 0]) == {0, 2}
    assert set(drawn[:, 1]) == {1}


def test_clicks_are_drawn_in_proportion_to_their_weights():
    clicks = csr_array(np.array([[1, 0, 3, 0], [0, 0, 0, 0], [0, 1, 0, 0], [6, 1, 0, 1]], np.float32))
    random = np.random.default_rng(0)
    drawn = np.stack([draw_clicks(clicks, np.array([3, 0, 2]), random) for _ in range(4000)])
    shares = [np.bincount(column, minlength=4) / 4000 for column in drawn.T]
    np.testing.assert_allclose(shares, [[0.75, 0.125, 0, 0.125], [0.25, 0, 0.75, 0], [0, 1, 0, 0]], atol=0.03)


def test_equal_weights_draw_as_ones_do():
    ones = csr_array(np.float32(np.random.default_rng(1).random((30, 20)) < 0.4))
    rows = np.flatnonzero(np.diff(ones.indptr) > 0)
    once, twice = (draw_clicks(matrix, rows, np.random.default_rng(2)) for matrix in (ones, ones * 2))
    assert once.tolist() == twice.tolist()
