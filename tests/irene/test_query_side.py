"""Which query side is chosen: never one that costs accuracy, overall or of novel items."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.emmett.scoring import ClassifierResponse
from metaxc.irene.query_side import HeldOutQueries, QuerySide, choose_query_side
from metaxc.tuning import MixedQuality, Relevance


def found(mean, novel):
    return MixedQuality(mean, mean, novel, mean, 0.0, np.zeros(1), np.zeros(1, np.int64))


def sides(*qualities):
    named = [QuerySide(None, None, extent=place, kept=place == 0) for place in range(len(qualities))]
    return list(zip(named, (found(*one) for one in qualities), strict=True))


@pytest.mark.parametrize(
    ("qualities", "chosen"),
    [
        ([(50, 50), (50, 50), (52, 50), (51, 60)], 2),  # the best overall
        ([(50, 50), (50, 50), (52, 49.6), (51, 50)], 3),  # not at the cost of novel items
        ([(50, 50), (50, 50), (50.3, 50)], 1),  # no more than chance: newer training queries alone
        ([(50, 50), (49.8, 50), (50.1, 50)], 1),
        ([(50, 50), (49.6, 50), (50.1, 50)], 0),  # these cost accuracy: all stays as it was
        ([(50, 50), (52, 49), (51, 49)], 0),  # or novel items
        ([(50, 50), (52, 50), (52.2, 50)], 1),
    ],
)
def test_the_choice(qualities, chosen):
    assert choose_query_side(sides(*qualities)).extent == chosen


def test_pairs_of_a_query_and_its_own_item_are_left_out():
    vectors = np.eye(3, 4, dtype=np.float32)
    relevance = Relevance(csr_array(np.array([[0, 1, 0]], np.float32)), np.zeros(3, bool), np.ones(3))
    query = np.array([[1.0, 0.9, 0.0]], np.float32)
    assert HeldOutQueries(relevance, vectors).quality(query, 0.0).precision == 0.0
    own = csr_array(np.array([[1, 0, 0]], np.float32))
    assert HeldOutQueries(relevance, vectors, own).quality(query, 0.0).precision == 100.0


def test_the_exposure_counts_for_novel_items():
    vectors = np.array([[1, 0, 0], [0.9, 0, 1]], np.float32)
    relevance = Relevance(csr_array(np.array([[0, 1]], np.float32)), np.array([False, True]), np.zeros(2))
    query = np.array([[1.0, 0.0]], np.float32)
    assert HeldOutQueries(relevance, vectors).quality(query, 0.0).precision == 0.0
    assert HeldOutQueries(relevance, vectors).quality(query, 0.2).precision == 100.0
    deaf = ClassifierResponse(np.zeros((1, query.shape[1]), np.float32), 1.0)  # responds to no query
    assert HeldOutQueries(relevance, vectors, response=deaf).quality(query, 0.2).precision == 0.0
