import threading

import numpy as np
import pytest

from metaxc.catalog import (
    Catalog,
    CatalogError,
    CatalogSettings,
    ConflictError,
    LockedError,
    NewItem,
    NotFoundError,
)
from metaxc.errors import DataError

NEW = NewItem("new", "i4", ("red", "blue"))


def names(found):
    return [hit.id for hit in found]


def reopened(catalog, model, **how):
    catalog.close()
    return Catalog.open(catalog.folder.path, model, **how)


def test_it_starts_with_the_models_items_and_their_ranking(model, folder):
    with Catalog.create(folder, model) as catalog:
        assert len(catalog) == len(model.items)
        queries = [f"t{number}" for number in range(0, 160, 7)]
        for ours, theirs in zip(catalog.search(queries, 5), model.search(queries, 5), strict=True):
            assert names(ours) == [hit.id for hit in theirs]
            np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5)
        assert catalog.get("i0").state == "observed"
        assert catalog.get("i0").trained
        assert catalog.get("i4").state == "novel"


def test_an_added_item_is_in_the_next_search(catalog, model):
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
def test_what_cannot_be_stored_is_refused(catalog, item):
    with pytest.raises(DataError):
        catalog.add([item])


def test_update_moves_the_item_and_its_tags(catalog):
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


def test_filters_by_tags_and_states(catalog):
    catalog.add([NewItem("a", "i4", ("x", "y")), NewItem("b", "i9", ("x",))])
    assert set(names(catalog.search(["t0"], 9, tags=["x"])[0])) == {"a", "b"}
    assert names(catalog.search(["t0"], 9, tags=["x", "y"])[0]) == ["a"]
    assert names(catalog.search(["t0"], 9, tags=["x"], states=["observed"])[0]) == []
    novel = catalog.search(["t0"], 300, states=["novel"])[0]
    assert {hit.state for hit in novel} == {"novel"}
    assert len(novel) == catalog.about().items["novel"]
    with pytest.raises(DataError):
        catalog.search(["t0"], states=["old"])


def test_lists_go_on_where_they_stopped(catalog):
    seen, after = [], None
    while True:
        page = catalog.list(after=after, limit=30)
        seen += [item.id for item in page.items]
        after = page.next
        if after is None:
            break
    assert len(seen) == len(set(seen)) == len(catalog)
    catalog.add([NEW])
    assert [item.id for item in catalog.list(tags=["red"]).items] == ["new"]
    with pytest.raises(DataError):
        catalog.list(after="no number")


def test_the_first_click_changes_the_neighbours_in_the_next_search(catalog):
    """The item's text is of the first group, the query that clicks it of the second: its neighbours vote it over."""
    catalog.add([NEW])
    before = {neighbour.id for neighbour in catalog.explain("new").explanation.neighbours}
    assert not before & {"i5", "i6", "i7", "i8"}
    [old] = [hit.score for hit in catalog.search(["t4"], 300)[0] if hit.id == "new"]
    click = catalog.click("new", "q20")  # q20 clicks the second group
    assert (click.item, click.state) == ("new", "clicked")
    explained = catalog.explain("new")
    voted = [one for one in explained.explanation.neighbours if one.voter == "q20"]
    assert {one.id for one in voted} & {"i5", "i6", "i7", "i8"}
    assert explained.item.state == "clicked"
    assert explained.current
    assert [(one.query, one.number) for one in explained.clicks] == [("q20", click.number)]
    [new] = [hit.score for hit in catalog.search(["t4"], 300)[0] if hit.id == "new"]
    assert new > old + 0.1


def test_enough_clicks_make_an_observed_item_that_informs_newer_ones(catalog, model):
    catalog.add([NEW])
    base = catalog.about().base
    states = [catalog.click("new", query).state for query in ("q20", "q21", "q22")]
    assert states == ["clicked", "clicked", "observed"]
    assert catalog.about().base == base + 1
    explained = catalog.explain("new")
    assert explained.explanation.neighbours == []
    assert explained.explanation.revealed_share > 0
    assert explained.explanation.text_share + explained.explanation.revealed_share == pytest.approx(100)
    catalog.add([NewItem("younger", "i4")])
    informed = {neighbour.id for neighbour in catalog.explain("younger").explanation.neighbours}
    assert "new" in informed
    with reopened(catalog, model) as again:
        assert again.about().base == base + 1
        assert again.explain("younger").current
        assert {one.id for one in again.explain("younger").explanation.neighbours} == informed


def test_an_observed_item_informs_by_all_its_clicks_and_its_newest_text(catalog, model):
    """As it does after opening again, where everything is made anew from the record."""
    catalog.add([NEW, NewItem("other", "i9")])
    for query in ("q20", "q21", "q22", "q23", "q24"):
        catalog.click("new", query)
        catalog.click("other", query)
    catalog.update("new", text="i14")
    catalog.add([NewItem("younger", "i14"), NewItem("as young", "i9")])
    before = [catalog.explain(name) for name in ("younger", "as young")]
    assert "new" in {one.id for one in before[0].explanation.neighbours}
    assert {one.id: one.text for one in before[0].explanation.neighbours}["new"] == "i14"
    with reopened(catalog, model) as again:
        for name, was in zip(("younger", "as young"), before, strict=True):
            now = again.explain(name)
            assert now.current
            ours, theirs = ({one.id: one.share for one in told.explanation.neighbours} for told in (now, was))
            assert ours == pytest.approx(theirs, abs=1e-3)


