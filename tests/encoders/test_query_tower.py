"""A query tower is trained against item vectors that do not change."""

import numpy as np
import pytest
import torch
from shifted_world import CONFIG, build_dataset, build_encoder
from torch.nn import functional

from metaxc.classifiers import Classifiers
from metaxc.encoders import AdapterConfig
from metaxc.encoders.query_tower import FixedItems, QueryTexts, blend_query_towers, train_query_tower


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return build_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def trained(encoder):
    log = build_dataset("new", range(30)).train
    items = build_dataset("new", range(1)).items
    vectors = np.pad(encoder.encode_items(items.texts), ((0, 0), (0, 1)))
    queries = QueryTexts(encoder, log.queries.texts)
    rows = np.arange(len(log))
    return train_query_tower(encoder, queries, rows, vectors, log.clicks, CONFIG.adapter), queries, vectors


def test_it_reads_queries_as_the_encoder_does(encoder, trained):
    texts = ["new0 more1", "old3"]
    np.testing.assert_array_equal(QueryTexts(encoder, texts).embed(encoder), encoder.encode_queries(texts))


def test_only_the_query_tower_learns(encoder, trained):
    new = trained[0]
    assert new.towers.item is encoder.towers.item
    assert new.item_fingerprint == encoder.item_fingerprint
    assert new.fingerprint != encoder.fingerprint
    assert new.kind == encoder.kind
    log = build_dataset("new", range(30)).train
    scores = new.encode_queries(log.queries.texts) @ trained[2][:, :-1].T
    best = scores[:, :-1].argmax(axis=1)
    assert log.clicks.toarray()[np.arange(len(log)), best].all()


def test_the_losses_are_those_of_this_training(trained):
    losses = trained[0].towers.losses
    assert len(losses) == 30 * 6 // 64 * CONFIG.adapter.epochs
    assert losses[-1] < losses[0] / 2


def test_a_blend_is_on_the_way(encoder, trained):
    new = trained[0]
    assert blend_query_towers(encoder, new, 0.0) is encoder
    assert blend_query_towers(encoder, new, 1.0) is new
    half = blend_query_towers(encoder, new, 0.5)
    expected = (encoder.towers.query.table + new.towers.query.table) / 2
    torch.testing.assert_close(half.towers.query.table, expected)
    assert half.towers.item is encoder.towers.item


def test_queries_are_scored_as_they_are_served(encoder, trained):
    layer = np.eye(encoder.dim, dtype=np.float32)[::-1].copy()
    apply = Classifiers(np.zeros((1, encoder.dim), np.float32), np.array([1]), layer).query_function
    learner = FixedItems(
        encoder.towers.query, 0.0, trained[1], np.array([4, 2]), trained[2], exposure=0.3, query_layer=apply
    )
    learner.module.eval()
    embedded = learner.embed("query", np.array([1])).detach()
    plain = torch.from_numpy(trained[1].embed(encoder)[[2]])
    expected = functional.normalize(plain + plain @ torch.from_numpy(layer), dim=1)
    torch.testing.assert_close(embedded[:, :-1], expected)
    assert embedded[0, -1].item() == pytest.approx(0.3)
    torch.testing.assert_close(learner.embed("item", np.array([3])), torch.from_numpy(trained[2][[3]]))


def test_the_number_of_steps_is_limited(encoder, trained):
    log = build_dataset("new", range(30)).train
    config = AdapterConfig(epochs=50, batch=64, most_steps=3)
    new = train_query_tower(encoder, trained[1], np.arange(len(log)), trained[2], log.clicks, config)
    assert len(new.towers.losses) == 3
