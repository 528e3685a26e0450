import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.encoders import Adapted, Pretrained, Static
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation import CONVENTIONS, encoder_baselines, evaluate, paired_bootstrap
from metaxc.metrics import inverse_propensities

ITEMS = 6
NOVEL = np.array([False, False, False, False, True, True])


def log(names, pairs):
    queries, items = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    return ClickLog(
        Texts(names, [f"text {n}" for n in names]), click_matrix(queries, items, (len(names), ITEMS))
    )


@pytest.fixture
def world():
    """Items 4 and 5 are novel. Test: a clicked 0 and 4; b clicked 5; c clicked 1; d clicked nothing."""
    names = [f"i{i}" for i in range(ITEMS)]
    return Dataset(
        Texts(names, names),
        # u clicked 0 and 4 (hidden, as 4 is novel), v clicked 0 and 1, w clicked only the novel 5.
        train=log(["u", "v", "w"], [(0, 0), (0, 4), (1, 0), (1, 1), (2, 5)]),
        test=log(["a", "b", "c", "d"], [(0, 0), (0, 4), (1, 5), (2, 1)]),
        novel=NOVEL,
    )


class Recorded:
    """A search that ranks by one fixed order for all queries, and notes what it was asked."""

    def __init__(self, order, silent=()):
        self.order, self.silent, self.calls = order, silent, []

    def __call__(self, texts, k, among):
        self.calls.append((list(texts), k, None if among is None else among.copy()))
        allowed = [i for i in self.order if among is None or among[i]][:k]
        row = allowed + [-1] * (k - len(allowed))
        return np.array([[-1] * k if text in self.silent else row for text in texts])


def test_zero_shot_ranks_novel_items_and_generalized_all(world):
    search = Recorded([0, 4, 1, 5, 2, 3])
    result = evaluate(search, world)
    (zero_texts, zero_k, zero_among), (all_texts, all_k, all_among) = search.calls
    assert zero_texts == ["text a", "text b"]
    np.testing.assert_array_equal(zero_among, NOVEL)
    assert all_texts == ["text a", "text b", "text c"]
    assert all_among is None
    assert (zero_k, all_k) == (2, 6), "never deeper than there are items"
    assert result.counts == {
        "zero_shot": {"queries": 2, "items": 2},
        "generalized": {"queries": 3, "items": 6},
    }
    # Zero-shot ranking 4, 5: right for a at once, for b at place 2.
    assert result["zero_shot"]["P@1"] == pytest.approx(50)
    assert result["zero_shot"]["R@3"] == pytest.approx(100)
    assert result["zero_shot"]["P@5"] == pytest.approx(20)
    # Generalized ranking 0, 4, 1, 5, 2, 3: a has both of 2 at places 1 and 2; b at 4; c at 3.
    assert result["generalized"]["P@1"] == pytest.approx(100 / 3)
    assert result["generalized"]["R@1"] == pytest.approx(50 / 3)
    assert result["generalized"]["R@3"] == pytest.approx(200 / 3)
    assert result["generalized"]["P@3"] == pytest.approx(100 / 3)
    np.testing.assert_array_equal(result.queries["generalized"], [0, 1, 2])


def test_generalized_precision_divides_by_k(world):
    result = evaluate(Recorded([0, 4, 1, 5, 2, 3]), world, settings=["generalized"], intervals=False)
    # Hits in the first 3: a 2, b 0, c 1.
    np.testing.assert_allclose(result.per_query["generalized"]["P@3"], [200 / 3, 0, 100 / 3])


def test_queries_without_an_answer_count_zero(world):
    result = evaluate(Recorded([0, 4, 1, 5, 2, 3], silent=["text a"]), world, settings=["generalized"])
    assert result.counts["generalized"]["queries"] == 3
    assert result["generalized"]["P@1"] == 0
    np.testing.assert_allclose(result.per_query["generalized"]["R@5"], [0, 100, 100])


