"""Reciprocal rank fusion, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from metaxc.data import Dataset
from metaxc.errors import DataError
from metaxc.evaluation.searches import encoder_search
from metaxc.research.baselines import BM25, fuse_rankings, fuse_searches, scorer_search


def test_by_hand():
    # 7: 1/62 + 1/61 = 0.03252   3: 1/61 + 1/63 = 0.03227   5: 1/63 = 0.01587   9: 1/62 = 0.01613
    one = np.array([[3, 7, 5]])
    other = np.array([[7, 9, 3]])
    assert fuse_rankings([one, other], 4).tolist() == [[7, 3, 9, 5]]
    assert fuse_rankings([one, other], 2).tolist() == [[7, 3]]
    assert fuse_rankings([one, other], 6).tolist() == [[7, 3, 9, 5, -1, -1]]


def test_the_constant_is_60():
    # Twice at rank 3 is better than once at rank 1 with 60 (2/63 > 1/61), and worse without it (2/3 < 1).
    one, other = np.array([[1, 2, 0]]), np.array([[4, 5, 0]])
    assert fuse_rankings([one, other], 1).tolist() == [[0]]
    assert fuse_rankings([one, other], 1, constant=0).tolist() == [[1]]
    # 1/61 + 1/72 = 0.03028 against 1/65 + 1/66 = 0.03053; with a constant of 50, 0.03574 against 0.03604 the same;
    # with 10, 0.13636 against 0.12917 the other way round.
    first, second = np.full((1, 12), -1), np.full((1, 12), -1)
    first[0, [0, 4]], second[0, [11, 5]] = (8, 9), (8, 9)
    assert fuse_rankings([first, second], 1).tolist() == [[9]]
    assert fuse_rankings([first, second], 1, constant=10).tolist() == [[8]]


def test_no_results_get_nothing_and_equal_sums_rank_by_row():
    one = np.array([[6, 4], [-1, -1], [2, -1]])
    other = np.array([[4, 6], [-1, -1], [-1, 1]])
    assert fuse_rankings([one, other], 2).tolist() == [[4, 6], [-1, -1], [2, 1]]


def test_rankings_of_different_queries_are_an_error():
    with pytest.raises(DataError, match="cannot be fused"):
        fuse_rankings([np.zeros((2, 3), np.int64), np.zeros((1, 3), np.int64)], 2)


def test_only_items_that_may_be_ranked_have_ranks():
    """Filtered before the fusion: item 2 is first among those allowed in both rankings."""

    def search(order):
        def run(queries, k, among):
            kept = [row for row in order if among is None or among[row]][:k]
            return np.array([kept + [-1] * (k - len(kept))] * len(queries))

        return run

    fused = fuse_searches([search([0, 2, 1]), search([1, 2, 0])])
    assert fused(["q"], 3, None).tolist() == [[0, 1, 2]]  # 1/61 + 1/63 twice, 2/62
    assert fused(["q"], 3, np.array([False, True, True])).tolist() == [[1, 2, -1]]
    assert fused(["q"], 1, np.array([False, False, True])).tolist() == [[2]]


def test_an_item_without_a_term_of_the_query_is_no_result():
    items = {"a": "red apple", "b": "green pear", "c": "green apple"}
    dataset = Dataset.of(items, {"q": "apple"}, [("q", "a")])
    fitted = BM25().fit(dataset)
    found = scorer_search(fitted, 3, matches_only=True)(["pear", "zebra"], 3, None)
    assert found.tolist() == [[1, -1, -1], [-1, -1, -1]]
    assert (scorer_search(fitted, 3)(["pear"], 3, None) >= 0).all()


def test_terms_and_embeddings_help_each_other(market, hashed):
    """A third of the queries shares a word with its items, which both searches find."""
    fused = fuse_searches(
        [
            encoder_search(hashed, market),
            scorer_search(BM25().fit(market), len(market.items), matches_only=True),
        ]
    )
    found = fused(["want7 later0 thing7"], 5, None)[0]
    assert sorted(found.tolist()) == [35, 36, 37, 38, 39]
