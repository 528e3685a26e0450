"""Classifiers from the first clicks of an item."""

import numpy as np
import pytest

from metaxc.classifiers import FewShotFitter, RevealedQueries
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.errors import DataError


def test_texts_come_in_one_call_and_arrays_in_between():
    calls = []

    def embed(given):
        calls.append(given)
        if isinstance(given, np.ndarray):
            return given
        return np.array([[float(len(text)), 1.0] for text in given], np.float32)

    vectors = np.array([[7, 7]], np.float32)
    revealed = RevealedQueries.embed([["a", "bb"], [], vectors, ["ccc"]], 4, embed)
    assert [list(call) for call in calls if not isinstance(call, np.ndarray)] == [["a", "bb", "ccc"]]
    assert revealed.owner.tolist() == [0, 0, 2, 3]
    assert revealed.queries[:, 0].tolist() == [1, 2, 7, 3]
    assert revealed.names == ["a", "bb", "revealed query 1", "ccc"]
    assert RevealedQueries.embed([[], []], 2, embed) is None


def test_a_ridge_classifier_without_what_all_share():
    random = np.random.default_rng(0)
    shared = np.array([1.0, 0, 0, 0])
    items = normalize_rows(2 * shared + 0.1 * random.normal(size=(500, 4)))
    query = normalize_rows(np.array([[2.0, 0.3, 0, 0]]))
    revealed = RevealedQueries(query, np.array([1]), ["q"], 2)
    made = FewShotFitter(items).fit(revealed)
    exact = np.linalg.solve(items.T @ items + np.eye(4), query[0])
    np.testing.assert_allclose(made.weights[1], exact / np.linalg.norm(exact), atol=1e-5)
    assert abs(made.weights[1] @ shared) < 0.3 < 0.9 < query[0] @ shared
    assert not made.weights[0].any()
    assert made.clicks.tolist() == [0, 1]


def test_what_does_not_fit_is_named():
    with pytest.raises(DataError, match="2 lists, 3 items"):
        RevealedQueries.embed([[], []], 3, lambda texts: texts)
    with pytest.raises(DataError, match="must be a list"):
        RevealedQueries.embed(["query"], 1, lambda texts: texts)


def test_a_slice_of_the_items_has_their_queries_alone():
    queries = np.arange(8, dtype=np.float32).reshape(4, 2)
    revealed = RevealedQueries(queries, np.array([0, 0, 2, 3]), ["a", "b", "c", "d"], 4)
    middle = revealed.of_items(1, 3)
    assert (middle.owner.tolist(), middle.names, middle.items) == ([1], ["c"], 2)
    np.testing.assert_array_equal(middle.queries, queries[2:3])
    assert revealed.of_items(1, 2) is None
