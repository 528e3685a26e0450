from __future__ import annotations

import numpy as np
import pytest
from metaxc.research.baselines.kernel import from_neighbours

from metaxc.classifiers import ridge
from metaxc.data.clicks import training_clicks
from metaxc.research.baselines import NeighbourKernel


def test_a_novel_vector_is_the_weighted_mean_of_its_neighbours_classifiers():
    seen = np.eye(3, dtype=np.float32)
    classifiers = np.array([[0, 1, 0], [1, 0, 0], [0, -1, 0]], np.float32)
    new = np.array([[0.8, 0.6, 0.0]], np.float32)
    odds = np.exp((0.8 - 0.6) / 0.1)  # of the nearest against the second, by the softmax
    expected = np.array([1.0, odds, 0.0]) / np.hypot(1.0, odds)
    assert from_neighbours(new, seen, classifiers, 2, 0.1)[0] == pytest.approx(expected, abs=1e-5)
    assert from_neighbours(new, seen, classifiers, 1, 0.1)[0] == pytest.approx([0, 1, 0])


def test_observed_items_keep_their_own_classifiers(world):
    fitted = NeighbourKernel(world.encoder).fit(world.dataset)
    observed, query_rows, clicks = training_clicks(world.dataset)
    queries = world.encoder.encode_queries(world.dataset.train.queries.texts)[query_rows]
    np.testing.assert_allclose(fitted.vectors[observed], ridge(queries, clicks).weights, atol=1e-6)
