import filecmp
from dataclasses import replace

import numpy as np
import pytest

from metaxc.data import Dataset, split
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, Emmett, ExpansionConfig
from metaxc.encoders import Pretrained
from metaxc.errors import DataError
from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.tuning import (
    CalibrationChoice,
    MixedQuality,
    Quality,
    Setting,
    choose_constants,
    fit_fold,
    learn_fold_encoder,
)
from metaxc.tuning.choices import Candidate
from metaxc.tuning.grids import DEFAULT_COMBINE
from metaxc.tuning.qualities import SLACK


@pytest.fixture(scope="module")
def fitted(world):
    """Models of the world by their options; each is trained once, and no test changes it."""
    models = {}

    def fit(**options):
        config = IreneConfig(encoder="pretrained", **options)
        name = config.model_dump_json()
        if name not in models:
            models[name] = Irene(config, encoder=world.encoder).fit(world.dataset)
        return models[name]

    return fit


@pytest.mark.parametrize(
    "generator", ["auto", "combine", "gated", "transformer", "post_norm", "sum", "weighted_sum"]
)
def test_every_generator_finds_the_novel_items(world, fitted, generator):
    model = fitted(generator=generator)
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 85  # the embedding alone: under 20
    assert model.generator.kind == generator or generator == "auto"


@pytest.mark.parametrize("classifiers", ["ridge", "centroid", "one_vs_all"])
def test_every_kind_of_classifier_finds_the_novel_items(world, fitted, classifiers):
    model = fitted(classifiers=classifiers)
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 95
    assert found["generalized"]["R@10"] > 95


@pytest.mark.parametrize("encoder", ["static", "adapted"])
def test_from_texts_to_novel_items(shop, encoder, tmp_path):
    """Food queries click animal items: no pretrained encoder knows which, the clicks do."""
    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)
    config = IreneConfig(encoder=encoder, adapter={"epochs": 60, "batch": 64, "learning_rate": 0.01})
    model = Irene(config).fit(dataset)
    found = evaluate(model_search(model, dataset), dataset, intervals=False)
    assert found["zero_shot"]["R@1"] > 60  # by chance: one in eight
    curve = model.about["curves"]["encoder"]
    assert curve["loss"][-1] < curve["loss"][0] / 2
    assert len(curve["step"]) == len(curve["loss"]) <= 100
    model.save(tmp_path / "m")
    again = type(model).load(tmp_path / "m")
    assert again.search(["fresh bread"], k=3) == model.search(["fresh bread"], k=3)


def test_the_backend_is_among_the_inputs_and_static_towers_need_none(shop, tiny):
    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)

    def irene(**settings):
        return Irene(IreneConfig(base=str(tiny), **settings))

    auto = irene(backend="auto")
    assert auto.base_encoder(dataset).backend == "onnx-int8"
    inputs = {irene(backend=name).inputs(dataset) for name in ("torch", "onnx", "onnx-int8")}
    assert len(inputs) == 3
    assert irene(encoder="static", backend="auto").base_encoder(dataset).backend == "torch"


def test_the_digest_of_the_inputs_encodes_nothing(shop, tiny, monkeypatch):
    """It neither chooses a backend nor encodes a sample of the texts."""
    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)

    def fail(*args, **kwargs):
        raise AssertionError("encoded")

    monkeypatch.setattr(Pretrained, "encode", fail)
    monkeypatch.setattr("metaxc.encoders.pretrained.choose_backend", fail)
    inputs = [Irene(IreneConfig(base=str(tiny), seed=seed)).inputs(dataset) for seed in (0, 0, 1)]
    assert inputs[0] == inputs[1] != inputs[2]


def test_nothing_of_a_novel_item_is_learnt_from(world):
    observed, rows, clicks = training_clicks(world.dataset)
    assert not world.dataset.novel[observed].any()
    expected = world.dataset.train.clicks.toarray()[rows][:, observed]
    np.testing.assert_array_equal(clicks.toarray(), expected)


def test_an_item_without_clicks_is_novel_to_the_model():
    items = {f"i{n}": f"item {n}" for n in range(4)}
    dataset = Dataset.of(items, {"q": "one", "p": "two"}, [("q", "i0"), ("p", "i1"), ("p", "i3")])
    dataset = dataset.with_novel(np.array([False, False, False, True]))
    observed, _, clicks = training_clicks(dataset)
    assert observed.tolist() == [0, 1]
    assert clicks.toarray().tolist() == [[1, 0], [0, 1]]
    lonely = dataset.with_novel(np.array([True, True, False, True]))
    with pytest.raises(DataError, match="No observed item has a click"):
        training_clicks(lonely)


def test_same_seed_same_model_to_the_last_bit(world, fitted, tmp_path):
    config = IreneConfig(encoder="pretrained", generator="transformer")
    fitted(generator="transformer").save(tmp_path / "a")
    Irene(config, encoder=world.encoder).fit(world.dataset).save(tmp_path / "b")
    assert_same(tmp_path / "a", tmp_path / "b")


