"""A switch to a model with the same item side computes no item again: the rows stay as they are, to the last bit."""

import random
from contextlib import suppress

import numpy as np
import pytest
from older_formats import make_older
from world_model import build_model

from metaxc.catalog import Catalog, NewItem, migrate
from metaxc.catalog.generation_record import EARLIER_MODELS, ITEM_SIDE, earlier_models, read_previous
from metaxc.catalog.lifecycle import Lifecycle
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.emmett import Calibration
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.errors import MetaxcError

ROWS = (
    "SELECT key, id, text, tags, clicks, state, trained, created, updated, vector, embedding, classifier, fields "
    "FROM items ORDER BY key",
    "SELECT number, key, query, at, embedding FROM clicks ORDER BY number",
    "SELECT key, clicks, total FROM click_sums ORDER BY key",
    "SELECT number, text FROM queries ORDER BY number",
)


@pytest.fixture(scope="session")
def kept_model(world, model):
    """A model with the item side of `model` and another query side."""
    calibration = Calibration(novelty_prior=3.0, novel_scale=1.2, exposure=0.9)
    return build_model(
        world, neighbours=4, calibration=calibration, about={"keeps_items": {"models": [model.fingerprint]}}
    )


def rows(store):
    return [store.fetch_all(statement) for statement in ROWS]


def live(catalog, seed, steps):
    """Random writes."""
    drawn = random.Random(seed)
    for step in range(steps):
        id = drawn.choice(["a", "b", "c", "i0", "i7", "i23", "i24"])
        with suppress(MetaxcError):
            kind = drawn.choice(["add", "add", "click", "click", "click", "update", "delete", "undo"])
            if kind == "add":
                catalog.add([NewItem(id, drawn.choice(["i4", "i9"]), ("red",), {"price": step})])
            elif kind == "click":
                catalog.clicks([(id, f"q{drawn.randrange(40)}") for _ in range(drawn.choice([1, 3, 70]))])
            elif kind == "update":
                text = drawn.choice(["i4", "i9", "i14"])
                catalog.update(id, text=text, add_tags=[f"tag{step}"], set_fields={"step": step})
            elif kind == "delete":
                catalog.delete([id])
            else:
                catalog.undo(drawn.randrange(1, 20))


def finish(switch, catalog):
    new = switch.finish()
    catalog.close()
    switch.remove_unused()
    return new


