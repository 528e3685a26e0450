import numpy as np
import pytest

from metaxc.classifiers import OneVsAllConfig, centroid, one_vs_all
from metaxc.irene import training_clicks


def observed_part(world):
    _, rows, clicks = training_clicks(world.dataset)
    return world.encoder.encode_queries([world.dataset.train.queries.texts[r] for r in rows]), clicks


def own_scores(classifiers, queries, clicks):
    """Mean score of clicked pairs minus mean score of the rest."""
    scores = classifiers.queries(queries) @ classifiers.weights.T
    clicked = clicks.toarray() > 0
    return scores[clicked].mean() - scores[~clicked].mean()


@pytest.mark.parametrize("all_items", [10_000, 0], ids=["all items", "mined negatives"])
def test_training_parts_clicked_from_unclicked_better_than_its_start(world, all_items):
    queries, clicks = observed_part(world)
    random = np.random.default_rng(0)
    start = centroid(queries + random.normal(0, 0.3, queries.shape).astype(np.float32), clicks)
    config = OneVsAllConfig(epochs=8, batch=64, all_items=all_items, query_layer=True, learning_rate=0.01)
    trained = one_vs_all(queries, clicks, config, start=start)
    assert own_scores(trained, queries, clicks) > own_scores(start, queries, clicks) + 0.02
    np.testing.assert_allclose(np.linalg.norm(trained.weights, axis=1), 1, atol=1e-5)
    assert trained.clicks.tolist() == start.clicks.tolist()


def test_the_query_layer_is_only_there_when_asked_for(world):
    queries, clicks = observed_part(world)
    plain = one_vs_all(queries, clicks, OneVsAllConfig(epochs=1, query_layer=False))
    assert plain.query_layer is None
    assert plain.queries(queries) is queries
    with_layer = one_vs_all(queries, clicks, OneVsAllConfig(epochs=1))
    np.testing.assert_allclose(np.linalg.norm(with_layer.queries(queries), axis=1), 1, atol=1e-5)


def test_same_seed_same_weights(world):
    queries, clicks = observed_part(world)
    config = OneVsAllConfig(epochs=1, batch=64)
    first, again, other = (one_vs_all(queries, clicks, config, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, other.weights)
