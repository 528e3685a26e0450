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
    assert repr(dataset) == "Dataset('data': 3 items, train ClickLog(2 queries, 3 clicks, 4 events))"


def test_events_with_times_counts_and_first_seen():
    dataset = Dataset.of(
        ITEMS,
        QUERIES,
        CLICKS,
        times=[7, "1970-01-01T00:00:02Z", 3.5, 5],
        counts=[1, 1, 4, 2],
        first_seen={"a": 9.7, "b": "1970-01-02", "c": 0},
    )
    assert dataset.train.pair_counts.tolist() == [3, 1, 4]
    assert dataset.train.times.tolist() == [5, 7, 2, 3.5]
    assert dataset.items.first_seen.tolist() == [9, 86_400, 0]
    assert dataset.with_novel(["b"]).observed_log().times.tolist() == [5, 7, 3.5]
    assert dataset.with_novel(["b"]).observed_log().pair_counts.tolist() == [3, 4]


def test_wrong_times_and_counts_are_errors():
    with pytest.raises(DataError, match="4 clicks, 1 times"):
        Dataset.of(ITEMS, QUERIES, CLICKS, times=[1])
    with pytest.raises(DataError, match="A time cannot be read\n  got: 'soon'"):
        Dataset.of(ITEMS, QUERIES, CLICKS, times=[1, 2, 3, "soon"])
    with pytest.raises(DataError, match="A count is too small"):
        Dataset.of(ITEMS, QUERIES, CLICKS, counts=[1, 1, 0, 1])
    with pytest.raises(DataError, match="An item has no first_seen\n  got: 'b'"):
        Dataset.of(ITEMS, QUERIES, CLICKS, first_seen={"a": 1, "c": 2})


def test_the_fingerprint_depends_on_counts_but_not_on_times():
    once = [("x", "a"), ("y", "b"), ("y", "c")]
    plain = Dataset.of(ITEMS, QUERIES, once)
    # Caches and results name it, so it must not change.
    assert plain.fingerprint == "f35e8fb1205680831df64248100b3f6d1452b7511cb309e0d99f2f59b0cc174e"
    assert (
        Dataset.of(ITEMS, QUERIES, once, times=[1, 2, 3], counts=[1, 1, 1]).fingerprint == plain.fingerprint
    )
    twice = Dataset.of(ITEMS, QUERIES, CLICKS).fingerprint
    assert twice != plain.fingerprint
    assert twice == Dataset.of(ITEMS, QUERIES, once, counts=[2, 1, 1]).fingerprint
    assert twice != Dataset.of(ITEMS, QUERIES, once, counts=[1, 2, 1]).fingerprint


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
