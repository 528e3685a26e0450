from dataclasses import replace

import numpy as np
import pytest
from world_model import build_model

from metaxc.catalog import Catalog, CatalogSettings, NewItem, NotFoundError
from metaxc.emmett.scoring import Calibration, weigh_parts

NEW = NewItem("new", "i4", ("red", "blue"))


def reopened(catalog, model, **how):
    catalog.close()
    return Catalog.open(catalog.folder.path, model, **how)


def stored_vector(catalog, id):
    """(dim + 1,) float32, as it stands in the database."""
    return np.frombuffer(catalog.store.fetch_all("SELECT vector FROM items WHERE id = ?", (id,))[0][0], "<f4")


def vectors_by_clicks(folder, model, observe_after, most=5):
    """(most + 1, dim + 1): the vectors of an item after 0, 1, … clicks of one query."""
    settings = CatalogSettings(observe_after=observe_after)
    with Catalog.create(folder / str(observe_after), model, settings=settings) as catalog:
        catalog.add([NEW])
        vectors = [stored_vector(catalog, "new")]
        for _ in range(most):
            catalog.click("new", "q20")
            vectors.append(stored_vector(catalog, "new"))
        return np.stack(vectors)


@pytest.mark.parametrize("observe_after", [1, 2, 3, 4])
def test_no_click_moves_an_item_further_than_the_formula_allows(folder, model, observe_after):
    """u(n) = s·[z + r·(G − z)] + own·t·w, with z and w of length 1. The first click may exchange the neighbours, whose
    part of G has at most the length of `strength`; the next ones, of the same query, change weights alone."""
    vectors = vectors_by_clicks(folder, model, observe_after)
    clicks = np.arange(len(vectors))
    weights = weigh_parts(clicks, model.calibration, np.zeros_like(clicks))
    np.testing.assert_allclose(vectors[:, -1], weights.exposed, atol=1e-6)
    np.testing.assert_allclose(weights.exposed, 3 / (3 + clicks / 3), atol=1e-6)
    strength = model.generator.strength
    limit = np.abs(np.diff(weights.text)) + (1 + strength) * np.abs(np.diff(weights.generated))
    limit += np.abs(np.diff(weights.own))
    limit[0] += 2 * strength * weights.generated[1]
    steps = np.linalg.norm(np.diff(vectors[:, :-1], axis=0), axis=1)
    assert (steps > 0.01).all()
    assert (steps <= limit).all()
    assert (np.diff(steps) < 0).all()  # ever smaller, also where the item becomes observed


def test_when_an_item_counts_as_observed_does_not_change_its_vector(folder, model):
    """But for the mean over the pool that it has joined, against which votes are measured: one item of 161."""
    early, late = (vectors_by_clicks(folder, model, observe_after) for observe_after in (1, 99))
    np.testing.assert_allclose(early, late, atol=0.005)
    np.testing.assert_array_equal(early[:2], late[:2])


def test_an_item_never_informs_itself(catalog):
    """Neither one that the model was trained on, nor one that has joined the pool, nor after undo."""

    def informed_by(id):
        return {neighbour.id for neighbour in catalog.explain(id).explanation.neighbours}

    assert informed_by("i0") & {"i1", "i2", "i3"}
    assert "i0" not in informed_by("i0")
    assert catalog.explain("i0").current
    catalog.add([NEW, NewItem("twin", "i4")])
    clicks = [catalog.click("new", query) for query in ("q0", "q1", "q2", "q3", "q4")]
    assert "new" in informed_by("twin")
    assert "new" not in informed_by("new")
    for click in clicks[::-1]:
        catalog.undo(click.number)
        assert "new" not in informed_by("new")
        assert catalog.explain("new").current


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
    told = catalog.explain("new").explanation
    assert "new" not in {neighbour.id for neighbour in told.neighbours}
    assert told.revealed_share > 0
    assert told.text_share + told.neighbour_share + told.revealed_share == pytest.approx(100, abs=1e-3)
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


def test_a_trained_item_keeps_the_weight_of_its_training_clicks(folder, world):
    """Training clicks may have weights; 2.5 of them give a novelty of 3 / 5.5, with whatever text and newer clicks. A
    click after the training counts a third."""
    model = build_model(world, calibration=Calibration(novelty_prior=3.0))
    weighted = replace(model.classifiers, clicks=np.full(len(model.classifiers), 2.5))
    model = build_model(world, calibration=Calibration(novelty_prior=3.0), classifiers=weighted)
    with Catalog.create(folder, model) as catalog:
        assert catalog.explain("i0").current
        catalog.add([NewItem("new", "i4")])
        catalog.clicks([("i0", "q20"), ("new", "q21")])  # computed together
        assert stored_vector(catalog, "i0")[-1] == pytest.approx(3 / 5.5)
        assert stored_vector(catalog, "new")[-1] == pytest.approx(0.9)
        catalog.update("i0", text="i1")
        assert stored_vector(catalog, "i0")[-1] == pytest.approx(3 / 5.5)


def test_a_click_makes_a_trained_item_fresh_again_and_a_new_one_is_fresh(folder, world):
    calibration = Calibration(freshness_days=10.0, exposure=0.1)
    model = build_model(world, calibration=calibration)
    count = len(model.classifiers)
    aged = replace(model.classifiers, clicks=np.full(count, 3), ages=np.full(count, 20, np.float32))
    model = build_model(world, calibration=calibration, classifiers=aged)
    with Catalog.create(folder, model) as catalog:
        catalog.add([NewItem("new", "i4")])
        assert stored_vector(catalog, "new")[-1] == 1
        before = stored_vector(catalog, "i0")
        assert before[-1] == pytest.approx(np.exp(-1))
        click, _ = catalog.clicks([("i0", "q20"), ("new", "q21")])
        assert [stored_vector(catalog, name)[-1] for name in ("i0", "new")] == [1, 1]
        np.testing.assert_allclose(stored_vector(catalog, "i0")[:-1], before[:-1], atol=1e-6)
        assert stored_vector(catalog, "i1")[-1] == pytest.approx(np.exp(-1))
        catalog.update("i1", text="i2")
        assert stored_vector(catalog, "i1")[-1] == pytest.approx(np.exp(-1))
        assert catalog.explain("i0").current
        catalog.undo(click.number)
        np.testing.assert_allclose(stored_vector(catalog, "i0"), before, atol=1e-6)