def test_the_classifiers_of_others_stay_as_they_were(catalog):
    others = {name: catalog.search(["t8"], 300)[0] for name in ("before",)}
    catalog.add([NEW])
    for query in ("q0", "q1", "q2"):
        catalog.click("new", query)
    after = [hit for hit in catalog.search(["t8"], 300)[0] if hit.id != "new"]
    assert after == others["before"]


def test_every_step_of_a_life_can_be_undone(catalog, model):
    catalog.add([NEW])
    vectors = [catalog.search(["t4"], 300)[0]]
    clicks = []
    for query in ("q20", "q21", "q22"):
        clicks.append(catalog.click("new", query))
        vectors.append(catalog.search(["t4"], 300)[0])
    for number, state in ((2, "clicked"), (1, "clicked"), (0, "novel")):
        item = catalog.undo(clicks[number].number)
        assert (item.state, item.clicks) == (state, number)
        assert catalog.search(["t4"], 300)[0] == vectors[number]
    assert catalog.about().base == len(model.observed)
    with pytest.raises(NotFoundError):
        catalog.undo(clicks[0].number)


def test_several_clicks_at_once_are_the_same_as_one_by_one(catalog, folder, model):
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


def test_a_trained_items_clicks_are_counted_and_leave_it_as_trained(catalog):
    before = catalog.search(["t0"], 300)[0]
    click = catalog.click("i0", "q20")
    assert click.state == "observed"
    assert catalog.get("i0").clicks == 1
    assert catalog.search(["t0"], 300)[0] == before


def test_what_was_written_is_there_after_opening_again(catalog, model):
    catalog.add([NEW])
    catalog.click("new", "q20")
    before = catalog.search(["t0", "t4"], 300), catalog.explain("new"), catalog.about()
    with reopened(catalog, model) as again:
        assert (again.search(["t0", "t4"], 300), again.explain("new"), again.about()) == before


def test_another_model_is_refused_with_both_named(catalog, model, other_model):
    with pytest.raises(CatalogError, match=other_model.fingerprint[:16]) as caught:
        reopened(catalog, other_model)
    assert model.fingerprint[:16] in str(caught.value)
    assert "migrate" in str(caught.value)


def test_a_second_writer_gets_a_clear_error_and_readers_follow(catalog, folder, model):
    with pytest.raises(LockedError, match="Another process writes"):
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


def test_searches_go_on_while_items_come_and_go(catalog):
    """Each search sees an item whole or not at all, in several threads."""
    stop, wrong = threading.Event(), []

    def search():
        while not stop.is_set():
            found = catalog.search(["t0"], 5)[0]
            if len(found) != 5 or [hit.score for hit in found] != sorted(
                (h.score for h in found), reverse=True
            ):
                wrong.append(found)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        catalog.add([NEW])
        catalog.click("new", "q20")
        catalog.delete(["new"])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_catalog_says_so(catalog):
    catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        catalog.search(["t0"])


def test_not_a_catalog(tmp_path, model):
    with pytest.raises(CatalogError, match="Not a catalog"):
        Catalog.open(tmp_path, model)


def test_a_catalog_is_not_made_twice(catalog, folder, model):
    catalog.close()
    with pytest.raises(CatalogError, match="already there"):
        Catalog.create(folder, model)


def test_following_a_write_does_not_read_what_was_there_before(catalog):
    """In steps of SQLite's machine: a look at each item takes three and more."""
    steps = []
    catalog.store._reader.set_progress_handler(lambda: steps.append(1) and 0, 1)
    catalog.add([NEW])
    catalog.search(["t0"], 5)
    catalog.store._reader.set_progress_handler(None, 1)
    assert 0 < len(steps) < 2 * len(catalog)


def test_a_search_does_not_wait_until_a_grown_base_is_made(catalog, monkeypatch):
    catalog.add([NEW])
    base, life = catalog.about().base, catalog._followed.life
    entered, go_on, inform = threading.Event(), threading.Event(), life.inform

    def slow(informers, anew):
        entered.set()
        assert go_on.wait(30)
        inform(informers, anew)

    monkeypatch.setattr(life, "inform", slow)
    clicking = threading.Thread(target=catalog.clicks, args=([("new", f"t{place}") for place in range(3)],))
    clicking.start()
    assert entered.wait(30)
    found = [hit.state for hit in catalog.search(["t0"], 300)[0] if hit.id == "new"]
    waited = life.pipeline is life.trained.pipeline
    go_on.set()
    clicking.join()
    assert found == ["observed"]
    assert waited
    assert catalog.about().base == base + 1
