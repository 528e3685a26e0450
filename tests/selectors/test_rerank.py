import numpy as np
import pytest

from metaxc.errors import DataError
from metaxc.selectors import NearestSelector, RerankSelector

ITEMS = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]], dtype=np.float32)
TEXTS = ["a", "bb", "ccc", "dddd"]
ITEM = np.array([[1, 0]], dtype=np.float32)


def longest(items, candidates):
    return np.array([[len(text) for text in line] for line in candidates])


def test_the_function_chooses_and_the_similarities_stay():
    selector = RerankSelector(NearestSelector(ITEMS), longest, TEXTS, shortlist=3)
    rows, scores = selector.select(ITEM, 2, texts=["x"])
    assert rows.tolist() == [[2, 1]]  # dddd is longer, but not on the shortlist
    np.testing.assert_allclose(scores, [[0.6, 0.8]], rtol=1e-6)


def test_by_order_the_first_gets_the_largest_similarity_of_those_chosen():
    selector = RerankSelector(NearestSelector(ITEMS), longest, TEXTS, shortlist=3, weigh_by="order")
    rows, scores = selector.select(ITEM, 2, texts=["x"])
    assert rows.tolist() == [[2, 1]]
    np.testing.assert_allclose(scores, [[0.8, 0.6]], rtol=1e-6)


def test_the_scale_of_the_function_changes_nothing():
    def louder(items, candidates):
        return 1e6 * longest(items, candidates) - 5e5

    found = [
        RerankSelector(NearestSelector(ITEMS), f, TEXTS).select(ITEM, 3, texts=["x"])
        for f in (longest, louder)
    ]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_it_reads_the_item_and_what_is_padded_stays_last():
    seen = []

    def same_letter(items, candidates):
        seen.append((items, candidates))
        return np.array(
            [[float(c[:1] == i[:1]) for c in line] for i, line in zip(items, candidates, strict=True)]
        )

    selector = RerankSelector(NearestSelector(ITEMS), same_letter, TEXTS, shortlist=6)
    rows, scores = selector.select(ITEMS[:2], 4, exclude_self=np.array([0, -1]), texts=["d", "ccc"])
    assert seen[0][0] == ["d", "ccc"]
    assert seen[0][1][0] == ["bb", "ccc", "dddd", "", "", ""]
    assert rows.tolist() == [[3, 1, 2, -1], [2, 1, 0, 3]]
    assert np.isneginf(scores[0, 3])


def test_errors_say_what_is_missing():
    selector = RerankSelector(NearestSelector(ITEMS), longest, TEXTS)
    with pytest.raises(DataError, match="needs the items' texts"):
        selector.select(ITEM, 2)
    with pytest.raises(DataError, match="do not fit the first selector"):
        RerankSelector(NearestSelector(ITEMS), longest, TEXTS[:2])
    for columns in (1, 30):  # fewer and more than the 20 candidates
        with pytest.raises(DataError, match="one score per candidate"):
            RerankSelector(NearestSelector(ITEMS), lambda i, c, n=columns: np.ones((1, n)), TEXTS).select(
                ITEM, 2, texts=["x"]
            )
    with pytest.raises(DataError, match="NaN"):
        RerankSelector(NearestSelector(ITEMS), lambda i, c: np.full((1, 20), np.nan), TEXTS).select(
            ITEM, 2, texts=["x"]
        )
