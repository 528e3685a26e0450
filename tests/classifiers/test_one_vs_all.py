import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, OneVsAllConfig, one_vs_all
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.classifiers.one_vs_all import _targets
from metaxc.data.clicks import clicks_per_item, training_clicks


def observed_part(world):
    _, rows, clicks = training_clicks(world.dataset)
    return world.encoder.encode_queries([world.dataset.train.queries.texts[r] for r in rows]), clicks


def share_of_clicked(classifiers, queries, clicks):
    """How many of the four best items of each query it clicked; each clicked four."""
    scores = classifiers.transform_queries(queries) @ classifiers.weights.T
    best = np.argsort(-scores, axis=1)[:, :4]
    return np.take_along_axis(clicks.toarray(), best, axis=1).mean()


@pytest.mark.parametrize("all_items", [10_000, 0], ids=["all items", "mined negatives"])
def test_training_finds_the_clicked_items_from_a_start_that_knows_nothing(world, all_items):
    queries, clicks = observed_part(world)
    noise = np.random.default_rng(0).normal(size=(clicks.shape[1], queries.shape[1]))
    start = Classifiers(normalize_rows(noise), clicks_per_item(clicks))
    config = OneVsAllConfig(epochs=30, batch=64, all_items=all_items, query_layer=True, learning_rate=0.02)
    trained = one_vs_all(queries, clicks, config, start=start)
    assert share_of_clicked(start, queries, clicks) < 0.1
    assert share_of_clicked(trained, queries, clicks) > 0.95
    np.testing.assert_allclose(np.linalg.norm(trained.weights, axis=1), 1, atol=1e-5)
    assert trained.clicks.tolist() == start.clicks.tolist()


def test_the_query_layer_is_only_there_when_asked_for(world):
    queries, clicks = observed_part(world)
    plain = one_vs_all(queries, clicks, OneVsAllConfig(epochs=1, query_layer=False))
    assert plain.query_layer is None
    assert plain.transform_queries(queries) is queries
    with_layer = one_vs_all(queries, clicks, OneVsAllConfig(epochs=1))
    np.testing.assert_allclose(np.linalg.norm(with_layer.transform_queries(queries), axis=1), 1, atol=1e-5)


def test_same_seed_same_weights(world):
    queries, clicks = observed_part(world)
    config = OneVsAllConfig(epochs=1, batch=64)
    first, again, other = (one_vs_all(queries, clicks, config, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, other.weights)


def test_weights_weigh_in_the_loss_and_clicks_stay_clicks():
    clicks = csr_array(np.float32([[1, 0, 2.5], [0, 1, 0]]))
    targets, weights = _targets(clicks, np.array([0, 1]), None, torch.device("cpu"))
    assert targets.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert weights.tolist() == [[1, 1, 2.5], [1, 1, 1]]
    targets, weights = _targets(clicks, np.array([0, 1]), np.array([0, 1]), torch.device("cpu"))
    assert targets.tolist() == [[1, 0], [0, 1]]
    assert weights is None


def test_a_classifier_leans_towards_the_heavier_click():
    """One item was clicked by two unrelated queries; another one by neither."""
    queries = normalize_rows(np.random.default_rng(0).normal(size=(2, 256)))
    start = Classifiers(np.zeros((2, 256), np.float32), np.array([2, 0]))
    config = OneVsAllConfig(epochs=5, query_layer=False)

    def preference(first, second):
        clicks = csr_array(np.float32([[first, 0], [second, 0]]))
        scores = queries @ one_vs_all(queries, clicks, config, start=start).weights[0]
        return scores[0] - scores[1]

    assert abs(preference(1, 1)) < 0.1
    assert preference(8, 1) > 0.3
    assert preference(1, 8) < -0.3
