from __future__ import annotations

import numpy as np

from metaxc.data import Dataset
from metaxc.research.baselines import BM25
from metaxc.research.baselines.term_matching import tokenize

ITEMS = {
    "a": "red apple",
    "b": "green apple and green pear",
    "c": "a red red car with an engine",
    "d": "the",
    "e": "engine oil for cars",
}


def test_scores_are_those_of_bm25s():
    data = Dataset.of(ITEMS, {"q": "apple"}, [("q", "a")])
    fitted = BM25().fit(data)
    queries = ["red engine", "green green apple", "apple pear oil", "car"]
    scores = fitted.scores(queries)
    rows, values = fitted.index.retrieve(tokenize(queries), k=len(ITEMS), show_progress=False)
    np.testing.assert_allclose(np.take_along_axis(scores, rows, axis=1), values, rtol=1e-5)
    assert scores[0].argmax() == 2  # both words, one of them twice


def test_unknown_and_stop_words_score_nothing():
    fitted = BM25().fit(Dataset.of(ITEMS, {"q": "apple"}, [("q", "a")]))
    np.testing.assert_array_equal(fitted.scores(["zebra", "the and of", ""]), np.zeros((3, len(ITEMS))))
