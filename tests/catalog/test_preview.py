import numpy as np
import pytest

from metaxc.catalog import NewItem


def test_a_preview_explains_the_item_as_it_will_be_added(catalog):
    before = catalog.about().sequence
    preview = catalog.preview("i4")
    assert catalog.about().sequence == before
    catalog.add([NewItem("new", "i4")])
    added = catalog.explain("new").explanation
    assert added.shares == pytest.approx(preview.explanation.shares, abs=1e-4)
    assert [(one.id, pytest.approx(one.share, abs=1e-4)) for one in added.neighbours] == [
        (one.id, one.share) for one in preview.explanation.neighbours
    ]
    assert set(preview.seconds) == {"encode", "select", "generate", "reach", "map"}


def test_reached_queries_rank_the_item_as_a_search_does(catalog):
    """The item's text shares nothing with its group's queries; its meta-classifier does."""
    preview = catalog.preview("i4")
    assert preview.pool == 40
    reached = {one.query: one for one in preview.reached}
    assert reached["t0"].meta_rank is not None
    assert reached["t0"].meta_rank <= 5
    assert {one.change for one in preview.reached} <= {"gained", "lost", "kept"}
    for one in preview.reached:
        wanted = "gained" if one.encoder_rank is None else "lost" if one.meta_rank is None else "kept"
        assert one.change == wanted
    catalog.add([NewItem("new", "i4")])
    for query, one in reached.items():
        found = [hit.id for hit in catalog.search([query], 10)[0]]
        assert (found.index("new") + 1 if "new" in found else None) == one.meta_rank


def test_a_neighbour_that_is_switched_off_contributes_nothing(catalog):
    whole = catalog.preview("i4")
    first = whole.explanation.neighbours[0]
    part = catalog.preview("i4", without=[first.id, "no neighbour"])
    assert [one.id for one in part.off] == [first.id]
    assert part.off[0].weight == 0
    assert part.off[0].similarity == pytest.approx(first.similarity)
    assert [one.id for one in part.explanation.neighbours] == [
        one.id for one in whole.explanation.neighbours[1:]
    ]
    nothing = catalog.preview("i4", without=[one.id for one in whole.explanation.neighbours])
    assert nothing.explanation.neighbours == []
    assert nothing.explanation.text_share == pytest.approx(100)


def test_revealed_queries_vote_for_neighbours_in_a_preview(catalog):
    preview = catalog.preview("i4", revealed=["q20"])
    assert "q20" in {one.voter for one in preview.explanation.neighbours}
    assert preview.explanation.revealed_share > 0


def test_the_map_shows_text_meta_classifier_neighbours_and_queries(catalog):
    preview = catalog.preview("i4")
    kinds = [point.kind for point in preview.points]
    assert kinds[:2] == ["text", "meta"]
    assert kinds.count("neighbour") == len(preview.explanation.neighbours)
    assert kinds.count("query") == min(12, len(preview.reached))
    places = np.array([(point.x, point.y) for point in preview.points])
    assert np.isfinite(places).all()
    assert places[:, 0].std() >= places[:, 1].std()  # the principal components, in their order


def test_a_preview_works_without_known_queries(folder, model):
    from metaxc.catalog import Catalog

    with Catalog.create(folder, model) as catalog:
        preview = catalog.preview("i4")
        assert (preview.pool, preview.reached) == (0, ())
        assert preview.explanation.neighbours


def test_known_queries_are_refreshed_in_the_background(catalog, monkeypatch):
    """A preview uses the old scores while new ones are computed, and never waits for them."""
    catalog.warm()
    first = catalog._previewer.known_queries()
    catalog.add([NewItem("new", "i4")])
    assert catalog._previewer.known_queries() is first
    monkeypatch.setattr("metaxc.catalog.preview.STALE", 0.0)
    assert catalog._previewer.known_queries() is first
    catalog._previewer.close()
    second = catalog._previewer.known_queries()
    assert second.sequence == catalog.sequence
    assert (second.meta_best >= first.meta_best).all()
    assert (second.meta_best > first.meta_best).any()
