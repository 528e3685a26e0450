import numpy as np
import pytest

from metaxc.catalog import NewItem


def test_a_preview_is_what_the_item_will_be(catalog):
    before = catalog.about().sequence
    preview = catalog.preview("i4")
    assert catalog.about().sequence == before
    catalog.add([NewItem("new", "i4")])
    assert catalog.explain("new").explanation == preview.explanation
    assert set(preview.seconds) == {"encode", "select", "generate", "reach", "map"}


def test_known_queries_that_would_find_it(catalog):
    """The text alone knows nothing of its group's queries, the meta-classifier all."""
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


def test_a_neighbour_that_is_switched_off_counts_no_more(catalog):
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


def test_first_clicks_vote_in_a_preview(catalog):
    preview = catalog.preview("i4", revealed=["q20"])
    assert "q20" in {one.voter for one in preview.explanation.neighbours}
    assert preview.explanation.revealed_share > 0


def test_the_map_has_the_arrow_and_the_surroundings(catalog):
    preview = catalog.preview("i4")
    kinds = [point.kind for point in preview.points]
    assert kinds[:2] == ["text", "meta"]
    assert kinds.count("neighbour") == len(preview.explanation.neighbours)
    assert kinds.count("query") == min(12, len(preview.reached))
    places = np.array([(point.x, point.y) for point in preview.points])
    assert np.isfinite(places).all()
    assert np.ptp(places[:, 0]) >= np.ptp(places[:, 1])


def test_without_known_queries_there_is_still_a_preview(folder, model):
    from metaxc.catalog import Catalog

    with Catalog.create(folder, model) as catalog:
        preview = catalog.preview("i4")
        assert (preview.pool, preview.reached) == (0, ())
        assert preview.explanation.neighbours


def test_known_queries_follow_the_catalog_beside_the_previews(catalog, monkeypatch):
    """What the pool was made of stays until it is made anew, which no preview waits for."""
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
