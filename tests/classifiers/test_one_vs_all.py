import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, OneVsAllConfig, one_vs_all, ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.classifiers.one_vs_all import _hold_out, _mine, _targets, _Training
from metaxc.data.clicks import clicks_per_item, training_clicks
from metaxc.index import top_k
from metaxc.training_loop import EarlyStopping


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
    config = OneVsAllConfig(
        epochs=30, batch=64, all_items=all_items, query_layer="linear", learning_rate=0.02
    )
    trained = one_vs_all(queries, clicks, config, start=start)
    assert share_of_clicked(start, queries, clicks) < 0.1
    assert share_of_clicked(trained, queries, clicks) > 0.95
    np.testing.assert_allclose(np.linalg.norm(trained.weights, axis=1), 1, atol=1e-5)
    assert trained.clicks.tolist() == start.clicks.tolist()


def test_the_query_layer_is_only_there_when_asked_for(world):
    queries, clicks = observed_part(world)
    plain = one_vs_all(queries, clicks, OneVsAllConfig(epochs=1, query_layer="none"))
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
    config = OneVsAllConfig(epochs=5, query_layer="none")

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
    config = OneVsAllConfig(epochs=40, batch=64, query_layer="linear", learning_rate=0.02)
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
    config = OneVsAllConfig(epochs=2, batch=8, all_items=0, mined=1, query_layer="none", learning_rate=0.05)
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
    found = _mine(lambda: queries, weights, 7)
    np.testing.assert_array_equal(found, top_k(queries, weights.weight.detach().numpy(), 7)[0])


def test_ridge_is_where_training_starts(world):
    queries, clicks = observed_part(world)
    config = OneVsAllConfig(epochs=1, batch=len(queries), learning_rate=1e-9, query_layer="none")
    untouched = one_vs_all(queries, clicks, config)
    np.testing.assert_allclose(untouched.weights, ridge(queries, clicks).weights, atol=1e-5)


def exclusive_or(seed=0, count=240):
    """Queries of two signs that click one of two items by their product: no classifier of one vector can tell them."""
    random = np.random.default_rng(seed)
    signs = random.choice([-1.0, 1.0], size=(count, 2))
    queries = np.concatenate([signs, 0.1 * random.normal(size=(count, 6))], axis=1).astype(np.float32)
    item = (signs.prod(axis=1) > 0).astype(int)
    return queries, csr_array((np.ones(count, np.float32), (np.arange(count), item)), shape=(count, 2))


def test_the_transformer_layer_is_trained_with_the_classifiers():
    queries, clicks = exclusive_or()
    found = {}
    for layer in ("none", "transformer"):
        config = OneVsAllConfig(
            epochs=80, batch=60, scale=1.0, query_layer=layer, keep_length=True, learning_rate=0.02
        )
        trained = one_vs_all(queries, clicks, config)
        others, wanted = exclusive_or(seed=1)
        best = (trained.transform_queries(others) @ trained.weights.T).argmax(axis=1)
        found[layer] = (best == wanted.indices).mean()
    assert found["none"] < 0.7
    assert found["transformer"] > 0.95


