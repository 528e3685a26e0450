from dataclasses import replace

import numpy as np
import pytest
from world_model import build_model

from metaxc.catalog import (
    Catalog,
    CatalogError,
    CatalogSettings,
    ConflictError,
    LockedError,
    NewItem,
    NotFoundError,
)
from metaxc.emmett import Emmett
from metaxc.errors import DataError

NEW = NewItem("new", "i4", ("red", "blue"))


def names(found):
    return [hit.id for hit in found]


def reopened(catalog, model, **how):
    catalog.close()
    return Catalog.open(catalog.folder.path, model, **how)


def test_a_new_catalog_has_the_items_and_the_ranking_of_its_model(model, folder):
    with Catalog.create(folder, model) as catalog:
        assert len(catalog) == len(model.items)
        queries = [f"t{number}" for number in range(0, 160, 7)]
        for ours, theirs in zip(catalog.search(queries, 5), model.search(queries, 5), strict=True):
            assert names(ours) == [hit.id for hit in theirs]
            np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5)
        assert catalog.get("i0").state == "observed"
        assert catalog.get("i0").trained
        assert catalog.get("i4").state == "novel"


def test_the_next_search_finds_an_added_item(catalog, model):
    assert "new" not in names(catalog.search(["t0"], 5)[0])
    added = catalog.add([NEW])
    assert (added.added, added.unchanged) == (1, 0)
    assert "new" in names(catalog.search(["t0"], 5)[0])
    assert "new" in catalog
    item = catalog.get("new")
    assert (item.text, item.tags, item.state, item.clicks) == ("i4", ("blue", "red"), "novel", 0)
    np.testing.assert_allclose(catalog.represent(["i4"]), model.represent(["i4"]), atol=1e-5)


def test_adding_again_changes_nothing_and_other_content_is_a_conflict(catalog):
    catalog.add([NEW])
    before = catalog.about().sequence
    again = catalog.add([NEW, NewItem("new", "i4", ("blue", "red", "red"))])
    assert (again.added, again.unchanged) == (0, 2)
    assert catalog.about().sequence == before
    with pytest.raises(ConflictError, match="new"):
        catalog.add([NewItem("other", "i9"), NewItem("new", "i9")])
    assert "other" not in catalog


def test_a_batch_is_all_or_nothing(catalog):
    with pytest.raises(DataError):
        catalog.add([NewItem("one", "i4"), NewItem("two", "  ")])
    assert "one" not in catalog
    with pytest.raises(NotFoundError, match="nobody"):
        catalog.delete(["i0", "nobody"])
    assert "i0" in catalog
    with pytest.raises(NotFoundError, match="nobody"):
        catalog.clicks([("i3", "t0"), ("nobody", "t0")])
    assert catalog.get("i3").clicks == 0


@pytest.mark.parametrize(
    "item",
    [
        NewItem("", "text"),
        NewItem("a\nb", "text"),
        NewItem("a" * 201, "text"),
        NewItem("a", "t\0"),
        NewItem("a", "\ud800"),
    ],
)
def test_invalid_items_are_refused(catalog, item):
    with pytest.raises(DataError):
        catalog.add([item])


def test_an_update_changes_the_vector_and_the_tags(catalog):
    catalog.add([NEW])
    catalog.update("new", tags=["green"])
    assert names(catalog.search(["t0"], 5, tags=["green"])[0]) == ["new"]
    assert catalog.search(["t0"], 5, tags=["red"]) == [[]]
    catalog.update("new", text="i9")
    assert "new" not in names(catalog.search(["t0"], 5)[0])
    assert "new" in names(catalog.search(["t4"], 5)[0])  # the next group's queries
    before = catalog.about().sequence
    assert catalog.update("new", text="i9").text == "i9"
    assert catalog.about().sequence == before


def test_a_deleted_item_never_comes_back(catalog, model):
    catalog.add([NEW])
    catalog.click("new", "t0")
    assert catalog.delete(["new"]) == 1
    assert "new" not in names(catalog.search(["t0"], 300)[0])
    with pytest.raises(NotFoundError):
        catalog.get("new")
    with reopened(catalog, model) as again:
        assert "new" not in names(again.search(["t0"], 300)[0])
        again.add([NEW])
        assert again.get("new").clicks == 0


def test_several_clicks_in_one_call_equal_clicks_one_by_one(catalog, folder, model):
    catalog.add([NEW, NewItem("other", "i9")])
    together = catalog.clicks([("new", "q20"), ("other", "q0"), ("new", "q21")])
    assert [click.state for click in together] == ["clicked"] * 3
    found = catalog.search(["t0", "t4"], 300)
    with Catalog.create(
        folder.with_name("second"), model, settings=CatalogSettings(observe_after=3)
    ) as second:
        second.delete(["i4", "i9"])
        second.add([NEW, NewItem("other", "i9")])
        for item, query in (("new", "q20"), ("other", "q0"), ("new", "q21")):
            second.click(item, query)
        for ours, theirs in zip(found, second.search(["t0", "t4"], 300), strict=True):
            assert names(ours) == names(theirs)
            np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5)


def test_what_was_written_is_there_after_reopening(catalog, model):
    catalog.add([NEW])
    catalog.click("new", "q20")
    before = catalog.search(["t0", "t4"], 300), catalog.explain("new"), catalog.about()
    with reopened(catalog, model) as again:
        assert (again.search(["t0", "t4"], 300), again.explain("new"), again.about()) == before


def test_another_model_is_refused_and_both_fingerprints_are_named(catalog, model, other_model):
    with pytest.raises(CatalogError, match=other_model.fingerprint[:16]) as caught:
        reopened(catalog, other_model)
    assert model.fingerprint[:16] in str(caught.value)
    assert "migrate" in str(caught.value)


def test_a_second_writer_is_refused_and_readers_see_each_commit(catalog, folder, model):
    with pytest.raises(LockedError, match="open for writing"):
        Catalog.open(folder, model)
    with Catalog.open(folder, model, read_only=True) as reader:
        assert "new" not in names(reader.search(["t0"], 5)[0])
        catalog.add([NEW])
        assert "new" in names(reader.search(["t0"], 5)[0])
        for query in ("q20", "q21", "q22"):
            catalog.click("new", query)
        assert reader.explain("new") == catalog.explain("new")
        assert reader.about().base == catalog.about().base
        catalog.delete(["new"])
        assert "new" not in names(reader.search(["t0"], 300)[0])
        with pytest.raises(CatalogError, match="reading only"):
            reader.add([NEW])


def test_a_folder_without_a_catalog_is_refused(tmp_path, model):
    with pytest.raises(CatalogError, match="Not a catalog"):
        Catalog.open(tmp_path, model)


def test_creating_over_an_existing_catalog_is_refused(catalog, folder, model):
    catalog.close()
    with pytest.raises(CatalogError, match="already holds a catalog"):
        Catalog.create(folder, model)


def test_tags_of_the_data_set_are_in_the_model_and_filter_the_catalog(world, tmp_path):
    trained = build_model(world, neighbours=4)
    items = trained.items
    tags = [("red",) if row % 2 else () for row in range(len(items))]
    trained.items = replace(items, tags=tags)
    trained.save(tmp_path / "model")
    loaded = Emmett.load(tmp_path / "model")
    assert loaded.items.tags == tags
    with Catalog.create(tmp_path / "catalog", loaded) as created:
        found = created.search(["t0"], k=5, tags=["red"])[0]
        assert [int(hit.id[1:]) % 2 for hit in found] == [1] * 5
        created.store.verify()
