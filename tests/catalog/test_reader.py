import threading

import pytest

from metaxc.catalog import CatalogError, NewItem
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
