"""A catalog of the first format, whose vectors have no last coordinate, opens with its model and takes writes."""

import logging
import sqlite3
import tarfile
from pathlib import Path

import numpy as np
import pytest

from metaxc.catalog import Catalog, NewItem, migrate
from metaxc.emmett import Emmett

GOLDEN = Path(__file__).parents[1] / "golden"
QUERIES = [f"t{number}" for number in range(0, 160, 7)]


@pytest.fixture
def old(tmp_path):
    """The folder of the old catalog, and its model, whose novelty ends with the first click."""
    for name in ("old_model", "old_catalog"):
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
    return tmp_path / "old_catalog", Emmett.load(tmp_path / "old_model")


def vector_lengths(folder):
    """Entries of the stored vectors, by id."""
    with sqlite3.connect(folder / "gen-1" / "catalog.sqlite") as connection:
        return {id: len(vector) // 4 for id, vector in connection.execute("SELECT id, vector FROM items")}


def test_it_ranks_as_its_model_does_and_tells_novel_items_apart(old):
    folder, model = old
    assert set(vector_lengths(folder).values()) == {96}
    with Catalog.open(folder, model, read_only=True) as catalog:
        among = np.array([id in catalog for id in model.items.ids])
        for exposure in (0.0, 0.4):
            ours = catalog.search(QUERIES, 10, exposure=exposure)
            theirs = model.search(QUERIES, 10, among, exposure=exposure)
            assert [[hit.id for hit in line] for line in ours] == [
                [hit.id for hit in line] for line in theirs
            ]
        [plain], [raised] = (catalog.search(["t0"], 300, exposure=exposure) for exposure in (0.0, 0.4))
        before = {hit.id: hit.score for hit in plain}
        for hit in raised:
            gained = 0.4 if hit.state == "novel" else 0.0
            assert hit.score == pytest.approx(before[hit.id] + gained, abs=1e-5)
        assert catalog.explain("i14").current  # novel
        assert catalog.explain("i0").current  # trained
        assert catalog.preview("i4").reached


def test_its_index_is_built_anew_once_and_new_rows_have_the_last_coordinate(old, caplog):
    folder, model = old
    with caplog.at_level(logging.WARNING), Catalog.open(folder, model) as catalog:
        assert "rebuilding" in caplog.text
        catalog.add([NewItem("new", "i4")])
        catalog.click("new", "q20")
        catalog.click("i14", "q40")
        assert catalog.get("i1").fields == {}
        assert [hit.id for hit in catalog.search(["t0"], 300, states=["novel"])[0]]
        catalog.update("i1", tags=["red"], fields={"price": 19.9})
        before = catalog.search(QUERIES, 300), catalog.explain("i14")
        assert before[1].current
        assert catalog.export(folder.parent / "out", "npy") == len(catalog)
        assert np.load(folder.parent / "out" / "vectors.npy").shape == (len(catalog), 97)
    lengths = vector_lengths(folder)
    assert {lengths[id] for id in ("new", "i14", "i1")} == {97}
    assert lengths["i2"] == 96
    caplog.clear()
    with Catalog.open(folder, model) as again:
        assert again.store.metadata["format"] == "4"
        again.store.verify()
        assert (again.search(QUERIES, 300), again.explain("i14")) == before
        assert again.get("i1").fields == {"price": 19.9}
        assert [hit.id for hit in again.search(["t0"], 300, filter={"field": "price", "gt": 19})[0]] == ["i1"]
    assert caplog.text == ""


def test_it_is_migrated_to_a_model_with_novelty(old, other_model):
    folder, _ = old
    assert migrate(folder, other_model)
    with Catalog.open(folder, other_model) as catalog:
        assert catalog.explain("i14").current
        assert catalog.store.exposure == other_model.calibration.exposure
