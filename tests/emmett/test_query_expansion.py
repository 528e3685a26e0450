"""A query is moved towards what its nearest training queries clicked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.emmett import ExpansionConfig, QueryExpansion

ITEMS = np.eye(4, 6, dtype=np.float32)
QUERIES = np.eye(6, dtype=np.float32)[[4, 5]]
CLICKS = csr_array(np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32))


def expansion(**config) -> QueryExpansion:
    return QueryExpansion(QUERIES, CLICKS, ITEMS, ExpansionConfig(**config))


def test_a_query_is_moved_to_the_mean_of_what_its_neighbour_clicked():
    moved = expansion(neighbours=1, strength=0.5).expand(QUERIES[:1])
    assert moved == pytest.approx(QUERIES[:1] + 0.5 * (ITEMS[:1] + ITEMS[1:2]) / 2)


def test_nearer_queries_count_more_by_the_softmax():
    between = np.array([[0, 0, 0, 0, 0.8, 0.6]], dtype=np.float32)
    moved = expansion(neighbours=2, temperature=0.1, strength=1.0).expand(between) - between
    first = 1 / (1 + np.exp(-2.0))  # softmax of 8 and 6
    assert moved[0] == pytest.approx([first / 2, first / 2, 0, 1 - first, 0, 0], abs=1e-5)


def test_fewer_training_queries_than_asked_for():
    moved = expansion(neighbours=5, strength=1.0).expand(QUERIES[:1])
    assert np.isfinite(moved).all()
    assert moved[0, 0] > moved[0, 3] > 0


def test_strength_zero_and_no_queries_change_nothing():
    assert expansion(strength=0.0).expand(QUERIES) is QUERIES
    assert expansion().expand(QUERIES[:0]).shape == (0, 6)


def test_saved_and_read_it_moves_queries_to_the_last_bit():
    rough = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    one = QueryExpansion(rough, CLICKS, ITEMS, ExpansionConfig(strength=0.3))
    other = QueryExpansion.from_arrays(one.arrays(), ITEMS, one.config)
    asked = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    assert np.array_equal(one.expand(asked), other.expand(asked))


def test_a_sample_keeps_queries_with_their_clicks():
    kept = QueryExpansion.sample(QUERIES, CLICKS, ITEMS, most=1, seed=0)
    row = 0 if np.array_equal(kept.queries[0], QUERIES[0]) else 1
    assert len(kept) == 1
    assert np.array_equal(kept.clicks.toarray(), CLICKS.toarray()[[row]])
