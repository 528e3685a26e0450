import numpy as np
from scipy.sparse import csr_array

from metaxc.data.clicks import click_mask, draw_clicks


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