def test_the_query_expansion_is_saved_with_the_model(world, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "metaxc.tuning.choices.tune_query_expansion", lambda *args: ExpansionConfig(strength=0.5)
    )
    model = Irene(IreneConfig(encoder="pretrained", expansion_queries=300), encoder=world.encoder).fit(
        world.dataset
    )
    assert len(model.expansion) == 300
    asked = world.dataset.test.queries.texts[:5]
    embedded = model.embed_queries(asked)
    assert np.abs(model.encode_queries(asked)[:, :-1] - embedded).max() > 0.01
    assert np.array_equal(model.encode_queries(asked)[:, :-1], model.expansion.expand(embedded))
    model.save(tmp_path / "m")
    again = type(model).load(tmp_path / "m")
    assert again.search(asked) == model.search(asked)
    assert again.fingerprint == model.fingerprint
    without = Irene(IreneConfig(encoder="pretrained", expansion_queries=0), encoder=world.encoder).fit(
        world.dataset
    )
    assert without.expansion is None
    assert without.fingerprint != model.fingerprint


def assert_same(first, second):
    """Two folders hold the same files, byte for byte."""
    names = sorted(file.relative_to(first) for file in first.rglob("*") if file.is_file())
    assert names == sorted(file.relative_to(second) for file in second.rglob("*") if file.is_file())
    _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
    assert (different, missing) == ([], [])


class Marking:
    """An encoding whose embeddings tell: the first coordinate of an item is 1 where the encoder has seen its clicks."""

    def __init__(self, world):
        self.queries = np.asarray(world.encoder.queries)
        self.items = np.asarray(world.encoder.items)

    def learn(self, query_rows, item_rows, clicks, seed):
        return item_rows

    def embed(self, encoder, query_rows):
        items = np.array(self.items)
        items[:, 0] = 0
        items[encoder, 0] = 1
        return self.queries[query_rows], items


@pytest.mark.parametrize("scheme", ["out_of_fold", "observed"])
def test_what_a_generator_learns_from(world, monkeypatch, scheme):
    """Out of fold: items that the encoder has not seen, none of them the judged fold's, no judge's clicks."""
    given = []

    class Spy(ConfiguredParts):
        def train_generator(self, kind, combine, episodes):
            given.append(episodes)
            return super().train_generator(kind, combine, episodes)

    config = IreneConfig(generator="gated", meta_training={"items": scheme}, expansion_queries=0, seed=2)
    observed, rows, clicks = training_clicks(world.dataset)
    folds = Fold.partition(clicks, config.seed, config.folds)
    parts = Spy(config)
    encoding, data = Marking(world), (observed, rows, clicks)
    fitted = [
        fit_fold(parts, encoding, learn_fold_encoder(parts, encoding, fold, *data), fold, *data)
        for fold in folds
    ]
    _, trained = choose_constants(parts, fitted)
    for episodes in given:
        for episode in episodes:
            assert (episode.items[:, 0] == (scheme == "observed")).all()
    if scheme == "observed":
        assert [len(episodes) for episodes in given] == [1, 1, 1]
        assert trained is None
        return
    assert [len(episodes) for episodes in given] == [2, 2, 2, 3]
    assert trained is not None
    folds = Fold.partition(clicks, config.seed, 3)
    for number, (fold, episodes) in enumerate(zip(folds, given, strict=False)):
        others = [other for place, other in enumerate(folds) if place != number]
        for other, episode in zip(others, episodes, strict=True):
            expected = clicks.toarray()[:, other.pseudo_novel]
            expected[fold.held] = 0
            np.testing.assert_array_equal(episode.clicks.toarray(), expected)
    np.testing.assert_array_equal(given[3][1].clicks.toarray(), clicks.toarray()[:, folds[1].pseudo_novel])


def test_auto_takes_the_gate_only_where_it_is_shown_to_help():
    def candidate(kind, zero_shot, generalized):
        mixed = MixedQuality(generalized, generalized, 0, 0, 0, np.zeros(7), np.zeros(7, np.int64))
        choice = CalibrationChoice(Setting(Calibration(), 1.0), mixed, generalized, mixed, [])
        return Candidate(kind, DEFAULT_COMBINE, [], choice, Quality(zero_shot, zero_shot))

    combine = candidate("combine", 50, 40)
    assert candidate("gated", 50 + 2 * SLACK, 40).beats(combine)
    assert candidate("gated", 50 + 2 * SLACK, 40 - SLACK / 2).beats(combine)
    assert not candidate("gated", 50 + SLACK / 2, 45).beats(combine)
    assert not candidate("gated", 60, 40 - 2 * SLACK).beats(combine)


def test_auto_keeps_what_it_chose_and_what_it_chose_against(world, monkeypatch):
    for wins in (True, False):
        monkeypatch.setattr(Candidate, "beats", lambda self, other, wins=wins: wins)
        model = Irene(IreneConfig(encoder="pretrained", generator="auto"), encoder=world.encoder).fit(
            world.dataset
        )
        assert (
            model.generator.kind == model.about["constants"]["generator"] == ("gated" if wins else "combine")
        )
        assert model.neighbours == model.about["constants"]["neighbours"]
        assert set(model.about["compared"]) == {"combine", "gated"}
        assert ("generator" in model.about["curves"]) is wins