def test_filter_pairs_leave_the_ranking_and_the_relevant_items(world):
    # For a: item 0 (clicked) and item 2 (not clicked). For c: its only click, so c is not judged.
    filters = click_matrix(np.array([0, 0, 2]), np.array([0, 2, 1]), (4, ITEMS))
    result = evaluate(Recorded([0, 2, 4, 5, 1, 3]), replace(world, filters=filters), intervals=False)
    np.testing.assert_array_equal(result.queries["generalized"], [0, 1])
    # a: ranking 4, 5, 1, 3 and relevant 4 alone. b: nothing filtered, item 5 at place 4.
    np.testing.assert_allclose(result.per_query["generalized"]["R@1"], [100, 0])
    np.testing.assert_allclose(result.per_query["generalized"]["R@3"], [100, 0])
    np.testing.assert_allclose(result.per_query["generalized"]["R@5"], [100, 100])
    assert result.counts["zero_shot"]["queries"] == 2


def test_the_search_goes_deeper_by_the_most_filters_of_a_query():
    items, names = 300, [f"i{i}" for i in range(300)]
    novel = np.zeros(items, dtype=bool)
    novel[200:] = True
    clicks = click_matrix(np.array([0, 1]), np.array([102, 150]), (2, items))
    filters = click_matrix(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 250]), (2, items))
    queries = Texts(["a", "b"], ["a", "b"])
    data = Dataset(Texts(names, names), ClickLog(queries, clicks), ClickLog(queries, clicks), novel, filters)
    asked = []

    def search(texts, k, among):
        asked.append(k)
        return np.tile(np.arange(k), (len(texts), 1))

    result = evaluate(search, data, settings=["generalized"], intervals=False)
    assert asked == [103]
    # Item 102 is at place 103, and at place 100 once three are dropped; item 150 is never reached.
    np.testing.assert_allclose(result.per_query["generalized"]["R@100"], [100, 0])
    np.testing.assert_allclose(result.per_query["generalized"]["R@30"], [0, 0])


def test_nothing_below_place_100_counts():
    items, names = 200, [f"i{i}" for i in range(200)]
    clicks = click_matrix(np.array([0]), np.array([100]), (1, items))
    queries = Texts(["a"], ["a"])
    novel = np.arange(items) >= 150
    data = Dataset(Texts(names, names), ClickLog(queries, clicks), ClickLog(queries, clicks), novel)
    result = evaluate(
        lambda texts, k, among: np.arange(items)[None, :], data, settings=["generalized"], intervals=False
    )
    assert result["generalized"]["R@100"] == 0


def test_psp_weighs_by_training_clicks_that_a_learner_may_see(world):
    result = evaluate(Recorded([0, 4, 1, 5, 2, 3]), world, intervals=False, propensity=(1.0, 1.0))
    # Observed log: u and v (w clicked only a novel item); item 0 twice, item 1 once, the novel ones never.
    weight = inverse_propensities(np.array([2, 1, 0, 0, 0, 0]), 2, 1.0, 1.0)
    assert weight == pytest.approx([1] * 6), "with 2 queries all weigh the same"
    assert result["generalized"]["PSP@1"] == pytest.approx(100 / 3)

    many = log([f"u{i}" for i in range(20)], [(i, 0) for i in range(20)] + [(0, 1), (1, 4)])
    result = evaluate(Recorded([0, 4, 1, 5, 2, 3]), replace(world, train=many), intervals=False)
    weight = inverse_propensities(np.array([20, 1, 0, 0, 0, 0]), 20)
    # At 1: only a is right, with item 0; at best a has item 4, b item 5, c item 1.
    expected = 100 * weight[0] / (weight[4] + weight[5] + weight[1])
    assert result["generalized"]["PSP@1"] == pytest.approx(expected)
    assert result["zero_shot"]["PSP@1"] == pytest.approx(50)


