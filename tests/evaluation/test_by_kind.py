"""The generalized ranking by kind of item, on worlds small enough to compute by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.evaluation import evaluate, evaluate_by_kind
from metaxc.evaluation.by_kind import training_counts
from metaxc.metrics import CLICK_SLICES


def log(names, pairs, items):
    queries, clicked = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    return ClickLog(Texts(names, names), click_matrix(queries, clicked, (len(names), items)))


@pytest.fixture
def small():
    """Items 0, 1 and 2 observed with 3, 1 and 0 training clicks, item 3 novel with a hidden one.

    Test: a clicked 0 and 3, b clicked 3, c clicked 0 and 1.
    """
    names = ["i0", "i1", "i2", "i3"]
    return Dataset(
        Texts(names, names),
        train=log(["u", "v", "w"], [(0, 0), (1, 0), (2, 0), (2, 1), (0, 3)], 4),
        test=log(["a", "b", "c"], [(0, 0), (0, 3), (1, 3), (2, 0), (2, 1)], 4),
        novel=np.array([False, False, False, True]),
    )


RANKED = {"a": [0, 2, -1], "b": [3, 0, -1], "c": [0, 2, 3]}


def search(texts, k, among):
    return np.array([RANKED[text] for text in texts])


def evaluated(dataset, ranked=None, **options):
    made = ranked or RANKED
    by = evaluate(
        lambda texts, k, among: np.array([made[text] for text in texts]),
        dataset,
        settings=["generalized"],
        **options,
    )
    return by.by_kind


def test_each_kind_is_counted_over_the_queries_that_want_it(small):
    found = evaluated(small)
    # Novel: a wants 3 and does not find it, b does, at rank 1. Observed: a finds 0 at rank 1, c one of two at rank 1.
    assert found.kinds["novel"]["R@10"].value == pytest.approx(50)
    assert found.kinds["novel"]["P@1"].value == pytest.approx(50)
    assert found.kinds["observed"]["R@10"].value == pytest.approx(75)
    assert found.kinds["observed"]["P@1"].value == pytest.approx(100)
    assert found.harmonic_mean.value == pytest.approx(2 * 50 * 75 / 125)
    # Novel results: none of a's two, one of b's two, one of c's three; padding is no result.
    assert found.novel_share.value == pytest.approx(100 * 2 / 7)
    np.testing.assert_array_equal(found.queries["novel"], [0, 1])
    np.testing.assert_array_equal(found.queries["observed"], [0, 2])
    np.testing.assert_allclose(found.per_query["novel"]["R@10"], [0, 100])
    np.testing.assert_allclose(found.per_query["observed"]["R@10"], [100, 50])


def test_a_relevant_item_of_the_other_kind_at_rank_one_is_no_hit(small):
    found = evaluated(small, {"a": [3, 0], "b": [0, 3], "c": [3, 1]})
    assert found.kinds["novel"]["P@1"].value == pytest.approx(50)
    assert found.kinds["observed"]["P@1"].value == 0


def test_slices_count_pairs_by_the_clicks_that_a_model_may_see(small):
    np.testing.assert_array_equal(training_counts(small), [3, 1, 0, 0])
    found = evaluated(small).by_clicks
    assert list(found) == list(CLICK_SLICES) == ["0", "1-2", "3-4", "5-9", "10-29", "30-99", "100+"]
    # No clicks: item 3 for a (missed) and b (found). One: item 1 for c (missed). Three: item 0 for a and c (found).
    assert (found["0"].value, found["0"].pairs, found["0"].items) == (50, 2, 1)
    assert (found["1-2"].value, found["1-2"].pairs, found["1-2"].items) == (0, 1, 1)
    assert (found["3-4"].value, found["3-4"].pairs, found["3-4"].items) == (100, 2, 1)
    assert found["5-9"] == (None, None, 0, 0)


def test_a_repeated_training_click_of_a_query_counts_once(small):
    clicks = small.train.clicks
    doubled = csr_array(
        (
            np.concatenate([clicks.data, [1.0, 4.0]]),
            (
                np.append(np.repeat([0, 1, 2], np.diff(clicks.indptr)), [0, 2]),
                np.append(clicks.indices, [0, 1]),
            ),
        ),
        shape=clicks.shape,
    )
    np.testing.assert_array_equal(
        training_counts(replace(small, train=ClickLog(small.train.queries, doubled))), [3, 1, 0, 0]
    )


@pytest.mark.parametrize(
    ("clicks", "name"),
    [
        (0, "0"),
        (1, "1-2"),
        (2, "1-2"),
        (3, "3-4"),
        (4, "3-4"),
        (5, "5-9"),
        (9, "5-9"),
        (10, "10-29"),
        (29, "10-29"),
        (30, "30-99"),
        (99, "30-99"),
        (100, "100+"),
        (5000, "100+"),
    ],
)
def test_every_number_of_clicks_has_one_slice(clicks, name):
    assert [n for n, (fewest, most) in CLICK_SLICES.items() if fewest <= clicks <= most] == [name]


def test_only_the_first_ten_results_count():
    names = [f"i{i}" for i in range(14)]
    novel = np.arange(14) >= 9  # of ranks 1 to 14, all from rank 10 on
    data = Dataset(
        Texts(names, names),
        train=log(["u"], [(0, 0)], 14),
        test=log(["a"], [(0, 8), (0, 9), (0, 10)], 14),
        novel=novel,
    )
    found = evaluated(data, {"a": list(range(14))})
    assert found.kinds["novel"]["R@10"].value == pytest.approx(50)
    assert found.kinds["observed"]["R@10"].value == pytest.approx(100)
    assert found.novel_share.value == pytest.approx(10)
    assert found.by_clicks["0"].value == pytest.approx(200 / 3)


def test_intervals_are_of_a_bootstrap_over_queries(small):
    # 200 queries for item 3 of which every fourth finds it, 200 for item 0 of which all do.
    names = [f"q{i}" for i in range(400)]
    test = log(names, [(i, 3 if i < 200 else 0) for i in range(400)], 4)
    ranked = {name: [3 if i < 200 and i % 4 == 0 else 0] for i, name in enumerate(names)}
    found = evaluated(replace(small, test=test), ranked)
    low, high = found.kinds["novel"]["R@10"].interval
    half = 1.96 * np.sqrt(25 * 75 / 200)
    assert (low, high) == pytest.approx((25 - half, 25 + half), abs=0.2 * half)
    assert found.kinds["observed"]["R@10"].interval == pytest.approx((100, 100))
    # H = 2 x 100 / (x + 100) grows with x, and observed recall does not vary.
    assert found.harmonic_mean.value == pytest.approx(40)
    assert found.harmonic_mean.interval == pytest.approx(
        (200 * low / (low + 100), 200 * high / (high + 100)), abs=0.3
    )
    assert found.by_clicks["0"].interval == pytest.approx((low, high))
    share_low, share_high = found.novel_share.interval
    assert share_low < found.novel_share.value < share_high
    assert evaluated(replace(small, test=test), ranked, seed=1).kinds["novel"]["R@10"].interval != (low, high)


def test_without_intervals_there_are_none(small):
    found = evaluated(small, intervals=False)
    assert found.kinds["novel"]["R@10"] == (50.0, None)
    assert found.harmonic_mean.interval is None
    assert found.by_clicks["0"].interval is None
    assert found.intervals_dict()["novel"] == {"P@1": None, "R@10": None}


def test_a_kind_that_no_query_wants_has_no_value(small):
    wanted = log(["a", "c"], [(0, 0), (1, 1)], 4)
    found = evaluated(replace(small, test=wanted))
    assert found.kinds["novel"]["R@10"] == (None, None)
    assert found.harmonic_mean == (None, None)
    assert found.kinds["observed"]["R@10"].value == pytest.approx(50)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["H"] is None


def test_queries_are_rows_of_the_test_log(small):
    # The first query of the log clicked nothing and is not evaluated.
    test = log(["none", "a", "b"], [(1, 0), (2, 3)], 4)
    found = evaluated(replace(small, test=test))
    np.testing.assert_array_equal(found.queries["novel"], [2])
    np.testing.assert_array_equal(found.queries["observed"], [1])


def test_a_search_without_results_finds_nothing(small):
    empty = np.full((3, 1), -1)
    found = evaluate_by_kind(empty, small.test.clicks, small, np.arange(3), resamples=20)
    assert found.harmonic_mean.value == 0
    assert found.novel_share == (None, None)


def test_the_layout_in_json(small):
    printed = json.loads(
        json.dumps(evaluate(search, small, settings=["generalized"]).to_dict(), allow_nan=False)
    )
    mixed = printed["generalized"]
    assert mixed["novel"] == {"P@1": 50.0, "R@10": 50.0, "queries": 2}
    assert mixed["observed"] == {"P@1": 100.0, "R@10": 75.0, "queries": 2}
    assert mixed["H"] == pytest.approx(60)
    assert mixed["novel_share"] == pytest.approx(200 / 7)
    assert mixed["P@1"] == pytest.approx(100), "the metrics of the setting stay where they were"
    assert list(mixed["by_clicks"]) == list(CLICK_SLICES)
    assert mixed["by_clicks"]["0"].keys() == {"value", "interval", "pairs", "items"}
    assert len(mixed["by_clicks"]["0"]["interval"]) == 2
    ranges = printed["intervals"]["generalized"]
    assert ranges["novel"].keys() == {"P@1", "R@10"}
    for low, high in (ranges["novel"]["R@10"], ranges["H"], ranges["novel_share"], ranges["P@1"]):
        assert low <= high


def test_filter_pairs_do_not_count(small):
    filters = click_matrix(np.array([0]), np.array([3]), (3, 4))
    found = evaluated(replace(small, filters=filters))
    np.testing.assert_array_equal(found.queries["novel"], [1])
    assert found.kinds["novel"]["R@10"].value == pytest.approx(100)
