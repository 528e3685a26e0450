"""Reads of items from the record: counts, filters, and the items that a search has found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog.records import STATES, CatalogHit, Item, State
from metaxc.catalog.schema import placeholders
from metaxc.catalog.store import Store
from metaxc.errors import DataError

SELECT_ITEM = "SELECT key, id, text, tags, state, clicks, created, updated, trained FROM items"
BLOCK = 500
"""Items looked up by one statement; SQLite limits its parameters."""


def count_items(store: Store) -> dict[State, int]:
    """The number of items in each state."""
    counts = {
        row[0]: int(row[1]) for row in store.fetch_all("SELECT state, count(*) FROM items GROUP BY state")
    }
    return {state: counts.get(state, 0) for state in STATES}


def count_clicks(store: Store) -> int:
    """The number of recorded clicks."""
    return int(store.fetch_all("SELECT count(*) FROM clicks")[0][0])


def load_hits(store: Store, keys: Keys, scores: Floats) -> list[list[CatalogHit]]:
    """The items at (n, k) keys with their scores; items that were deleted meanwhile are left out."""
    wanted = np.unique(keys[keys >= 0]).tolist()
    items: dict[int, Item] = {}
    for start in range(0, len(wanted), BLOCK):
        block = wanted[start : start + BLOCK]
        for row in store.fetch_all(f"{SELECT_ITEM} WHERE key IN ({placeholders(len(block))})", block):
            items[row[0]] = read_item(row)
    return [
        [
            CatalogHit(item.id, item.text, item.tags, item.state, float(score))
            for key, score in zip(query_keys, query_scores, strict=True)
            if (item := items.get(int(key))) is not None
        ]
        for query_keys, query_scores in zip(keys, scores, strict=True)
    ]


def read_item(row: Sequence[Any]) -> Item:
    """An item from a row of `SELECT_ITEM`."""
    _, id, text, tags, state, clicks, created, updated, trained = row
    return Item(id, text, tuple(json.loads(tags)), state, clicks, created, updated, bool(trained))


def filter_items(
    tags: Sequence[str], states: Sequence[State], after: int | None = None
) -> tuple[str, tuple[str | int, ...]]:
    """A WHERE clause over `items` for the filters, and its parameters."""
    conditions: list[str] = []
    parameters: list[str | int] = []
    if after is not None:
        conditions.append("key > ?")
        parameters.append(after)
    for tag in tags:
        conditions.append("key IN (SELECT key FROM tags WHERE tag = ?)")
        parameters.append(tag)
    if states:
        unknown = [state for state in states if state not in STATES]
        if unknown:
            raise DataError(
                "Unknown state", got=repr(unknown[0]), expected=", ".join(STATES), fix="use one of these"
            )
        conditions.append(f"state IN ({placeholders(len(states))})")
        parameters += states
    return (" WHERE " + " AND ".join(conditions) if conditions else ""), tuple(parameters)
