import threading

import numpy as np
import pytest
from world_model import build_model

from metaxc.catalog import Catalog, CatalogError, NewItem
from metaxc.errors import DataError

NEW = NewItem("new", "i4", ("red", "blue"))


def names(found):
    return [hit.id for hit in found]


def test_search_filters_by_tags_and_states(catalog):
    catalog.add([NewItem("a", "i4", ("x", "y")), NewItem("b", "i9", ("x",))])
    assert set(names(catalog.search(["t0"], 9, tags=["x"])[0])) == {"a", "b"}
    assert names(catalog.search(["t0"], 9, tags=["x", "y"])[0]) == ["a"]
    assert names(catalog.search(["t0"], 9, tags=["x"], states=["observed"])[0]) == []
    novel = catalog.search(["t0"], 300, states=["novel"])[0]
    assert {hit.state for hit in novel} == {"novel"}
    assert len(novel) == catalog.about().items["novel"]
    with pytest.raises(DataError):
        catalog.search(["t0"], states=["old"])


def test_pages_of_a_list_cover_every_item_once(catalog):
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


def test_searches_continue_while_items_are_added_and_deleted(catalog):
    """Searches in several threads see an item completely or not at all."""
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


def test_a_closed_catalog_refuses_to_search(catalog):
    catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        catalog.search(["t0"])


def test_the_exposure_of_a_search_raises_an_item_by_its_novelty(catalog, model):
    """novelty_prior is 3: without clicks an item has novelty 1, after a live click 0.9; trained ones have 20."""
    catalog.add([NewItem("new", "i4"), NewItem("clicked", "i9")])
    catalog.click("clicked", "q20")
    [default], [low], [high] = (catalog.search(["t0"], 300, exposure=value) for value in (None, 0.0, 0.4))
    scores = [{hit.id: hit.score for hit in hits} for hits in (default, low, high)]
    for name, novelty in (("new", 1), ("clicked", 0.9), ("i0", 3 / 23)):
        assert scores[0][name] - scores[1][name] == pytest.approx(
            model.calibration.exposure * novelty, abs=1e-5
        )
        assert scores[2][name] - scores[1][name] == pytest.approx(0.4 * novelty, abs=1e-5)
    [first] = catalog.search(["t8"], 3, exposure=50.0)
    assert {hit.state for hit in first} == {"novel"}


def test_every_query_of_a_call_may_have_its_own_exposure(catalog, model):
    vectors = catalog.encode(["t0", "t0", "t4"], [0.3, None, -2.0])
    np.testing.assert_allclose(vectors[:, -1], [0.3, model.calibration.exposure, -2.0], rtol=1e-6)
    np.testing.assert_array_equal(vectors[:2, :-1], catalog.encode(["t0", "t0"], 7.0)[:, :-1])
    assert catalog.search(vectors[2:], 5) == catalog.search(["t4"], 5, exposure=-2.0)


@pytest.mark.parametrize("exposure", [100.1, float("nan"), float("-inf")])
def test_an_exposure_out_of_range_is_refused(catalog, exposure):
    with pytest.raises(DataError, match="from -100 to 100"):
        catalog.search(["t0"], exposure=exposure)
    with pytest.raises(DataError, match="from -100 to 100"):
        catalog.encode(["t0"], [exposure])


def test_vectors_have_their_exposure_already(catalog):
    with pytest.raises(DataError, match="`encode`"):
        catalog.search(catalog.encode(["t0"]), exposure=0.3)


def test_the_summary_tells_the_models_exposure_and_what_others_would_cost(catalog, model):
    about = catalog.about()
    assert about.exposure == catalog.store.exposure == model.calibration.exposure
    first, second = model.about["exposure_curve"]
    assert about.exposure_curve == (first, {name: value for name, value in second.items() if name != "H"})


def test_a_model_of_items_as_queries_leaves_the_own_item_out(world, tmp_path):
    model = build_model(world, neighbours=4, about={"exclude_self": True})
    with Catalog.create(tmp_path / "catalog", model) as catalog:
        vectors = catalog.encode(["t0"])
        first = [hit.id for hit in catalog.search(vectors, k=3)[0]]
        # In this world an item's text is its id: the vectors of t0, searched as the text of its best item.
        found = catalog.search(vectors, k=2, texts=[f" {first[0].upper()} "])[0]
        assert [hit.id for hit in found] == first[1:]
        assert [hit.id for hit in catalog.search(["t0"], k=3)[0]] == first
