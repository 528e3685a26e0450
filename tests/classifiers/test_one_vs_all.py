import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, OneVsAllConfig, one_vs_all, ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.classifiers.one_vs_all import _mine, _targets
from metaxc.data.clicks import clicks_per_item, training_clicks
from metaxc.index import top_k


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


def test_the_query_layer_learns_what_no_classifier_can():
    """Queries of two items differ in their last coordinate alone, which is tiny: a layer can make it count."""
    random = np.random.default_rng(0)
    pair, side = np.repeat(np.arange(20), 20), np.tile([1, -1], 200)
    queries = np.zeros((400, 21), np.float32)
    queries[np.arange(400), pair], queries[:, -1] = 1, 0.02 * side
    queries = normalize_rows(queries + 0.001 * random.normal(size=queries.shape))
    item = 2 * pair + (side > 0)
    clicks = csr_array((np.ones(400, np.float32), (np.arange(400), item)), shape=(400, 40))
    config = OneVsAllConfig(epochs=40, batch=64, query_layer=True, learning_rate=0.02)
    trained = one_vs_all(queries, clicks, config)
    assert trained.query_layer is not None
    assert np.abs(trained.query_layer).max() > 0.1
    margin = np.abs(trained.transform_queries(queries)[:, -1])
    assert margin.mean() > 3 * np.abs(queries[:, -1]).mean()


def test_mined_items_are_trained_as_negatives(world, monkeypatch):
    """Of two items that nobody clicked, the one that is mined for every query is pushed away from all of them."""
    queries, clicks = observed_part(world)
    items = clicks.shape[1]
    clicks = csr_array((clicks.data, clicks.indices, clicks.indptr), shape=(len(queries), items + 2))
    toward = normalize_rows(np.repeat(queries.mean(axis=0, keepdims=True), 2, axis=0))
    known = ridge(queries, clicks).weights
    start = Classifiers(np.concatenate([known[:items], toward]), clicks_per_item(clicks))
    config = OneVsAllConfig(epochs=2, batch=8, all_items=0, mined=1, query_layer=False, learning_rate=0.05)
    module = sys.modules[one_vs_all.__module__]

    def scores_of_both(mined):
        monkeypatch.setattr(module, "_mine", lambda *parts: np.full((len(queries), 1), mined))
        return (queries @ one_vs_all(queries, clicks, config, start=start).weights[-2:].T).mean(axis=0)

    first, second = scores_of_both(items), scores_of_both(items + 1)
    assert first[0] < second[0] - 0.1
    assert second[1] < first[1] - 0.1


def test_what_is_mined_ranks_highest(world):
    queries, clicks = observed_part(world)
    weights = torch.nn.Embedding(clicks.shape[1], queries.shape[1])
    layer = 0.1 * torch.randn(queries.shape[1], queries.shape[1])
    config = OneVsAllConfig(mined=7)
    moved = normalize_rows(queries + queries @ layer.numpy())
    found = _mine(queries, weights, layer, config)
    np.testing.assert_array_equal(found, top_k(moved, weights.weight.detach().numpy(), 7)[0])


def test_ridge_is_where_training_starts(world):
    queries, clicks = observed_part(world)
    config = OneVsAllConfig(epochs=1, batch=len(queries), learning_rate=1e-9, query_layer=False)
    untouched = one_vs_all(queries, clicks, config)
    np.testing.assert_allclose(untouched.weights, ridge(queries, clicks).weights, atol=1e-5)
