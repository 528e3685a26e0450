"""NGAME, DEXA, and the model trained again."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc import Irene, IreneConfig
from metaxc.classifiers import Classifiers, OneVsAllConfig, one_vs_all, ridge
from metaxc.data import ClickLog
from metaxc.data.clicks import training_clicks
from metaxc.emmett import Emmett
from metaxc.errors import DataError
from metaxc.evaluation import OverlapError, evaluate, model_search
from metaxc.research.baselines.baseline import scorer_search
from metaxc.research.baselines.emmett_baselines import (
    DEXA,
    NGAME,
    DexaConfig,
    Retrained,
    emmett_scorer,
    reveal_clicks,
    train_cluster_vectors,
)
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


def with_novelty(vectors, novelty):
    """The vectors with their last coordinate."""
    return np.pad(vectors, ((0, 0), (0, 1)), constant_values=novelty)


def evaluate_scorer(scorer, world):
    return evaluate(scorer_search(scorer, len(world.dataset.items)), world.dataset, intervals=False)


class TestNGAME:
    def test_a_novel_item_is_its_embedding(self, world, ngame):
        rows = world.dataset.novel_rows
        embeddings = world.encoder.encode_items([world.dataset.items.texts[row] for row in rows])
        np.testing.assert_array_equal(ngame.represent(embeddings), with_novelty(embeddings, 1))
        np.testing.assert_array_equal(ngame.vectors[rows], with_novelty(embeddings, 1))
        assert ngame.explain("i4").neighbour_share == 0

    def test_an_observed_item_has_its_classifier_too(self, world, ngame):
        c, n = ngame.calibration, ngame.classifiers.clicks[0]
        own = c.own * n / (n + c.prior_clicks) * ngame.classifiers.weights[0]
        np.testing.assert_allclose(ngame.vectors[0], [*(world.encoder.items[0] + own), 0], atol=1e-6)

    def test_it_finds_observed_items_and_not_novel_ones(self, world):
        found = evaluate_scorer(NGAME(world.encoder).fit(world.dataset), world)
        assert found["zero_shot"]["P@1"] < 20
        assert found["generalized"]["P@1"] > 90

    def test_the_query_layer_of_trained_classifiers_is_used(self, world):
        def quickly(queries, clicks):
            return one_vs_all(queries, clicks, OneVsAllConfig(epochs=1))

        model = NGAME(world.encoder, classifiers=quickly).fit_emmett(world.dataset)
        assert model.classifiers.query_layer is not None
        scorer = emmett_scorer(model, world.dataset)
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
            dexa.represent(embeddings), with_novelty(embeddings + dexa.neighbour_vectors[clusters], 1)
        )
        np.testing.assert_array_equal(dexa.vectors[rows], dexa.represent(embeddings))

    def test_an_observed_item_has_all_three(self, world, dexa):
        embedding = world.encoder.items[0]
        cluster = int((dexa.selector.centroids @ embedding).argmax())
        c, n = dexa.calibration, dexa.classifiers.clicks[0]
        own = c.own * n / (n + c.prior_clicks) * dexa.classifiers.weights[0]
        np.testing.assert_allclose(
            dexa.vectors[0], [*(embedding + dexa.neighbour_vectors[cluster] + own), 0], atol=1e-6
        )

    @pytest.mark.parametrize("method", [NGAME, DEXA])
    def test_without_a_fold_an_observed_item_has_all_three_too(self, world, method, monkeypatch):
        """The cluster vector counts once, however many clicks there are."""
        monkeypatch.setattr(TuningFold, "draw", lambda *args: None)
        model = method(world.encoder).fit_emmett(world.dataset)
        c, n = model.calibration, model.classifiers.clicks[0]
        own = c.own * n / (n + c.prior_clicks) * model.classifiers.weights[0]
        np.testing.assert_allclose(model.vectors[0], [*(model.embeddings[0] + own), 0], atol=1e-6)

    def test_it_learns_what_the_embeddings_lack(self, world, dexa):
        found = evaluate_scorer(emmett_scorer(dexa, world.dataset), world)
        assert found["zero_shot"]["P@1"] > 80  # one of 40 by chance
        assert found["generalized"]["P@1"] > 90

    def test_an_untrained_dexa_is_the_bare_encoder(self, world):
        model = DEXA(world.encoder, 7, config=DexaConfig(epochs=0)).fit_emmett(world.dataset)
        bare = world.encoder.encode_items(["i4"])
        np.testing.assert_array_equal(model.represent(["i4"]), with_novelty(bare, 1))

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
        vectors = train_cluster_vectors(
            queries,
            world.encoder.items[observed],
            clicks,
            np.repeat(np.arange(GROUPS), 4),
            DexaConfig(epochs=30, learning_rate=0.02),
        )
        means = queries.reshape(GROUPS, -1, queries.shape[1]).mean(axis=1)
        np.testing.assert_array_equal((means @ vectors.T).argmax(axis=1), np.arange(GROUPS))

    def test_the_number_of_clusters_follows_from_their_size(self, world):
        model = DEXA(world.encoder, config=DexaConfig(epochs=1, items_per_cluster=20)).fit_emmett(
            world.dataset
        )
        assert 4 <= len(model.neighbour_vectors) <= 160 // 20


def test_misleading_classifiers_get_the_smallest_weight(world):
    observed, query_rows, clicks = training_clicks(world.dataset)
    queries, items = world.encoder.queries[query_rows], world.encoder.items[observed]
    fold = TuningFold.draw(queries, clicks, 1)
    good = ridge(queries[fold.training_rows], fold.training_clicks)
    bad = Classifiers(-good.weights, good.clicks)
    chosen, refused = (tune_own_classifiers(fold, items, classifiers) for classifiers in (good, bad))
    weight = [c.own * 20 / (20 + c.prior_clicks) for c in (chosen, refused)]
    assert weight[1] < 0.1 < weight[0]
    assert chosen.novel_scale == refused.novel_scale == 1.0


def revealed_clicks(dataset, items, most=None) -> csr_array:
    """The training clicks on `items`, at most `most` of each."""
    dense = dataset.train.clicks.toarray()
    kept = np.zeros_like(dense)
    for item in items:
        kept[np.flatnonzero(dense[:, item])[:most], item] = 1
    return csr_array(kept)


def test_exactly_the_revealed_clicks_are_visible(world):
    first, second = world.dataset.novel_rows[:2]
    revealed = revealed_clicks(world.dataset, [first], most=3)
    derived = reveal_clicks(world.dataset, revealed)
    observed, query_rows, clicks = training_clicks(derived)
    assert first in observed
    assert second not in observed
    before, _, clicks_before = training_clicks(world.dataset)
    assert len(observed) == len(before) + 1
    assert clicks.nnz == clicks_before.nnz + 3
    column = clicks.toarray()[:, observed.tolist().index(first)]
    np.testing.assert_array_equal(query_rows[column > 0], np.flatnonzero(revealed.toarray()[:, first]))
    assert world.dataset.novel_mask[first]  # what is judged does not change


def test_counts_of_visible_clicks_stay(world):
    train = world.dataset.train
    counts = np.arange(1, train.clicks.nnz + 1)
    counted = replace(world.dataset, train=replace(train, counts=counts))
    first = world.dataset.novel_rows[0]
    derived = reveal_clicks(counted, revealed_clicks(counted, [first], most=3))
    visible = ~world.dataset.novel_mask[train.clicks.indices]
    hit = derived.train.clicks.indices == first
    assert derived.train.pair_counts[hit].tolist() == [1, 1, 1]
    assert derived.train.pair_counts[~hit].tolist() == counts[visible].tolist()


def test_all_novel_items_may_be_revealed(world):
    derived = reveal_clicks(world.dataset, revealed_clicks(world.dataset, world.dataset.novel_rows, 2))
    assert len(training_clicks(derived)[0]) == len(world.dataset.items)
    recipe = Irene(IreneConfig(folds=0), encoder=world.encoder)
    fitted = Retrained(recipe, revealed_clicks(world.dataset, world.dataset.novel_rows, 2)).fit(world.dataset)
    assert fitted.vectors.shape == (len(world.dataset.items), world.encoder.dim + 1)


def test_a_revealed_item_learns_from_its_own_clicks(world):
    """A novel item clicked from another group's queries answers those once they are revealed."""
    novel = world.dataset.novel_rows[0]  # of group 0
    clicks = np.zeros(world.dataset.train.clicks.shape, np.float32)
    clicks[7 * 20 : 8 * 20, novel] = 1  # by the queries of group 7
    queries = world.dataset.test.queries.texts[7 * 4 : 8 * 4]
    recipe = Irene(IreneConfig(folds=0), encoder=world.encoder)
    before = Retrained(recipe).fit(world.dataset).scores(queries)[:, novel]
    after = Retrained(recipe, csr_array(clicks)).fit(world.dataset).scores(queries)[:, novel]
    assert (before < 0.3).all()
    assert (after > before + 0.3).all()


