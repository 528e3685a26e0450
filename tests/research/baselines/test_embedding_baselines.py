"""ESZSL and the neighbour kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import ridge
from metaxc.data.clicks import training_clicks
from metaxc.research.baselines import NeighbourKernel
from metaxc.research.baselines.embedding_baselines import (
    DEFAULT_PENALTY,
    ESZSL,
    BilinearProblem,
    average_neighbours,
    tune_penalties,
)


@pytest.mark.parametrize(("gamma", "lam"), [(0.5, 2.0), (3.0, 0.1)])
def test_the_closed_form_is_the_least_squares_solution(gamma, lam):
    """The penalised problem as one long ordinary least squares over the entries of V."""
    random = np.random.default_rng(0)
    x, s = random.normal(size=(9, 3)).astype(np.float32), random.normal(size=(7, 3)).astype(np.float32)
    y = (random.random((9, 7)) < 0.3).astype(np.float32)
    eye, none = np.eye(3), np.zeros
    rows = [  # vec(AVBᵀ) = (A ⊗ B) vec(V), row by row
        (np.kron(x, s), y.ravel()),
        (np.sqrt(gamma) * np.kron(eye, s), none(3 * 7)),
        (np.sqrt(lam) * np.kron(x, eye), none(9 * 3)),
        (np.sqrt(gamma * lam) * np.kron(eye, eye), none(9)),
    ]
    direct = np.linalg.lstsq(
        np.concatenate([a for a, _ in rows]), np.concatenate([b for _, b in rows]), rcond=None
    )[0]
    found = BilinearProblem.build(x, s, csr_array(y)).solve(gamma, lam)
    np.testing.assert_allclose(found, direct.reshape(3, 3), rtol=1e-4, atol=1e-6)


def test_penalties_are_tuned_on_validation_queries(world):
    """With the penalties chosen, every query finds the novel item of its group."""
    observed, query_rows, clicks = training_clicks(world.dataset)
    queries = world.encoder.encode_queries(world.dataset.train.queries.texts)[query_rows]
    items = world.encoder.encode_items(world.dataset.items.texts)
    gamma, lam = tune_penalties(queries, items[observed], clicks, 0)
    v = BilinearProblem.build(queries, items[observed], clicks).solve_relative(gamma, lam)
    best = (queries @ v @ items[world.dataset.novel_rows].T).argmax(axis=1)
    np.testing.assert_array_equal(best, query_rows // 20)


def test_the_penalties_are_the_defaults_where_the_data_are_too_few(world):
    few = csr_array(training_clicks(world.dataset)[2][:20][:, :8])
    assert tune_penalties(np.eye(20, 96, dtype=np.float32), np.eye(8, 96, dtype=np.float32), few, 0) == (
        DEFAULT_PENALTY,
        DEFAULT_PENALTY,
    )


def test_observed_items_are_scored_by_the_map_too(world):
    fitted = ESZSL(world.encoder).fit(world.dataset)
    items = world.encoder.encode_items(world.dataset.items.texts)
    # One linear map takes every item's embedding to its vector.
    v = np.linalg.lstsq(items, fitted.vectors, rcond=None)[0]
    np.testing.assert_allclose(items @ v, fitted.vectors, atol=1e-4)


def test_a_novel_vector_is_the_weighted_mean_of_its_neighbours_classifiers():
    seen = np.eye(3, dtype=np.float32)
    classifiers = np.array([[0, 1, 0], [1, 0, 0], [0, -1, 0]], np.float32)
    new = np.array([[0.8, 0.6, 0.0]], np.float32)
    odds = np.exp((0.8 - 0.6) / 0.1)  # of the nearest against the second, by the softmax
    expected = np.array([1.0, odds, 0.0]) / np.hypot(1.0, odds)
    assert average_neighbours(new, seen, classifiers, 2, 0.1)[0] == pytest.approx(expected, abs=1e-5)
    assert average_neighbours(new, seen, classifiers, 1, 0.1)[0] == pytest.approx([0, 1, 0])


def test_observed_items_keep_their_own_classifiers(world):
    fitted = NeighbourKernel(world.encoder).fit(world.dataset)
    observed, query_rows, clicks = training_clicks(world.dataset)
    queries = world.encoder.encode_queries(world.dataset.train.queries.texts)[query_rows]
    np.testing.assert_allclose(fitted.vectors[observed], ridge(queries, clicks).weights, atol=1e-6)
