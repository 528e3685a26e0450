"""A model is not evaluated on what it was trained on: the figures would be too high, and nobody would notice."""

from dataclasses import replace

import numpy as np
import pytest

from metaxc.data import ClickLog, Dataset, Texts, split
from metaxc.emmett import Emmett
from metaxc.errors import DataError
from metaxc.evaluation import (
    OverlapError,
    evaluate,
    evaluate_exposures,
    evaluate_model,
    find_overlap,
    model_search,
)
from metaxc.irene import Irene, IreneConfig

CONFIG = IreneConfig(encoder="pretrained", folds=0, expansion_queries=0)


@pytest.fixture(scope="module")
def model(world):
    return Irene(CONFIG, encoder=world.encoder).fit(world.dataset)


def without_test_part(dataset):
    """The training part as a folder before the split would have it: no test part and no novel items."""
    return replace(dataset, test=None, novel=None)


def test_the_data_set_that_was_trained_on_is_fair(world, model):
    overlap = find_overlap(model, world.dataset)
    assert overlap.is_fair
    assert (overlap.queries, overlap.clicks, overlap.novel_items, overlap.repeated_clicks) == (0, 0, 0, 0)
    result = evaluate_model(model, world.dataset, intervals=False)
    assert result.overlap == overlap
    assert result.to_dict()["overlap"]["fair"]
    assert (
        result.metrics == evaluate(model_search(model, world.dataset), world.dataset, intervals=False).metrics
    )


def test_another_split_of_the_same_data_is_refused(world, model):
    """Training on a split folder and evaluating the unsplit one: a new split is made of what was trained on."""
    other, _ = split(without_test_part(world.dataset), novel=0.2, test=0.15, seed=1)
    overlap = find_overlap(model, other)
    observed = {model.items.ids[row] for row in model.observed}
    assert overlap.novel_items == sum(other.items.ids[row] in observed for row in other.novel_rows)
    assert overlap.queries == len(other.test), "all of them were training queries"
    assert 0 < overlap.clicks < overlap.test_clicks, (
        "of clicks on items that were novel in training it knows nothing"
    )
    for evaluation in (
        lambda: evaluate_model(model, other),
        lambda: evaluate(model_search(model, other), other),
        lambda: evaluate_exposures(model, other, [0.0]),
        lambda: model.evaluate(other),
    ):
        with pytest.raises(OverlapError, match=r"trained on \d+ of \d+ test queries.* novel items") as error:
            evaluation()
        assert "allow-overlap" in str(error.value)
    marked = model.evaluate(other, allow_overlap=True, intervals=False)
    assert marked.to_dict()["overlap"]["fair"] is False
    assert "trained on" in marked.to_dict()["overlap"]["note"]


def test_only_one_test_query_or_one_novel_item_is_refused_too(world, model):
    data = world.dataset
    novel = data.novel_mask.copy()
    novel[0] = True  # an item that the model has a classifier of
    assert find_overlap(model, data.with_novel(novel)).novel_items == 1
    with pytest.raises(OverlapError, match="1 of 41 novel items"):
        model_search(model, data.with_novel(novel))
    # One training query in another folder's test part, under another id and in another spelling; not in its training.
    kept = data.train.take(np.arange(1, len(data.train)))
    test = data.test.take(np.arange(2))
    texts = Texts(["new1", "new2"], [f" {data.train.queries.texts[0].upper()}  ", "t1"])
    moved = replace(data, train=kept, test=ClickLog(texts, test.clicks))
    overlap = find_overlap(model, moved)
    assert (overlap.queries, overlap.novel_items) == (1, 0)
    with pytest.raises(OverlapError, match="1 of 2 test queries"):
        model_search(model, moved)


def test_a_test_part_that_copies_the_training_part_is_refused(world, model):
    copied = replace(world.dataset, test=world.dataset.train)
    assert find_overlap(model, copied).queries == 0
    assert find_overlap(model, copied).repeated_clicks > 0.5 * world.dataset.train.clicks.nnz
    with pytest.raises(OverlapError, match="training part repeats"):
        model_search(model, copied)


def test_queries_that_are_asked_again_later_are_fair():
    """A log that is cut at a date has queries, and clicks, on both sides."""
    items = {f"i{number}": f"item {number}" for number in range(6)}
    queries = {"q": "shoes", "r": "boots"}
    events = [("q", "i0"), ("q", "i1"), ("r", "i2"), ("q", "i0"), ("r", "i5")]
    log = Dataset.of(items, queries, events, times=[1, 2, 3, 10, 11])
    data, _ = split(log, by="time", novel_ids=["i5"], cut_at=10)
    from metaxc.encoders import Vectors

    vectors = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    encoder = Vectors(list(queries.values()), vectors[:2], list(items.values()), vectors[2:])
    model = Irene(CONFIG, encoder=encoder).fit(data)
    assert model.trained_on.until == 3
    overlap = find_overlap(model, data)
    assert overlap.is_fair
    assert overlap.repeated_clicks == 0
    # The same clicks without times: nothing tells that they came later. Half of them are repeated, which is noted.
    timeless = replace(
        data,
        train=ClickLog(data.train.queries, data.train.clicks),
        test=ClickLog(data.test.queries, data.test.clicks),
    )
    overlap = find_overlap(model, timeless)
    assert (overlap.repeated_clicks, overlap.test_clicks, overlap.is_fair) == (1, 2, True)
    assert "a little too high" in overlap.describe()


def test_the_record_is_saved_and_models_without_one_still_open(world, model, tmp_path):
    model.save(tmp_path / "new")
    loaded = Emmett.load(tmp_path / "new")
    np.testing.assert_array_equal(loaded.trained_on.queries, model.trained_on.queries)
    np.testing.assert_array_equal(loaded.trained_on.clicks, model.trained_on.clicks)
    assert len(model.trained_on.queries) == 800
    assert len(model.trained_on.clicks) == 800 * 4
    model_without = Emmett.load(tmp_path / "new")
    model_without.trained_on = None
    model_without.save(tmp_path / "old")
    old = Emmett.load(tmp_path / "old")
    assert old.trained_on is None
    assert old.fingerprint == model.fingerprint
    overlap = find_overlap(old, world.dataset)
    assert overlap.is_fair
    assert "no record" in overlap.describe()
    other, _ = split(without_test_part(world.dataset), novel=0.2, test=0.15, seed=1)
    with pytest.raises(OverlapError, match="novel items"):
        model_search(old, other)


def test_a_damaged_record_is_an_error(world, model, tmp_path):
    from metaxc.artifacts import save_arrays, write_manifest

    model.save(tmp_path / "m")
    arrays = {"queries": np.zeros(3, np.float32), "clicks": np.zeros(3, np.int64), "until": np.zeros(0)}
    save_arrays(tmp_path / "m" / "trained_on.safetensors", arrays)
    write_manifest(tmp_path / "m", "emmett")
    with pytest.raises(Exception, match="wrong shape or type") as error:
        Emmett.load(tmp_path / "m")
    assert not isinstance(error.value, DataError)