def test_classifiers_keep_the_length_that_makes_their_scores_log_odds():
    """One query clicks item 0 in three of four cases, the other in one: the logits differ by 2 ln 3. Both click item 1
    in every other case."""
    queries = np.repeat(np.eye(2, 4, dtype=np.float32), 40, axis=0)
    clicks = np.zeros((80, 2), np.float32)
    clicks[:30, 0] = clicks[40:50, 0] = clicks[::2, 1] = 1
    given = csr_array(clicks)
    how = {"epochs": 300, "batch": 80, "query_layer": "none", "learning_rate": 0.05}
    kept = one_vs_all(queries, given, OneVsAllConfig(scale=1.0, keep_length=True, **how))
    scores = queries[[0, 40]] @ kept.weights.T
    np.testing.assert_allclose(scores[0] - scores[1], [2 * np.log(3), 0], atol=0.05)
    unit = one_vs_all(queries, given, OneVsAllConfig(**how))
    np.testing.assert_allclose(np.linalg.norm(unit.weights, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("all_items", [10_000, 0], ids=["all items", "some items"])
def test_the_weights_that_held_out_queries_like_best_are_kept(world, all_items, monkeypatch):
    """The quality is scripted: best at the start, or after the second of four validations."""
    queries, clicks = observed_part(world)
    start = ridge(queries, clicks)
    stopping = EarlyStopping(evaluations=4, least_steps=8)
    config = OneVsAllConfig(
        epochs=1,
        keep_length=True,
        scale=1.0,
        all_items=all_items,
        early_stopping=stopping,
        query_layer="linear",
    )
    for best in (0, 2):
        seen = []

        def measure(training, best=best, seen=seen):
            scale, weights = training.log_scale.exp().item(), training.weights.weight.detach().numpy().copy()
            seen.append((scale * weights, training.linear.detach().numpy().copy()))
            return 1.0 if len(seen) == best + 1 else 0.0

        monkeypatch.setattr(_Training, "_validate", measure)
        kept = one_vs_all(queries, clicks, config, start=start)
        assert len(seen) == 5
        np.testing.assert_array_equal(kept.weights, seen[best][0].astype(np.float32))
        np.testing.assert_array_equal(kept.query_layer, seen[best][1])
        assert (kept.weights == start.weights).all() == (best == 0)


def test_held_out_queries_are_validated_on_all_items(world):
    """Classifiers that find everything, nothing, and every other item."""
    queries, clicks = observed_part(world)
    config = OneVsAllConfig(query_layer="none", early_stopping=EarlyStopping())
    start = ridge(queries, clicks)
    assert _Training(queries, clicks, config, start, 0)._validate() == 100
    against = replace(start, weights=-start.weights)
    assert _Training(queries, clicks, config, against, 0)._validate() == 0
    weights = start.weights.copy()
    weights[::2] *= -1
    assert (
        _Training(queries, clicks, config, replace(start, weights=weights), 0)._validate() == 75
    )  # (100 + 50) / 2


@pytest.mark.parametrize("all_items", [10_000, 0], ids=["all items", "some items"])
def test_classifiers_decay(world, all_items):
    """The larger the weight decay, the shorter the classifiers, whether a step touches all of them or a few."""
    queries, clicks = observed_part(world)
    how = {"query_layer": "none", "keep_length": True, "all_items": all_items, "scale": 1.0, "epochs": 10}
    lengths = [
        np.linalg.norm(
            one_vs_all(
                queries, clicks, OneVsAllConfig(**how, learning_rate=0.01, adamw={"weight_decay": decay})
            ).weights
        )
        for decay in (0.0, 5.0)
    ]
    assert lengths[1] < 0.8 * lengths[0]


def test_every_item_keeps_a_query_when_some_are_held_out():
    """Item 0 has one query, item 1 two, the others many."""
    item = np.array([0, 1, 1, *np.repeat([2, 3], 150)])
    clicks = csr_array((np.ones(len(item), np.float32), (np.arange(len(item)), item)))
    for seed in range(30):
        held = _hold_out(clicks, EarlyStopping(share=0.5), seed)
        assert 100 < len(held) < 152
        assert set(np.delete(item, held)) == {0, 1, 2, 3}
    assert not len(_hold_out(clicks, EarlyStopping(share=0.02), 0))  # too few to validate on


def test_near_queries_share_batches_in_the_end():
    random = np.random.default_rng(0)
    group = random.permutation(np.repeat(np.arange(16), 8))
    queries = (np.eye(16)[group] + 0.01 * random.normal(size=(128, 16))).astype(np.float32)
    clicks = csr_array(np.eye(128, dtype=np.float32))
    config = OneVsAllConfig(batch=16, cluster=8)
    batches = _Training(queries, clicks, config, ridge(queries, clicks), 0)._batches(32)
    drawn = [next(batches) for _ in range(32)]
    groups = [len(set(group[rows])) for rows in drawn]
    assert np.mean(groups[:8]) > 9  # by chance: 10.6
    assert np.mean(groups[-8:]) < 7
    assert sorted(np.concatenate(drawn[-8:])) == list(range(128))


def test_the_number_of_steps_is_bounded_from_both_sides(world, monkeypatch):
    queries, clicks = observed_part(world)
    module = sys.modules[one_vs_all.__module__]
    run = []
    monkeypatch.setattr(module, "run_training", lambda loss, optimizers, steps, **rest: run.append(steps))
    for config in (
        OneVsAllConfig(epochs=3, batch=len(queries)),
        OneVsAllConfig(epochs=300, batch=8, most_steps=70),
        OneVsAllConfig(epochs=3, batch=len(queries), early_stopping=EarlyStopping(least_steps=50)),
    ):
        one_vs_all(queries, clicks, config)
    assert run == [3, 70, 50]


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_clicks_that_weigh_more_or_less_than_one_are_weighed(weight):
    clicks = csr_array(np.array([[1.0, 0.0, weight], [0.0, 1.0, 0.0]], np.float32))
    target, weights = _targets(clicks, np.array([0, 1]), None, torch.device("cpu"))
    assert target.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert weights.tolist() == [[1, 1, weight], [1, 1, 1]]
    plain = csr_array((clicks.toarray() > 0).astype(np.float32))
    assert _targets(plain, np.array([0]), None, torch.device("cpu"))[1] is None