def test_nothing_is_encoded_or_computed(catalog, world, model, kept_model, monkeypatch):
    live(catalog, 1, 30)
    before, digests = rows(catalog.store), catalog.store.fetch_all("SELECT key, digest, sequence FROM items")
    asked = []

    def refuse(*_):
        raise AssertionError("an item was computed")

    encode = type(world.encoder).encode_queries

    def encode_queries(self, texts):
        asked.extend(texts)
        return encode(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(type(world.encoder), "encode_items", refuse)
        patched.setattr(Lifecycle, "stages", refuse)
        patched.setattr(type(world.encoder), "encode_queries", encode_queries)
        switch = ModelSwitch(catalog, kept_model)
        switch.build()
        new = finish(switch, catalog)
    with new:
        assert rows(new.store) == before
        assert sorted(new.store.fetch_all("SELECT key, digest, sequence FROM items")) == sorted(digests)
        assert asked == []  # the encoder is the same, so the known queries keep their embeddings
        new.store.verify()
        expected = kept_model.encode_queries(["t0"])
        np.testing.assert_array_equal(new.encode(["t0"]), expected)
        assert expected[0, -1] == np.float32(0.9)
        keys = {hit.id: hit.score for hit in new.search(["t0"], 300)[0]}
        assert keys.keys() == {item.id for item in new.list(limit=1000).items}


@pytest.mark.parametrize("seed", range(4))
def test_writes_during_the_switch_are_copied_as_they_stand(folder, catalog, kept_model, model, seed):
    live(catalog, seed, 15)
    switch = ModelSwitch(catalog, kept_model)
    live(catalog, seed + 100, 10)
    switch.build()
    live(catalog, seed + 200, 10)
    with catalog.writes_held():
        new = switch.finish()
    before = rows(catalog.store)
    catalog.close()
    with new:
        assert rows(new.store) == before
        new.store.verify()
        live(new, seed + 300, 10)
        new.add([NewItem("later", "i9")])
        there = {item.id for item in new.list(limit=1000).items}
        assert {hit.id for hit in new.search(["t0"], 300)[0]} == there
        back = ModelSwitch(new, model)
        back.build()
        live(new, seed + 400, 10)
        old = back.finish()
        after = rows(new.store)
        assert rows(old.store) == after
        assert earlier_models(old.store.metadata) == []  # as it was opened; what it is now is on disk
        old.close()
    with Catalog.open(folder, model, read_only=True) as opened:
        assert earlier_models(opened.store.metadata) == [model.fingerprint, kept_model.fingerprint]
        assert {hit.id for hit in opened.search(["t0"], 300)[0]} == {
            item.id for item in opened.list(limit=1000).items
        }


def test_the_previous_model_is_known_and_an_unknown_model_folder_is_not_the_old_one(
    catalog, folder, model, kept_model, other_model, tmp_path
):
    switch = ModelSwitch(catalog, other_model, model_folder=tmp_path / "other")
    switch.build()
    second = finish(switch, catalog)
    switch = ModelSwitch(second, build_with_exposure(other_model, 0.5))
    switch.build()
    third = finish(switch, second)
    with third:
        assert "model folder" not in third.store.metadata
        previous = read_previous(third.store)
        assert previous.model == other_model.fingerprint
        assert previous.folder == str((tmp_path / "other").resolve())
    assert len(list(folder.glob("gen-*"))) == 2


def build_with_exposure(model, exposure):
    from metaxc.emmett import Emmett

    return Emmett(
        model.encoder,
        model.classifiers,
        model.embeddings,
        model.generator,
        model.items,
        model.observed,
        neighbours=model.neighbours,
        calibration=model.calibration.model_copy(update={"exposure": exposure}),
    )


def test_a_copy_that_was_stopped_is_continued(catalog, kept_model, monkeypatch):
    live(catalog, 7, 10)
    first = ModelSwitch(catalog, kept_model)
    first.abandon()
    live(catalog, 8, 10)
    switch = ModelSwitch(catalog, kept_model)
    assert switch._store.folder == first._store.folder
    switch.build()
    new = switch.finish()
    before = rows(catalog.store)
    catalog.close()
    with new:
        assert rows(new.store) == before


def test_a_catalog_of_an_older_version_is_migrated_by_the_models_own_record(
    catalog, folder, kept_model, other_model, model, monkeypatch
):
    live(catalog, 5, 20)
    before = rows(catalog.store)
    with catalog.store.transaction() as transaction:  # as if ITEM_SIDE were not known yet
        del transaction.metadata[ITEM_SIDE]
        transaction.connection.execute("DELETE FROM facts WHERE name = ?", (ITEM_SIDE,))
    catalog.close()

    def refuse(*_):
        raise AssertionError("an item was computed")

    with monkeypatch.context() as patched:
        patched.setattr(Lifecycle, "stages", refuse)
        assert migrate(folder, kept_model)
    with Catalog.open(folder, kept_model) as opened:
        assert rows(opened.store) == before
        assert opened.store.metadata[ITEM_SIDE] == item_fingerprint(model)
        assert opened.store.metadata[EARLIER_MODELS] == model.fingerprint
    assert migrate(folder, other_model)
    with Catalog.open(folder, other_model, read_only=True) as opened:
        assert opened.store.metadata[EARLIER_MODELS] == ""
        assert rows(opened.store)[0] != before[0]


@pytest.mark.parametrize("number", [2, 3])
def test_a_catalog_of_an_older_format_is_copied_and_takes_fields(catalog, folder, kept_model, model, number):
    catalog.add([NewItem("a", "i4", ("red",)), NewItem("b", "i9")])
    catalog.clicks([("a", f"q{n}") for n in range(70)])
    make_older(catalog, number)
    statement = "SELECT key, id, text, tags, clicks, vector, embedding, classifier FROM items ORDER BY key"
    with Catalog.open(folder, model, read_only=True) as opened:
        before = opened.store.fetch_all(statement)
        assert opened.store.metadata["format"] == str(number)
    assert migrate(folder, kept_model)
    with Catalog.open(folder, kept_model) as opened:
        assert opened.store.metadata["format"] == "4"
        assert opened.store.fetch_all(statement) == before
        opened.store.verify()
        opened.update("b", set_fields={"price": 5})
        assert [hit.id for hit in opened.search(["t0"], filter={"field": "price", "eq": 5})[0]] == ["b"]


@pytest.mark.parametrize("number", [2, 3])
def test_writes_to_a_catalog_of_an_older_format_are_copied_during_the_switch(
    catalog, folder, kept_model, model, number
):
    catalog.add([NewItem("a", "i4", ("red",))])
    make_older(catalog, number)
    with Catalog.open(folder, model) as opened:
        switch = ModelSwitch(opened, kept_model)
        with opened.store.read_snapshot() as connection:
            [stored] = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
        assert stored == str(number)  # nothing was written to it yet
        opened.update("a", fields={"price": 7})
        opened.clicks([("a", f"q{n}") for n in range(70)])
        switch.build()
        with opened.writes_held():
            new = switch.finish()
        assert rows(new.store) == rows(opened.store)
        assert new.get("a").fields == {"price": 7}
        new.store.verify()
        new.close()
