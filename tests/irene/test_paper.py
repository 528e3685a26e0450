"""The paper's own choices: what they are, that they find novel items, and that they hold on data of any size."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import OneVsAllConfig, QueryTransformer
from metaxc.data import ClickLog, Dataset, Texts
from metaxc.emmett import Emmett
from metaxc.emmett.query_tower_export import export_query_tower
from metaxc.encoders import Pretrained, Vectors
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.encoders.training.recipes import train_encoder
from metaxc.errors import ConfigError
from metaxc.evaluation import evaluate, model_search
from metaxc.generators import gather
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.config import PAPER_ENCODER

QUICK = {"classifiers": {"most_steps": 60}, "training": {"most_steps": 40, "batch": 64}}


@pytest.fixture(scope="module")
def model(world):
    return fit(world)


def fit(world, **options):
    irene = Irene.paper(**{**QUICK, **options})
    irene.encoder = world.encoder
    return irene.fit(world.dataset)


def test_the_choices():
    config = Irene.paper().config
    assert (config.neighbours, config.training.depth, config.generator) == (3, 1, "post_norm")
    assert (config.encoder, config.expansion_queries, config.folds) == ("pretrained", 0, 0)
    assert config.observed_items == "generator"
    meta = config.meta_training
    assert (meta.items, meta.neighbour_input, meta.include_self) == ("observed", "classifiers", False)
    classifiers = config.classifiers
    assert isinstance(classifiers, OneVsAllConfig)
    assert (classifiers.query_layer, classifiers.keep_length, classifiers.scale) == ("transformer", True, 1.0)
    assert classifiers.cluster > 1
    training = config.training
    assert (training.loss, training.train_classifiers, training.scale) == ("cross_entropy", False, None)
    assert training.positive_weight > 1  # C
    assert training.cluster > 1
    for part in (classifiers, training):
        assert part.adamw is not None
        assert part.early_stopping is not None
        assert part.adamw.weight_decay > 0
        assert 0 < part.adamw.warmup < 0.5
        assert part.epochs >= 20  # passes and validation decide before the budget does
        assert part.most_steps <= 5_000


def test_novel_items_are_found(world, model):
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 85  # the embedding alone: under 20
    assert found["generalized"]["R@10"] > 85
    assert isinstance(model.classifiers.query_layer, QueryTransformer)
    lengths = np.linalg.norm(model.classifiers.weights, axis=1)
    assert ((lengths > 0.1) & (np.abs(lengths - 1) > 0.1)).all()  # as they were trained


def test_every_item_is_ranked_by_the_generator(world, model):
    """An observed item's own classifier is among the three, by the selector's formula; clicks add nothing else."""
    embeddings = world.encoder.encode_items(world.dataset.items.texts)
    rows, scores = model.selector.select(embeddings, 3)
    assert (rows[model.observed] == np.arange(len(model.observed))[:, None]).any(axis=1).all()
    made = model.generator.generate(embeddings, gather(model.classifiers.weights, rows), scores)
    np.testing.assert_allclose(model.vectors[:, :-1], made, atol=1e-3)
    assert model.calibration.exposure == 0


def test_a_saved_model_answers_alike(world, model, tmp_path):
    model.save(tmp_path / "model")
    again = Emmett.load(tmp_path / "model")
    queries = world.dataset.test.queries.texts[:20]
    assert again.search(queries, k=5) == model.search(queries, k=5)
    assert again.selects_itself
    assert again.fingerprint == model.fingerprint
    again.__dict__.pop("fingerprint")
    again.selects_itself = False
    assert again.fingerprint != model.fingerprint
    assert "i0" in [one.id for one in model.explain(id="i0").neighbours]
    assert "i0" not in [one.id for one in again.explain(id="i0").neighbours]
    items = again.items.texts
    np.testing.assert_allclose(
        again.represent([items[4]]), model.vectors[[4]], atol=1e-4
    )  # a novel item, represented again


def test_a_search_by_vectors_of_ones_own_is_exported_nowhere(model, tmp_path):
    with pytest.raises(ConfigError, match="no encoder of texts"):
        export_query_tower(model, tmp_path / "tower")


def test_the_model_of_texts_is_exported_with_its_query_layer(shop, tiny, tmp_path):
    from sentence_transformers import SentenceTransformer

    from metaxc.data import split

    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)
    trained = Irene.paper(base=str(tiny), backend="torch", **QUICK).fit(dataset)
    record = export_query_tower(trained, tmp_path / "tower")
    assert not record.remote_code
    queries = dataset.test.queries.texts[:4]
    found = SentenceTransformer(str(tmp_path / "tower")).encode_query(queries)
    np.testing.assert_allclose(found, trained.encode_queries(queries), atol=1e-4)


class TestEncoder:
    """The paper's encoder has learnt from the clicks, by NGAME."""

    @pytest.fixture
    def dataset(self, shop, monkeypatch):
        monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)  # the shop is small
        changes = {"steps": 60, "passes": None, "batch": 16, "learning_rate": 3e-3}
        quick = PAPER_ENCODER.model_copy(update=changes)
        monkeypatch.setattr("metaxc.irene.config.PAPER_ENCODER", quick)
        return shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])

    def test_it_is_trained_on_the_clicks_of_all_observed_items(self, dataset, tiny, tmp_path):
        model = Irene.paper(base=str(tiny), backend="torch", **QUICK).fit(dataset, stages=tmp_path)
        record = EncoderRecord.load(model.encoder.folder)
        assert record.recipe["recipe"] == "ngame"
        assert record.held_items == []
        first = EncoderRecord.load(tmp_path / "fine-tune-fold" / "encoder")
        assert first.held_items  # they decide after how many steps to stop
        assert first.validation[0][0] > 0  # but not that the encoder is not trained at all
        assert model.encoder.weights != Pretrained(tiny).weights

    def test_one_that_has_learnt_from_clicks_is_left_as_it_is(self, dataset, tiny, tmp_path):
        train_encoder(dataset, EncoderTraining(steps=2, batch=16), tmp_path / "trained", base=tiny)
        base = Pretrained(tmp_path / "trained")
        model = Irene.paper(base=str(base.folder), backend="torch", **QUICK).fit(dataset)
        assert model.encoder.weights == base.weights