def test_per_query_values_average_to_the_metrics_and_pair(world):
    many = log([f"u{i}" for i in range(20)], [(i, 0) for i in range(20)] + [(0, 1), (1, 4)])
    data = replace(world, train=many)
    good, bad = evaluate(Recorded([0, 4, 1, 5, 2, 3]), data), evaluate(Recorded([3, 2, 5, 1, 4, 0]), data)
    for setting, metrics in good.metrics.items():
        for name, value in metrics.items():
            assert good.per_query[setting][name].mean() == pytest.approx(value), (setting, name)
    a, b = (result.per_query["generalized"]["R@3"] for result in (good, bad))
    assert 0 < paired_bootstrap(a, b, 100) <= 1


def test_intervals_hold_the_metric_and_repeat(world):
    search = Recorded([0, 4, 1, 5, 2, 3])
    result = evaluate(search, world, seed=3)
    for setting, ranges in result.intervals.items():
        assert list(ranges) == list(result[setting])
        for name, (low, high) in ranges.items():
            assert 0 <= low <= result[setting][name] + 1e-9
            assert result[setting][name] - 1e-9 <= high <= 100 + 1e-9
    assert result.intervals["generalized"]["P@1"] == pytest.approx((0, 100))
    assert evaluate(search, world, seed=3).intervals == result.intervals
    assert evaluate(search, world, intervals=False).intervals == {}


def test_a_result_is_plain_json_with_its_conventions(world):
    printed = json.loads(json.dumps(evaluate(Recorded([0, 4, 1, 5, 2, 3]), world).to_dict()))
    assert list(printed) == ["zero_shot", "generalized", "intervals", "counts", "seconds", "conventions"]
    assert printed["zero_shot"]["P@1"] == pytest.approx(50)
    assert len(printed["intervals"]["zero_shot"]["P@1"]) == 2
    assert printed["counts"]["generalized"] == {"queries": 3, "items": 6}
    assert printed["conventions"] == CONVENTIONS
    for said in ("P@k divides by k", "number of relevant items", "counts 0", "item order", "A=0.55, B=1.5"):
        assert said in CONVENTIONS
    other = evaluate(Recorded([0]), world, intervals=False, propensity=(0.6, 2.6))
    assert "A=0.6, B=2.6" in other.conventions


def test_errors_name_what_is_missing(world):
    search = Recorded([0, 4, 1, 5, 2, 3])
    with pytest.raises(ConfigError, match="zeroshot"):
        evaluate(search, world, settings=["zeroshot"])
    with pytest.raises(DataError, match="no test queries"):
        evaluate(search, replace(world, test=None))
    with pytest.raises(DataError, match="no novel items"):
        evaluate(search, replace(world, novel=None))
    with pytest.raises(DataError, match="nothing to evaluate in the setting zero_shot"):
        evaluate(search, world.with_novel(np.array([False, False, True, True, False, False])))
    with pytest.raises(DataError, match="filter pairs do not match"):
        evaluate(search, replace(world, filters=csr_array((3, ITEMS))))


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (lambda texts, k, among: np.zeros((len(texts), 1), dtype=np.int64), "excludes"),
        (lambda texts, k, among: np.full((len(texts) + 1, 1), 4), "did not return a ranking"),
        (lambda texts, k, among: np.full((len(texts), 1), 4.0), "did not return a ranking"),
        (lambda texts, k, among: np.full((len(texts), 2), 4), "twice"),
        (lambda texts, k, among: np.full((len(texts), 1), ITEMS), "does not exist"),
    ],
)
def test_a_search_that_breaks_its_contract_is_an_error(world, search, message):
    with pytest.raises(DataError, match=message):
        evaluate(search, world, settings=["zero_shot"])


def test_a_model_is_compared_with_its_encoder_and_the_base_of_an_adapted_one(tiny):
    bare = Pretrained(tiny)
    adapted, static = Adapted.__new__(Adapted), Static.__new__(Static)
    adapted.base, static.base = bare, None
    assert list(encoder_baselines(adapted).items()) == [
        ("adapted encoder alone", adapted),
        ("bare encoder", bare),
    ]
    assert encoder_baselines(bare) == {"bare encoder": bare}
    assert encoder_baselines(static) == {"static encoder alone": static}