def test_one_fold_is_not_enough_to_train_and_judge_a_gate(world):
    config = IreneConfig(encoder="pretrained", generator="auto", folds=1)
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    assert set(model.about["compared"]) == {"combine"}
    assert model.generator.kind == "combine"


@pytest.mark.parametrize(
    "ablation", [{"meta_training": {"include_self": True}}, {"training": {"train_classifiers": True}}]
)
def test_ablations_of_observed_items_say_so(ablation):
    with pytest.raises(ValueError, match="to 'observed' too"):
        IreneConfig(generator="transformer", **ablation)
    observed = {"items": "observed", **ablation.get("meta_training", {})}
    IreneConfig(generator="transformer", **{**ablation, "meta_training": observed})


class Killed(BaseException):
    pass


@pytest.fixture(scope="module", params=["out_of_fold", "observed"])
def scheme(request):
    return request.param


@pytest.fixture(scope="module")
def whole(world, scheme, tmp_path_factory):
    """A configuration, and the folder of its model, trained by a run that nothing stops."""
    config = IreneConfig(
        encoder="pretrained", generator="transformer", meta_training={"items": scheme}, folds=2
    )
    folder = tmp_path_factory.mktemp("whole")
    model = Irene(config, encoder=world.encoder).fit(world.dataset, stages=folder / "whole.stages")
    model.save(folder / "whole")
    return config, folder / "whole"


@pytest.mark.parametrize(
    "place",
    [
        "tuning.choices.choose_calibration",
        "irene.model_parts.ridge",
        "irene.model_parts.NearestSelector",
        "irene.model_parts.train_generator",
        "irene.training_run.save_generator",
    ],
)
def test_stopped_inside_any_stage_it_ends_with_the_same_model(
    world, whole, scheme, tmp_path, monkeypatch, place
):
    config, expected = whole
    calls = []

    def dies(*args, **kwargs):
        calls.append(place)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"metaxc.{place}", dies)
        with pytest.raises(Killed):
            Irene(config, encoder=world.encoder).fit(world.dataset, stages=tmp_path / "stages")
    lines = []
    again = Irene(config, encoder=world.encoder).fit(
        world.dataset, stages=tmp_path / "stages", report=lines.append
    )
    again.save(tmp_path / "again")
    assert calls == [place]
    assert_same(expected, tmp_path / "again")
    if (
        place == "irene.training_run.save_generator" and scheme == "observed"
    ):  # out of fold the first stage saves it
        assert sum("reused" in line for line in lines) == 5


@pytest.mark.parametrize("classifiers", ["ridge", "one_vs_all"])
def test_repeated_clicks_are_learnt_from_with_every_part(world, classifiers, tmp_path):
    """Folds, generator and calibration on weighted clicks; metrics stay those of distinct clicks."""
    train = world.dataset.train
    counts = np.random.default_rng(0).integers(1, 50, train.clicks.nnz)
    data = replace(world.dataset, train=replace(train, counts=counts))
    recipe = Irene(
        IreneConfig(encoder="pretrained", classifiers=classifiers, generator="gated"), encoder=world.encoder
    )
    model = recipe.fit(data)
    found = evaluate(model_search(model, data), data, intervals=False)
    assert found["zero_shot"]["P@1"] > 85
    assert found["generalized"]["R@10"] > 90
    weights = np.asarray(training_clicks(data)[2].sum(axis=0))
    np.testing.assert_allclose(model.classifiers.clicks, weights, rtol=1e-5)
    model.save(tmp_path / "model")
    assert Emmett.load(tmp_path / "model").fingerprint == model.fingerprint


def test_items_as_queries_reach_the_folds_and_the_model(monkeypatch):
    """Query i is the text of item i and clicks the other items of its group: its own item is on no validation list."""
    items = {f"i{n}": f"thing {n}" for n in range(1000)}
    clicks = [
        (f"i{n}", f"i{n // 8 * 8 + other}") for n in range(1000) for other in range(8) if n % 8 != other
    ]
    data = replace(Dataset.of(items, items, clicks), exclude_self=True)
    data, _ = split(data, novel=0.1, test=0.1)
    given = []

    def spy(*arguments, **options):
        given.append(arguments[-1])
        return fit_fold(*arguments, **options)

    monkeypatch.setattr("metaxc.irene.constant_choice.fit_fold", spy)
    config = IreneConfig(encoder="static", folds=1, adapter={"epochs": 1, "extent": 1.0})
    model = Irene(config).fit(data)
    observed, queries, _ = training_clicks(data)
    (own,) = given
    expected = {(data.train.queries.texts[row]) for row in queries} & {
        data.items.texts[row] for row in observed
    }
    assert own.nnz == len(expected) > 100
    assert model.exclude_self
    assert "thing 7" not in [hit.text for hit in model.search(["thing 7"], k=1000)[0]]
    assert not set(data.train.queries.texts) & {data.items.texts[row] for row in data.novel_rows}
