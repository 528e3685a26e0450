import math

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import P, R, nDCG
from scipy.sparse import csr_array

from metaxc.errors import ConfigError, DataError
from metaxc.metrics import (
    evaluate_ranking,
    harmonic_mean,
    hits,
    inverse_propensities,
    ndcg,
    pairs_within,
    precision,
    propensity_scored_precision,
    query_values,
    recall,
    relevant_counts,
)

# Query 0 clicked items 0 and 3, query 1 item 2, query 2 items 0, 1, 2, 3; 5 items.
RELEVANT = csr_array(np.array([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 0]], dtype=np.float32))
RANKED = np.array([[3, 1, 0], [4, -1, -1], [0, 4, 2]])
HIT = np.array([[True, False, True], [False, False, False], [True, False, True]])
COUNTS = np.array([2, 1, 4])


def test_hits_are_the_clicked_results():
    np.testing.assert_array_equal(hits(RANKED, RELEVANT), HIT)
    np.testing.assert_array_equal(relevant_counts(RELEVANT), COUNTS)


def test_padding_is_no_hit_even_if_the_previous_query_clicked_the_last_item():
    relevant = csr_array(np.array([[0, 1], [1, 0]]))
    np.testing.assert_array_equal(hits(np.array([[-1], [-1]]), relevant), [[False], [False]])


