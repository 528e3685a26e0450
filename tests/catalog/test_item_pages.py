"""Pages of items while the catalog changes."""

from metaxc.catalog import NewItem
from metaxc.catalog.item_pages import list_items

CHEAP = {"field": "price", "lt": 10}


def test_a_page_from_which_items_were_deleted_meanwhile_is_not_the_last_one(catalog):
    """Between the selection of the keys and the reading of the items, others may write."""
    catalog.add([NewItem(f"new{n}", "i4", (), {"price": n}) for n in range(12)])

    class Selected:
        store = catalog.store

        def select(self, filter):
            keys = catalog._filters.select(filter)
            catalog.delete(["new0"], ignore_missing=True)
            catalog.update("new1", set_fields={"price": 99})
            return keys

    page = list_items(Selected(), filter=CHEAP, limit=3)
    assert [item.id for item in page.items] == ["new2"]
    rest = list_items(Selected(), filter=CHEAP, after=page.next, limit=100)
    assert [item.id for item in rest.items] == [f"new{n}" for n in range(3, 10)]
    assert rest.next is None
