import numpy as np
import pytest
from metaxc.research.baselines.dexa import DEXA, DexaConfig, cluster_vectors
from metaxc.research.baselines.served import NGAME, served

from metaxc.classifiers import Classifiers, OneVsAllConfig, one_vs_all, ridge
from metaxc.data.clicks import training_clicks
from metaxc.emmett import Emmett
from metaxc.evaluation import evaluate
from metaxc.research.baselines.baseline import scorer_search
from metaxc.selectors import ClusterSelector
from metaxc.tuning import TuningFold, tune_own_classifiers

GROUPS = 40


@pytest.fixture(scope="module")
def ngame(world):
    return NGAME(world.encoder).fit_emmett(world.dataset)


@pytest.fixture(scope="module")
def dexa(world):
    config = DexaConfig(epochs=60, learning_rate=0.02)
    return DEXA(world.encoder, GROUPS, config=config).fit_emmett(world.dataset)


def judged(scorer, world):
    return evaluate(scorer_search(scorer, len(world.dataset.items)), world.dataset, intervals=False)


class TestNGAME:
    def test_a_novel_item_is_its_embedding(self, world, ngame):
        rows = world.dataset.novel_rows
        embeddings = world.encoder.encode_items([world.dataset.items.texts[row] for row in rows])
        np.testing.assert_array_equal(ngame.represent(embeddings), embeddings)
        np.testing.assert_array_equal(ngame.vectors[rows], embeddings)
        assert ngame.explain("i4").neighbour_share == 0

    def test_an_observed_item_has_its_classifier_too(self, world, ngame):
        c, n = ngame.calibration, ngame.classifiers.clicks[0]
        own = c.own * n / (n + c.prior_clicks) * ngame.classifiers.weights[0]
        np.testing.assert_allclose(ngame.vectors[0], world.encoder.items[0] + own, atol=1e-6)

    def test_it_knows_the_observed_and_not_the_novel(self, world):
        found = judged(NGAME(world.encoder).fit(world.dataset), world)
        assert found["zero_shot"]["P@1"] < 20
        assert found["generalized"]["P@1"] > 90

    def test_trained_classifiers_bring_their_query_layer(self, world):
        def quickly(queries, clicks):
            return one_vs_all(queries, clicks, OneVsAllConfig(epochs=1))

        model = NGAME(world.encoder, classifiers=quickly).fit_emmett(world.dataset)
        assert model.classifiers.query_layer is not None
        scorer = served(model, world.dataset)
        texts = world.dataset.test.queries.texts[:3]
        np.testing.assert_allclose(
            scorer.scores(texts), model.encode_queries(texts) @ model.vectors.T, atol=1e-5
        )


class TestDEXA:
    def test_a_novel_item_is_embedding_plus_cluster_vector(self, world, dexa):
        rows = world.dataset.novel_rows
        embeddings = world.encoder.encode_items([world.dataset.items.texts[row] for row in rows])
        clusters = (embeddings @ dexa.selector.centroids.T).argmax(axis=1)
        np.testing.assert_array_equal(
            dexa.represent(embeddings), embeddings + dexa.neighbour_vectors[clusters]
        )
        np.testing.assert_array_equal(dexa.vectors[rows], dexa.represent(embeddings))

    def test_an_observed_item_has_all_three(self, world, dexa):
        embedding = world.encoder.items[0]
        cluster = int((dexa.selector.centroids @ embedding).argmax())
        c, n = dexa.calibration, dexa.classifiers.clicks[0]
        own = c.own * n / (n + c.prior_clicks) * dexa.classifiers.weights[0]
        np.testing.assert_allclose(
            dexa.vectors[0], embedding + dexa.neighbour_vectors[cluster] + own, atol=1e-6
        )

    def test_it_learns_what_the_embeddings_do_not_know(self, world, dexa):
        found = judged(served(dexa, world.dataset), world)
        assert found["zero_shot"]["P@1"] > 80  # one of 40 by chance
        assert found["generalized"]["P@1"] > 90

    def test_untrained_it_is_the_bare_encoder(self, world):
        model = DEXA(world.encoder, 7, config=DexaConfig(epochs=0)).fit_emmett(world.dataset)
        np.testing.assert_array_equal(model.represent(["i4"]), world.encoder.encode_items(["i4"]))

    def test_explained_by_its_cluster_saved_and_loaded(self, dexa, tmp_path):
        dexa.save(tmp_path / "m")
        again = Emmett.load(tmp_path / "m")
        assert isinstance(again.selector, ClusterSelector)
        assert again.explain("i4") == dexa.explain("i4")
        assert again.explain("i4").neighbours[0].id.startswith("cluster ")
        assert again.search(["t0"], k=5) == dexa.search(["t0"], k=5)

    def test_each_cluster_learns_its_own_queries(self, world):
        observed, query_rows, clicks = training_clicks(world.dataset)
        queries = world.encoder.queries[query_rows]
        vectors = cluster_vectors(
            queries,
            world.encoder.items[observed],
            clicks,
            np.repeat(np.arange(GROUPS), 4),
            DexaConfig(epochs=30, learning_rate=0.02),
        )
        means = queries.reshape(GROUPS, -1, queries.shape[1]).mean(axis=1)
        np.testing.assert_array_equal((means @ vectors.T).argmax(axis=1), np.arange(GROUPS))

    def test_as_many_clusters_as_the_size_says(self, world):
        model = DEXA(world.encoder, config=DexaConfig(epochs=1, items_per_cluster=20)).fit_emmett(
            world.dataset
        )
        assert 4 <= len(model.neighbour_vectors) <= 160 // 20


def test_classifiers_that_mislead_get_the_least_weight(world):
    observed, query_rows, clicks = training_clicks(world.dataset)
    queries, items = world.encoder.queries[query_rows], world.encoder.items[observed]
    fold = TuningFold.draw(queries, clicks, 0)
    good = ridge(queries[fold.training_rows], fold.training_clicks)
    bad = Classifiers(-good.weights, good.clicks)
    chosen, refused = (tune_own_classifiers(fold, items, classifiers) for classifiers in (good, bad))
    weight = [c.own * 20 / (20 + c.prior_clicks) for c in (chosen, refused)]
    assert weight[1] < 0.1 < weight[0]
    assert chosen.novel_scale == refused.novel_scale == 1.0