def test_hits_ignore_the_order_of_entries_and_explicit_zeros():
    stored = csr_array((np.array([1.0, 0.0, 1.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3))
    np.testing.assert_array_equal(hits(np.array([[0, 1, 2]]), stored), [[True, False, True]])
    np.testing.assert_array_equal(relevant_counts(stored), [2])
    assert stored.nnz == 3, "the caller's matrix was changed"


def test_pairs_within_are_the_allowed_ones_once_each():
    stored = csr_array(
        (np.array([3.0, 0.0, 1.0, 2.0]), np.array([2, 1, 0, 2]), np.array([0, 4])), shape=(1, 3)
    )
    for allowed, expected in ((None, [0, 2]), (np.array([False, True, True]), [2])):
        kept = pairs_within(stored, allowed)
        np.testing.assert_array_equal(kept.indices, expected)
        np.testing.assert_array_equal(kept.data, np.ones(len(expected)))
    assert stored.nnz == 4, "the caller's matrix was changed"


def test_nothing_relevant_and_nothing_ranked_are_no_hits():
    assert not hits(RANKED, csr_array((3, 5))).any()
    assert hits(np.empty((3, 0), dtype=np.int64), RELEVANT).shape == (3, 0)


def test_precision_divides_by_k_even_if_the_ranking_is_shorter():
    np.testing.assert_allclose(precision(HIT, 1), [1, 0, 1])
    np.testing.assert_allclose(precision(HIT, 3), [2 / 3, 0, 2 / 3])
    np.testing.assert_allclose(precision(HIT, 5), [2 / 5, 0, 2 / 5])


def test_recall_divides_by_the_number_of_relevant_items():
    np.testing.assert_allclose(recall(HIT, COUNTS, 1), [1 / 2, 0, 1 / 4])
    np.testing.assert_allclose(recall(HIT, COUNTS, 100), [1, 0, 1 / 2])


def test_ideal_of_ndcg_has_at_most_k_relevant_items():
    second, third, fourth = 1 / math.log2(3), 1 / 2, 1 / math.log2(5)
    np.testing.assert_allclose(ndcg(HIT, COUNTS, 3), [1.5 / (1 + second), 0, 1.5 / (1 + second + third)])
    np.testing.assert_allclose(
        ndcg(HIT, COUNTS, 10), [1.5 / (1 + second), 0, 1.5 / (1 + second + third + fourth)]
    )


def test_deep_metrics_count_to_their_depth():
    # Of 120 results, the relevant ones are at ranks 1, 30, 31, 50, 51, 100 and 101; an eighth is never found.
    clicked = np.zeros((1, 130))
    clicked[0, [0, 29, 30, 49, 50, 99, 100, 125]] = 1
    values = evaluate_ranking(np.arange(120)[None, :], csr_array(clicked))
    assert [values[f"P@{k}"] for k in (30, 50, 100)] == pytest.approx([100 * 2 / 30, 100 * 4 / 50, 6])
    assert [values[f"R@{k}"] for k in (30, 50, 100)] == pytest.approx([25, 50, 75])


def test_harmonic_mean_is_near_the_smaller_value():
    found = harmonic_mean(np.array([0.0, 0.0, 10.0, 30.0]), np.array([0.0, 80.0, 40.0, 30.0]))
    np.testing.assert_allclose(found, [0, 0, 16, 30])


def test_inverse_propensities_of_a_worked_example():
    # a = 1, b = 1, 20 queries: C = 2 (log 20 - 1); an item of 3 clicks weighs 1 + C / 4, a novel one 1 + C.
    c = 2 * (math.log(20) - 1)
    np.testing.assert_allclose(inverse_propensities(np.array([0, 3]), 20, 1.0, 1.0), [1 + c, 1 + c / 4])
    default = 1 + (math.log(20) - 1) * 2.5**0.55 * (3 + 1.5) ** -0.55
    np.testing.assert_allclose(inverse_propensities(np.array([3]), 20), [default])


def test_inverse_propensities_are_at_least_one():
    np.testing.assert_allclose(inverse_propensities(np.array([0, 1]), 1), [1, 1])
    with pytest.raises(DataError, match="training log"):
        inverse_propensities(np.array([0]), 0)


def test_psp_weights_hits_and_compares_with_the_best_ranking():
    weight = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
    gained, possible = propensity_scored_precision(RANKED, HIT, RELEVANT, weight, 1)
    np.testing.assert_allclose(gained, [4, 0, 1])
    np.testing.assert_allclose(possible, [4, 3, 4])
    both = propensity_scored_precision(RANKED, HIT, RELEVANT, weight, 3)
    np.testing.assert_allclose(both.gained, np.array([5, 0, 4]) / 3)
    np.testing.assert_allclose(both.possible, np.array([5, 3, 9]) / 3)
    assert both.percent() == pytest.approx(100 * 9 / 17)


def test_evaluate_ranking_averages_queries_with_relevant_items_in_percent():
    relevant = csr_array(np.array([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]))
    values = evaluate_ranking(RANKED, relevant)
    assert values["P@1"] == pytest.approx(50)
    assert values["R@1"] == pytest.approx(25)
    assert values["P@5"] == pytest.approx(20)
    assert values["R@100"] == pytest.approx(50)
    assert "PSP@1" not in values


def test_evaluate_ranking_returns_every_metric_in_order():
    values = evaluate_ranking(RANKED, RELEVANT, inverse_propensity=np.ones(5))
    names = "P@1 P@3 P@5 P@30 P@50 P@100 R@1 R@3 R@5 R@10 R@30 R@50 R@100 nDCG@10 PSP@1 PSP@3 PSP@5"
    assert list(values) == names.split()


def test_perfect_ranking_has_a_psp_of_100():
    values = evaluate_ranking(
        np.array([[3, 0, -1], [2, -1, -1], [3, 2, 1]]), RELEVANT, inverse_propensity=np.arange(1.0, 6.0)
    )
    assert [values[f"PSP@{k}"] for k in (1, 3)] == pytest.approx([100, 100])
    assert values["PSP@5"] == pytest.approx(100 * (5 + 3 + 9) / (5 + 3 + 10))


@pytest.mark.parametrize(
    ("ranked", "message"),
    [
        (np.array([[0], [1]]), "does not match"),
        (np.array([0, 1, 2]), "does not match"),
        (np.array([[0.0], [1.0], [2.0]]), "rows"),
        (np.array([[0], [5], [1]]), "does not exist"),
        (np.array([[0], [-2], [1]]), "does not exist"),
        (np.array([[0, 0], [-1, -1], [1, 2]]), "twice"),
    ],
)
def test_invalid_ranking_is_an_error(ranked, message):
    with pytest.raises(DataError, match=message):
        evaluate_ranking(ranked, RELEVANT)


def test_input_that_cannot_be_evaluated_is_an_error():
    with pytest.raises(DataError, match="no query to evaluate"):
        evaluate_ranking(RANKED, csr_array((3, 5)))
    with pytest.raises(DataError, match="no relevant item"):
        query_values(RANKED, csr_array(np.array([[1, 0, 0, 0, 0], [0] * 5, [1] * 5])))
    with pytest.raises(DataError, match="propensities"):
        evaluate_ranking(RANKED, RELEVANT, inverse_propensity=np.ones(4))
    with pytest.raises(ConfigError, match="depth"):
        precision(HIT, 0)


@st.composite
def worlds(draw):
    """A ranking with pads, clicks (at least one per query) and item weights, all small."""
    items = draw(st.integers(1, 8))
    queries = draw(st.integers(1, 5))
    depth = draw(st.integers(0, 10))
    ranked = []
    for _ in range(queries):
        order = draw(st.permutations(range(items)))[: draw(st.integers(0, min(items, depth)))]
        ranked.append(list(order) + [-1] * (depth - len(order)))
    clicked = [draw(st.sets(st.integers(0, items - 1), min_size=1, max_size=items)) for _ in range(queries)]
    weight = draw(st.lists(st.floats(1, 50), min_size=items, max_size=items))
    return ranked, clicked, weight, depth


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_metrics_equal_a_plain_python_reference(world):
    ranked, clicked, weight, depth = world
    dense = np.array([[float(i in own) for i in range(len(weight))] for own in clicked])
    rows = np.array(ranked, dtype=np.int64).reshape(len(clicked), depth)
    values = query_values(rows, csr_array(dense), inverse_propensity=np.array(weight))
    for name, value in values.items():
        metric, k = name.split("@")[0], int(name.split("@")[1])
        for query, own in enumerate(clicked):
            right = [(place, item) for place, item in enumerate(ranked[query][:k]) if item in own]
            best = sorted((weight[i] for i in own), reverse=True)[:k]
            ideal = sum(1 / math.log2(place + 2) for place in range(min(k, len(own))))
            expected = {
                "P": (len(right) / k, 1),
                "R": (len(right) / len(own), 1),
                "nDCG": (sum(1 / math.log2(place + 2) for place, _ in right) / ideal, 1),
                "PSP": (sum(weight[item] for _, item in right) / k, sum(best) / k),
            }[metric]
            assert (value.gained[query], value.possible[query]) == pytest.approx(expected)
        assert 0 <= value.percent() <= 100 + 1e-9


def test_metrics_equal_ir_measures():
    generator = np.random.default_rng(7)
    queries, items, depth = 60, 40, 12
    scores = generator.permuted(np.tile(np.arange(items, dtype=float), (queries, 1)), axis=1)
    ranked = np.argsort(-scores, axis=1)[:, :depth]
    ranked[:5] = -1  # queries without any result
    ranked[5:10, 4:] = -1  # queries with few
    clicked = generator.random((queries, items)) < 0.15
    clicked[:, 0] |= ~clicked.any(axis=1)

    qrels = [ir_measures.Qrel(str(q), str(i), 1) for q, i in zip(*np.nonzero(clicked), strict=True)]
    run = [
        ir_measures.ScoredDoc(str(q), str(i), scores[q, i])
        for q in range(queries)
        for i in ranked[q]
        if i >= 0
    ]
    measures = {"P@1": P @ 1, "P@5": P @ 5, "R@10": R @ 10, "nDCG@10": nDCG @ 10}
    reference = ir_measures.calc_aggregate(measures.values(), qrels, run)
    relevant = csr_array(clicked.astype(np.float32))
    ours = evaluate_ranking(ranked, relevant)
    for name, measure in measures.items():
        assert ours[name] == pytest.approx(100 * reference[measure]), name

    per_query = query_values(ranked, relevant)
    name_of = {str(measure): name for name, measure in measures.items()}
    seen = 0
    for one in ir_measures.iter_calc(measures.values(), qrels, run):
        value = per_query[name_of[str(one.measure)]].gained[int(one.query_id)]
        assert value == pytest.approx(one.value)
        seen += 1
    assert seen == queries * len(measures)
