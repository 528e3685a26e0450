import numpy as np
import pytest

from metaxc.data import Dataset, Texts, click_matrix
from metaxc.errors import DataError

ITEMS = {"a": "apple", "b": "bread", "c": "cheese"}
QUERIES = {"x": "fruit", "y": "bakery"}
CLICKS = [("x", "a"), ("y", "b"), ("y", "c"), ("x", "a")]


def test_ids_are_translated_to_rows():
    dataset = Dataset.of(ITEMS, QUERIES, CLICKS)
    assert dataset.train.clicks.toarray().tolist() == [[1, 0, 0], [0, 1, 1]]
    assert dataset.items.rows(["c", "a"]).tolist() == [2, 0]
    assert dataset.items.take(np.array([2, 0])).texts == ["cheese", "apple"]
    assert repr(dataset) == "Dataset('data': 3 items, train ClickLog(2 queries, 3 clicks))"


def test_training_log_has_no_click_on_a_novel_item():
    dataset = Dataset.of(ITEMS, QUERIES, CLICKS).with_novel(["a"])
    log = dataset.observed_log()
    assert log.queries.ids == ["y"]
    assert log.clicks.toarray().tolist() == [[1, 1]]
    assert dataset.observed_rows.tolist() == [1, 2]
    assert dataset.novel_rows.tolist() == [0]


def test_novel_by_ids_and_by_mask_are_the_same():
    dataset = Dataset.of(ITEMS, QUERIES, CLICKS)
    by_mask = dataset.with_novel(np.array([False, True, False]))
    assert by_mask.fingerprint == dataset.with_novel(["b"]).fingerprint
    assert by_mask.fingerprint != dataset.with_novel(["c"]).fingerprint
    assert by_mask.fingerprint != dataset.fingerprint


def test_all_none_or_unknown_items_as_novel_are_an_error():
    dataset = Dataset.of(ITEMS, QUERIES, CLICKS)
    with pytest.raises(DataError, match="All items are novel"):
        dataset.with_novel(["a", "b", "c"])
    with pytest.raises(DataError, match="None of the items is novel"):
        dataset.with_novel([])
    with pytest.raises(DataError, match="'z'"):
        dataset.with_novel(["z"])
    with pytest.raises(DataError, match="no novel items yet"):
        dataset.novel_mask  # noqa: B018


def test_errors_name_bad_ids_and_shapes():
    with pytest.raises(DataError, match="'a'"):
        Texts(["a", "b", "a"], ["1", "2", "3"])
    with pytest.raises(DataError, match="2 ids, 1 texts"):
        Texts(["a", "b"], ["1"])
    with pytest.raises(DataError, match="'nobody'"):
        Dataset.of(ITEMS, QUERIES, [("nobody", "a")])
    dataset = Dataset.of(ITEMS, QUERIES, CLICKS)
    with pytest.raises(DataError, match="one column of clicks per item"):
        Dataset(Texts(["a"], ["apple"]), dataset.train)


def test_a_pair_clicked_twice_counts_once():
    clicks = click_matrix(np.array([0, 0, 1]), np.array([1, 1, 0]), (2, 2))
    assert clicks.toarray().tolist() == [[0, 1], [1, 0]]
