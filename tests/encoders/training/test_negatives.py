import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.encoders.training.negatives import (
    IndexNegatives,
    ListedNegatives,
    Negatives,
    find_by_bm25,
    hardest,
)

CLICKS = csr_array(np.array([[1, 0, 0, 0], [0, 1, 1, 0]], np.float32))
SCORES = np.array([[9, 5, 7, 1], [8, 9, 9, 2]], np.float32)


def never():
    raise AssertionError("the items are not needed")


def test_hardest_are_the_highest_scored_that_were_not_clicked():
    assert hardest(lambda rows: SCORES[rows].copy(), CLICKS, 3).tolist() == [[2, 1, 3], [0, 3, -1]]


def test_the_base_class_adds_no_negatives():
    assert Negatives().draw(0, np.array([0]), np.ones((1, 2)), never).tolist() == []


def test_listed_negatives_are_drawn_from_the_querys_own_list():
    listed = np.array([[1, 2, 3], [4, -1, -1], [-1, -1, -1]])
    negatives = ListedNegatives(listed, per_query=1)
    drawn = [negatives.draw(step, np.array([0, 2]), np.ones((2, 2)), never).tolist() for step in range(40)]
    assert all(len(rows) == 1 for rows in drawn)
    assert {rows[0] for rows in drawn} == {1, 2, 3}
    assert ListedNegatives(listed, 2).draw(0, np.array([1]), np.ones((1, 2)), never).tolist() == [4]


def test_the_index_is_searched_with_current_queries_and_refreshed():
    items = np.eye(4, dtype=np.float32)
    turned = items[::-1].copy()
    refreshes = []

    def embed_items():
        refreshes.append(1)
        return turned

    negatives = IndexNegatives(items, CLICKS, per_query=1, depth=1, refresh=2)
    towards_3 = np.array([[0.5, 0, 0, 1]], np.float32)
    assert negatives.draw(0, np.array([1]), towards_3, embed_items).tolist() == [3]
    assert negatives.draw(1, np.array([1]), towards_3, embed_items).tolist() == [3]
    assert refreshes == []
    assert negatives.draw(2, np.array([1]), towards_3, embed_items).tolist() == [0]
    assert refreshes == [1]
    kept = IndexNegatives(items, CLICKS, per_query=1, depth=1, refresh=2)
    kept.restore(negatives.state())
    assert kept.draw(3, np.array([1]), towards_3, never).tolist() == [0]


def test_a_clicked_item_is_never_a_negative_of_its_query():
    negatives = IndexNegatives(np.eye(4, dtype=np.float32), CLICKS, per_query=4, depth=4)
    best = np.array([[1, 0.9, 0.8, 0.7]], np.float32)
    assert negatives.draw(0, np.array([1]), best, never).tolist() == [0, 3]


@pytest.mark.parametrize("many", [1, 3])
def test_bm25_lists_items_with_words_in_common_that_were_not_clicked(many):
    items = ["red apple", "red apple pie", "green pear", "wooden chair"]
    clicks = csr_array(np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.float32))
    listed = find_by_bm25(["apple", "stone"], items, clicks, many)
    assert listed.shape == (2, many)
    assert listed[0, 0] == 1
    assert (listed[0, 1:] == -1).all()
    assert (listed[1] == -1).all()
