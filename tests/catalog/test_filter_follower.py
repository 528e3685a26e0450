"""Filters in a live catalog: never fewer results than exist, pages without gaps, and what changes meanwhile."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaxc.catalog import Catalog, NewItem
from metaxc.catalog.filter_follower import FilterFollower, keep_passing
from metaxc.catalog.item_filters import parse_filter
from metaxc.errors import DataError

CHEAP = {"field": "price", "lt": 3}


def names(found):
    return [hit.id for hit in found]


@pytest.fixture
def priced(catalog):
    """200 items more; one in a hundred has the field `rare`."""
    texts, rare = ("i4", "i9", "i14", "i19"), {7: {"rare": True}}
    catalog.add(
        [
            NewItem(
                f"n{n}", texts[n % 4], ("even",) * (n % 2 == 0), {"price": n % 10} | rare.get(n % 100, {})
            )
            for n in range(200)
        ]
    )
    return catalog


def test_a_filter_never_returns_fewer_items_than_exist(priced):
    for query in ("t0", "t80", "t159"):
        assert set(names(priced.search([query], 10, filter={"field": "rare", "eq": True})[0])) == {
            "n7",
            "n107",
        }
        assert len(priced.search([query], 60, filter=CHEAP)[0]) == 60
        assert len(priced.search([query], 100, filter=CHEAP, tags=["even"])[0]) == 40


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(k=st.integers(1, 25), filter=st.sampled_from([None, CHEAP, {"not": CHEAP}, {"tag": "even"}]))
def test_pages_join_to_the_whole_ranking(priced, k, filter):
    [whole] = priced.search(["t0"], 400, filter=filter)
    pages, offset = [], 0
    while offset < 500 and (page := priced.search(["t0"], k, offset=offset, filter=filter)[0]):
        pages += page
        offset += k
    assert pages == whole
    assert len({hit.id for hit in whole}) == len(whole)


def test_changes_of_fields_tags_and_states_are_seen_by_the_next_search(priced):
    assert "n5" not in names(priced.search(["t0"], 300, filter=CHEAP)[0])
    priced.update("n5", set_fields={"price": 1})
    assert "n5" in names(priced.search(["t0"], 300, filter=CHEAP)[0])
    priced.update("n5", fields={})
    assert "n5" not in names(priced.search(["t0"], 300, filter=CHEAP)[0])
    assert names(priced.search(["t0"], 300, filter={"and": [{"state": "clicked"}, {"tag": "even"}]})[0]) == []
    priced.click("n6", "q20")
    assert names(priced.search(["t0"], 300, filter={"and": [{"state": "clicked"}, {"tag": "even"}]})[0]) == [
        "n6"
    ]
    priced.delete(["n6"])
    assert names(priced.search(["t0"], 300, filter={"and": [{"state": "clicked"}, {"tag": "even"}]})[0]) == []
    wanted = {"field": "rare", "exists": True}
    assert [item.id for item in priced.list(filter=wanted).items] == ["n7", "n107"]
    first = priced.list(filter=wanted, limit=1)
    assert [item.id for item in priced.list(filter=wanted, after=first.next).items] == ["n107"]


def test_fields_survive_closing_migration_and_a_snapshot(priced, folder, model, tmp_path):
    from metaxc.catalog import migrate

    expected = {item.id: item.fields for item in priced.list(limit=1000).items}
    priced.snapshot(tmp_path / "snapshot")
    priced.close()
    Catalog.restore(tmp_path / "snapshot", tmp_path / "restored")
    for place in (folder, tmp_path / "restored"):
        with Catalog.open(place, model) as again:
            assert {item.id: item.fields for item in again.list(limit=1000).items} == expected
            again.store.verify()
            assert len(again.search(["t0"], 100, filter=CHEAP)[0]) == 60
    assert not migrate(folder, model)


def test_fields_pass_to_another_model(priced, folder, other_model):
    from metaxc.catalog import migrate

    expected = {item.id: item.fields for item in priced.list(limit=1000).items}
    priced.close()
    assert migrate(folder, other_model)
    with Catalog.open(folder, other_model) as migrated:
        assert {item.id: item.fields for item in migrated.list(limit=1000).items} == expected


def test_a_changed_row_of_fields_is_detected(priced, folder, model):
    import sqlite3

    from metaxc.catalog import CatalogError

    priced.close()
    [database] = folder.glob("gen-*/catalog.sqlite")
    (database.parent / "closed.json").unlink()
    for content in ('{"price":8}', "{}"):
        with sqlite3.connect(database) as connection:
            [(before,)] = connection.execute("SELECT fields FROM items WHERE id = 'n7'").fetchall()
            connection.execute("UPDATE items SET fields = ? WHERE id = 'n7'", (content,))
        with pytest.raises(CatalogError, match=r"row .* of the table items was changed"):
            Catalog.open(folder, model)
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE items SET fields = ? WHERE id = 'n7'", (before,))
    with Catalog.open(folder, model) as intact:
        assert intact.get("n7").fields == {"price": 7, "rare": True}


def test_an_item_that_changes_during_a_search_does_not_pass_by_its_old_fields(priced, monkeypatch):
    """The columns are those of the moment before the change: what is loaded afterwards is tested again."""
    select = FilterFollower.select
    turns = []

    def select_and_change(self, filter):
        chosen = select(self, filter)
        if not turns:
            turns.append(1)
            priced.update("n0", set_fields={"price": 9})
        return chosen

    monkeypatch.setattr(FilterFollower, "select", select_and_change)
    found = priced.search(["t0"], 300, filter=CHEAP)[0]
    assert "n0" not in names(found)
    assert len(found) == 59
    item = priced.get("n0")
    assert keep_passing(parse_filter(CHEAP), {1: item}) == {}


def test_filtered_searches_continue_while_fields_change(priced):
    stop, wrong = threading.Event(), []
    wanted = {"field": "price", "in": [0, 1]}

    def search():
        while not stop.is_set():
            [found] = priced.search(["t0"], 50, filter=wanted)
            if len(found) not in (39, 40) or any(hit.fields["price"] not in (0, 1) for hit in found):
                wrong.append(found)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        priced.update("n0", set_fields={"price": 5 if turn % 2 == 0 else 0})
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_offset_is_not_negative(catalog):
    with pytest.raises(DataError, match="offset"):
        catalog.search(["t0"], offset=-1)
    assert catalog.search(np.zeros((0, catalog.store.vector_dim), np.float32), 3, offset=2) == []
