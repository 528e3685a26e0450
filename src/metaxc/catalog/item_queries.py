"""Reads of items from the record: counts, and the items that a search has found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from metaxc.arrays import Floats, Keys
from metaxc.catalog.records import STATES, CatalogHit, Item, State
from metaxc.catalog.schema import Value, placeholders
from metaxc.catalog.store import Store
from metaxc.data.item_fields import load_fields
from metaxc.data.same_texts import normalise_text

ITEM_COLUMNS = "id, text, tags, state, clicks, created, updated, trained"
BLOCK = 500
"""Items looked up by one statement; SQLite limits its parameters."""

SAME_TEXTS = 8
"""Items with the same text that a search by this text can leave out and still return as many items as asked for."""


def count_items(store: Store) -> dict[State, int]:
    """The number of items in each state."""
    counts = {
        row[0]: int(row[1]) for row in store.fetch_all("SELECT state, count(*) FROM items GROUP BY state")
    }
    return {state: counts.get(state, 0) for state in STATES}


def count_clicks(store: Store) -> int:
    """The number of recorded clicks."""
    return int(store.fetch_all("SELECT count(*) FROM clicks")[0][0])


def read_items(store: Store, where: str, parameters: Sequence[Value]) -> dict[int, Item]:
    """The items that meet a WHERE clause by their keys, in the order of the clause."""
    select = f"SELECT key, {ITEM_COLUMNS}, {store.fields_column} FROM items"
    return {row[0]: _read_item(row) for row in store.fetch_all(f"{select} {where}", parameters)}


def find_items(store: Store, keys: Sequence[int]) -> dict[int, Item]:
    """The items with these keys; those that were deleted meanwhile are left out."""
    items: dict[int, Item] = {}
    for start in range(0, len(keys), BLOCK):
        block = keys[start : start + BLOCK]
        items |= read_items(store, f"WHERE key IN ({placeholders(len(block))})", block)
    return items


def _read_item(row: Sequence[Any]) -> Item:
    _, id, text, tags, state, clicks, created, updated, trained, fields = row
    tags = tuple(json.loads(tags))
    return Item(id, text, tags, state, clicks, created, updated, bool(trained), load_fields(fields))


def make_hits(items: Mapping[int, Item], keys: Keys, scores: Floats) -> list[list[CatalogHit]]:
    """The items at (n, k) keys with their scores; keys of no item are left out."""
    return [
        [
            CatalogHit(item.id, item.text, item.tags, item.state, float(score), item.fields)
            for key, score in zip(query_keys, query_scores, strict=True)
            if (item := items.get(int(key))) is not None
        ]
        for query_keys, query_scores in zip(keys, scores, strict=True)
    ]


def without_own(query: str, hits: list[CatalogHit]) -> list[CatalogHit]:
    """The hits whose text is not the query itself."""
    key = normalise_text(query)
    return [hit for hit in hits if normalise_text(hit.text) != key]
