import pytest

from metaxc.catalog import Catalog, NewItem, NotFoundError

NEW = NewItem("new", "i4", ("red", "blue"))


def reopened(catalog, model, **how):
    catalog.close()
    return Catalog.open(catalog.folder.path, model, **how)


def test_the_first_click_changes_the_neighbours_in_the_next_search(catalog):
    """The item's text belongs to the first group, the clicking query to the second, which it votes for."""
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


def test_after_enough_clicks_an_item_is_observed_and_informs_newer_items(catalog, model):
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


def test_an_observed_item_informs_others_by_all_its_clicks_and_its_newest_text(catalog, model):
    """It informs them the same way after reopening, where everything is computed from the store."""
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


def test_clicks_on_one_item_leave_the_scores_of_others_unchanged(catalog):
    others = {name: catalog.search(["t8"], 300)[0] for name in ("before",)}
    catalog.add([NEW])
    for query in ("q0", "q1", "q2"):
        catalog.click("new", query)
    after = [hit for hit in catalog.search(["t8"], 300)[0] if hit.id != "new"]
    assert after == others["before"]


def test_every_click_can_be_undone(catalog, model):
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


def test_clicks_on_a_trained_item_are_counted_and_leave_its_vector_unchanged(catalog):
    before = catalog.search(["t0"], 300)[0]
    click = catalog.click("i0", "q20")
    assert click.state == "observed"
    assert catalog.get("i0").clicks == 1
    assert catalog.search(["t0"], 300)[0] == before
