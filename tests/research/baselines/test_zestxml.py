from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from metaxc.research.baselines.zestxml import TermPairs, ZestXML, correlate_terms, draw_training_pairs


def test_a_planted_pair_of_terms_is_learnt(market):
    fitted = ZestXML().fit(market)
    column = fitted.terms.vocabulary
    weights = fitted.weights.toarray()
    for group in (0, 7, 23):
        to_items = weights[column[f"want{group}"]]
        things = [column[f"thing{g}"] for g in range(24)]
        assert np.argmax(to_items[things]) == group
        assert to_items[column[f"thing{group}"]] > 0.5
        assert to_items[column[f"thing{(group + 1) % 24}"]] <= 0


def test_correlations_keep_the_best_query_terms_and_the_term_itself():
    queries = csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    items = csr_array(np.array([[0, 0, 1], [0, 1, 0]], np.float32))
    clicks = csr_array(np.array([[1, 0], [1, 0], [1, 1]], np.float32))
    # Item term 2 was clicked from query term 0 twice and from 1 once: cosines 2/√(2·3) and 1/√(1·3).
    found = correlate_terms(queries, items, clicks, limit=1).toarray()
    np.testing.assert_allclose(found[0], [1e-6, 0, 2 / np.sqrt(6)], rtol=1e-4)
    np.testing.assert_allclose(found[1], [0, 1, 0], rtol=1e-4)
    np.testing.assert_allclose(found[2], [0, 0, 1e-6])


def test_features_times_weights_are_the_bilinear_score():
    random = np.random.default_rng(0)
    queries = csr_array(random.random((6, 5)) * (random.random((6, 5)) < 0.5), dtype=np.float32)
    items = csr_array(random.random((4, 5)) * (random.random((4, 5)) < 0.5), dtype=np.float32)
    kept = csr_array(random.random((5, 5)) * (random.random((5, 5)) < 0.6), dtype=np.float32)
    pairs = TermPairs(kept)
    rows, columns = (part.ravel() for part in np.indices((6, 4)))
    learnt = random.normal(size=kept.nnz + 2)
    by_features = pairs.features(queries, items, rows, columns) @ learnt
    by_matrix = queries @ pairs.weights(learnt) @ items.T
    np.testing.assert_allclose(by_features.reshape(6, 4), by_matrix.toarray(), rtol=1e-4, atol=1e-5)


def test_training_pairs_are_the_clicks_and_items_that_were_not_clicked():
    random = np.random.default_rng(1)
    clicks = csr_array((random.random((30, 12)) < 0.2).astype(np.float32))
    clicks = csr_array(clicks[np.diff(clicks.indptr) > 0])
    terms = csr_array(np.eye(12, dtype=np.float32))
    queries = csr_array(np.eye(clicks.shape[0], 12, dtype=np.float32))
    rows, columns, clicked = draw_training_pairs(queries, terms, clicks, terms, 0)
    np.testing.assert_array_equal(clicks.toarray()[rows, columns], clicked)
    assert clicked.sum() == clicks.nnz
    assert len(np.unique(rows * 12 + columns)) == len(rows)
    # The identity ranks item q highest for query q: it is among the negatives wherever it was not clicked.
    missed = [q for q in range(12) if not clicks.toarray()[q, q]]
    assert {(q, q) for q in missed} <= set(zip(rows.tolist(), columns.tolist(), strict=True))