def test_the_control_is_trained_and_served_without_neighbours(world):
    control = fit(world, meta_training={"neighbour_input": "none"})
    assert control.generator.settings()["alone"] == 1
    novel = control.items.texts[4]
    with_others = control.represent([novel])
    control.neighbours = 1
    control.__dict__.pop("pipeline", None)
    np.testing.assert_allclose(control.represent([novel]), with_others, atol=1e-5)


def test_the_control_needs_a_transformer():
    with pytest.raises(ValueError, match="is a control of transformer and post_norm"):
        IreneConfig(meta_training={"neighbour_input": "none"})


def test_there_is_nothing_to_choose_on_folds():
    with pytest.raises(ValueError, match="set folds to 0"):
        IreneConfig(observed_items="generator")
    with pytest.raises(ConfigError, match="set folds to 0"):
        Irene.paper(folds=2)


@pytest.mark.parametrize(("items", "queries"), [(1, 1), (2, 3), (4, 4), (30, 25)])
def test_tiny_data(items, queries):
    random = np.random.default_rng(0)
    dim = 12
    clicks = np.zeros((queries, items), np.float32)
    clicks[np.arange(queries), np.arange(queries) % items] = 1
    names = [f"i{number}" for number in range(items + 2)]
    asked = [f"q{number}" for number in range(queries)]
    novel = np.arange(items + 2) >= items
    log = ClickLog(Texts(asked, asked), csr_array(np.pad(clicks, ((0, 0), (0, 2)))))
    dataset = Dataset(Texts(names, names), log, log, novel, name="tiny")
    encoder = Vectors(
        asked,
        random.normal(size=(queries, dim)).astype(np.float32),
        names,
        np.ones((items + 2, dim), np.float32)  # all alike, and nothing is left of them when they are centred
        if items == 4
        else random.normal(size=(items + 2, dim)).astype("f4"),
    )
    irene = Irene.paper(**QUICK)
    irene.encoder = encoder
    model = irene.fit(dataset)
    assert np.isfinite(model.vectors).all()
    assert np.isfinite(model.classifiers.weights).all()
    assert len(model.search(asked[:1], k=5)[0]) == min(5, items + 2)


def test_clicks_are_told_only_to_a_transformer_that_is_to_know_them(world):
    told = {"transformer": {"neighbour_features": True}, "early_stopping": {"least_steps": 1}}
    config = IreneConfig(encoder="pretrained", generator="transformer", training={**told, "most_steps": 20})
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    assert model.generator.settings()["features"] == 1
    assert model.neighbour_prior > 0  # otherwise no length would tell of clicks
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 85
