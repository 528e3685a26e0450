"""The ablations."""

import numpy as np
from scipy.sparse import csr_array

from metaxc.evaluation import evaluate, model_search
from metaxc.generators import Episode, GeneratorTraining, ResidualTransformer, train_generator
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.research.bench import (
    Results,
    get_table,
    run_table,
    select_rows,
)
from metaxc.selectors import cross_encoder


def evaluate_model(model, dataset):
    return evaluate(model_search(model, dataset), dataset, intervals=False)


class TestChanges:
    """What the ablations change, on data where embeddings know nothing and classifiers everything."""

    def fitted(self, world, **changes):
        config = IreneConfig.model_validate({"encoder": "pretrained", "folds": 1, **changes})
        return Irene(config, encoder=world.encoder).fit(world.dataset)

    def test_embeddings_of_neighbours_do_not_help_and_centroids_do(self, world, tmp_path):
        nothing = self.fitted(world, meta_training={"neighbour_input": "embeddings"}, folds=0)
        assert evaluate_model(nothing, world.dataset)["zero_shot"]["P@1"] < 30
        everything = self.fitted(world, meta_training={"neighbour_input": "centroids"})
        assert evaluate_model(everything, world.dataset)["zero_shot"]["P@1"] > 95
        everything.save(tmp_path / "m")
        again = type(everything).load(tmp_path / "m")
        item = np.asarray(world.encoder.items[:3])
        np.testing.assert_array_equal(again.represent(item), everything.represent(item))

    def test_trained_classifiers_change_and_frozen_ones_do_not(self):
        random = np.random.default_rng(0)
        n, dim, k = 24, 16, 3
        z, w, queries = (random.normal(size=(n, dim)).astype(np.float32) for _ in range(3))
        clicks = csr_array(np.eye(n, dtype=np.float32))
        near = np.stack([(np.arange(1, k + 1) + row) % (n - 1) for row in range(n)])
        near[0] = -1  # an item without neighbours trains nobody
        scores = np.where(near < 0, -np.inf, 1.0).astype(np.float32)
        before = w.copy()
        for train in (False, True):
            config = GeneratorTraining(epochs=2, batch=8, train_classifiers=train)
            made = train_generator(
                ResidualTransformer(dim), [Episode(queries, z, clicks, w, near, scores)], config
            )
            np.testing.assert_array_equal(w, before)
            assert (made.classifiers is w) is not train
        changed = np.flatnonzero((made.classifiers != before).any(axis=1))
        assert changed.tolist() == np.unique(near[1:]).tolist()
        assert n - 1 not in changed  # nobody's neighbour

    def test_an_item_is_its_own_neighbour_only_when_configured(self, world):
        items = np.asarray(world.encoder.items)
        itself = np.arange(len(items))
        including = IreneConfig(
            generator="transformer", meta_training={"items": "observed", "include_self": True}
        )
        assert (
            ConfiguredParts(including).training_neighbours("transformer", items, 3)[0][:, 0].tolist()
            == itself.tolist()
        )
        found = ConfiguredParts(IreneConfig(generator="transformer")).training_neighbours(
            "transformer", items, 3
        )[0]
        assert found.shape == (len(items), 3)
        assert not (found == itself[:, None]).any()
        assert ConfiguredParts(IreneConfig(generator="combine")).training_neighbours("combine", items, 3)[
            0
        ].shape == (
            0,
            3,
        )  # nothing to train

    def test_self_and_trained_classifiers_reach_the_model(self, world):
        settings = {
            "generator": "transformer",
            "neighbours": 3,
            "folds": 0,
            "meta_training": {"items": "observed"},
        }
        plain = self.fitted(world, **settings)
        with_self = self.fitted(
            world, **{**settings, "meta_training": {"items": "observed", "include_self": True}}
        )
        trained = self.fitted(world, **settings, training={"train_classifiers": True})
        assert not np.array_equal(plain.vectors, with_self.vectors)
        assert plain.custom_neighbour_vectors is None
        assert not np.array_equal(trained.neighbour_vectors, plain.neighbour_vectors)


def test_the_cross_encoder_learns_from_observed_items_and_chooses_the_neighbours(
    context, world, monkeypatch, tmp_path
):
    """In its place a function that prefers the items of one group: all novel items are then made of those."""
    given = {}
    observed = [world.dataset.items.texts[row] for row in world.dataset.observed_rows]
    wanted = set(observed[:4])

    def train(texts, shortlists, usefulness, base, *, seed):
        given.update(texts=texts, shortlists=shortlists, usefulness=usefulness)
        return lambda items, candidates: np.array([[name in wanted for name in line] for line in candidates])

    monkeypatch.setattr(cross_encoder, "train_cross_encoder", train)
    monkeypatch.setattr("metaxc.research.bench.ablation_table.SHORTLIST", 160)
    table = get_table("ablations")
    rows = select_rows(table, "metaxc", "*cross-encoder*")
    default, reranked = run_table(context, table, rows, Results(tmp_path / "r.jsonl"))
    assert given["texts"] == observed
    assert not (given["shortlists"] == np.arange(160)[:, None]).any()
    own_group = given["shortlists"] // 4 == np.arange(160)[:, None] // 4
    assert (
        given["usefulness"][own_group].min()
        > given["usefulness"][~own_group & (given["shortlists"] >= 0)].max()
    )
    assert default["metrics"]["zero_shot"]["P@1"] > 95
    assert reranked["metrics"]["zero_shot"]["P@1"] < 30