@pytest.mark.parametrize("part", ["query expansion", "query layer"])
def test_it_searches_like_any_model(world, part, monkeypatch):
    """The ranking is that of the model itself, and not that of queries without the part."""
    recipe, texts = Irene(IreneConfig(folds=0), encoder=world.encoder), world.dataset.test.queries.texts
    model = recipe.fit(world.dataset)
    before = model_search(model, world.dataset)(texts, 20, None)
    turned = np.roll(np.eye(world.encoder.dim, dtype=np.float32), 1, axis=1)
    if part == "query expansion":
        model.expansion = SimpleNamespace(expand=lambda queries: queries @ turned)
    else:
        model.classifiers = replace(model.classifiers, query_layer=turned)
    monkeypatch.setattr(recipe, "fit", lambda dataset: model)
    found = Retrained(recipe).search(world.dataset)(texts, 20, None)
    np.testing.assert_array_equal(found, model_search(model, world.dataset)(texts, 20, None))
    assert (found != before).any(axis=1).all()


def test_revealed_items_may_be_searched_and_test_clicks_may_not_be_trained_on(world):
    recipe = Irene(IreneConfig(folds=0), encoder=world.encoder)
    revealed = revealed_clicks(world.dataset, world.dataset.novel_rows[:3], most=2)
    found = Retrained(recipe, revealed).search(world.dataset)(world.dataset.test.queries.texts[:4], 5, None)
    assert found.shape == (4, 5)
    leaked = replace(world.dataset, test=ClickLog(world.dataset.train.queries, world.dataset.train.clicks))
    with pytest.raises(OverlapError):
        Retrained(recipe, revealed).search(leaked)


def test_clicks_on_observed_items_or_of_another_shape_are_errors(world):
    with pytest.raises(DataError, match="on an observed item"):
        reveal_clicks(world.dataset, revealed_clicks(world.dataset, [0]))
    with pytest.raises(DataError, match="do not match"):
        reveal_clicks(world.dataset, csr_array((3, 3)))
