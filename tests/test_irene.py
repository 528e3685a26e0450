import filecmp

import numpy as np
import pytest

from metaxc.data import Dataset, split
from metaxc.data.clicks import training_clicks
from metaxc.errors import DataError
from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene, IreneConfig
from metaxc.memory import Recall


@pytest.mark.parametrize("generator", ["combine", "transformer", "post_norm", "sum", "weighted_sum"])
def test_every_generator_finds_the_novel_items(world, generator):
    config = IreneConfig(encoder="pretrained", generator=generator)
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 85  # the embedding alone: under 20
    assert model.generator.kind == generator


@pytest.mark.parametrize("classifiers", ["ridge", "centroid", "one_vs_all"])
def test_every_kind_of_classifier_finds_the_novel_items(world, classifiers):
    config = IreneConfig(encoder="pretrained", classifiers=classifiers)
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    found = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert found["zero_shot"]["P@1"] > 95
    assert found["generalized"]["R@10"] > 95


def test_the_papers_choices():
    config = Irene.paper().config
    assert (config.neighbours, config.depth, config.generator) == (3, 1, "post_norm")
    assert (config.encoder, config.classifiers) == ("pretrained", "one_vs_all")


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
    assert auto.base_for(dataset).backend == "onnx-int8"
    assert auto.base_for(dataset) is auto.base_for(dataset)
    inputs = {irene(backend=name).inputs(dataset) for name in ("torch", "onnx", "onnx-int8")}
    assert len(inputs) == 3
    assert irene(encoder="static", backend="auto").base_for(dataset).backend == "torch"


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


def test_same_seed_same_model_to_the_last_bit(world, tmp_path):
    config = IreneConfig(encoder="pretrained", generator="transformer")
    for name in ("a", "b"):
        Irene(config, encoder=world.encoder).fit(world.dataset).save(tmp_path / name)
    assert_same(tmp_path / "a", tmp_path / "b")


def test_queries_borrow_from_a_memory_that_is_saved_with_the_model(world, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.irene.choosing.choose_recall", lambda *args: Recall(strength=0.5))
    model = Irene(IreneConfig(encoder="pretrained", memory=300), encoder=world.encoder).fit(world.dataset)
    assert len(model.memory) == 300
    asked = world.dataset.test.queries.texts[:5]
    embedded = model.embed_queries(asked)
    assert np.abs(model.encode_queries(asked) - embedded).max() > 0.01
    assert np.array_equal(model.encode_queries(asked), model.memory.expand(embedded))
    model.save(tmp_path / "m")
    again = type(model).load(tmp_path / "m")
    assert again.search(asked) == model.search(asked)
    assert again.fingerprint == model.fingerprint
    without = Irene(IreneConfig(encoder="pretrained", memory=0), encoder=world.encoder).fit(world.dataset)
    assert without.memory is None
    assert without.fingerprint != model.fingerprint


def assert_same(first, second):
    """Two folders hold the same files, byte for byte."""
    names = sorted(file.relative_to(first) for file in first.rglob("*") if file.is_file())
    assert names == sorted(file.relative_to(second) for file in second.rglob("*") if file.is_file())
    _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
    assert (different, missing) == ([], [])


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "place",
    [
        "choosing.choose_calibration",
        "parts.ridge",
        "recipe._save_neighbours",
        "parts.train_generator",
        "recipe.save_generator",
    ],
)
def test_stopped_inside_any_stage_it_ends_with_the_same_model(world, tmp_path, monkeypatch, place):
    config = IreneConfig(encoder="pretrained", generator="transformer")
    whole = Irene(config, encoder=world.encoder).fit(world.dataset, stages=tmp_path / "whole.stages")
    whole.save(tmp_path / "whole")
    calls = []

    def dies(*args, **kwargs):
        calls.append(place)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"metaxc.irene.{place}", dies)
        with pytest.raises(Killed):
            Irene(config, encoder=world.encoder).fit(world.dataset, stages=tmp_path / "stages")
    lines = []
    again = Irene(config, encoder=world.encoder).fit(
        world.dataset, stages=tmp_path / "stages", report=lines.append
    )
    again.save(tmp_path / "again")
    assert calls == [place]
    assert_same(tmp_path / "whole", tmp_path / "again")
    if place == "recipe.save_generator":
        assert sum("already there" in line for line in lines) == 5
