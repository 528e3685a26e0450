"""What is asked of the record: items by id, by key, by tag and state, and their clicks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog.catalog_errors import NotFoundError
from metaxc.catalog.records import STATES, CatalogHit, Item, Page, State
from metaxc.catalog.rows import SHOWN, WHOLE, ItemRow, shown, stacked
from metaxc.catalog.store import Store
from metaxc.errors import DataError

MOST_LISTED = 1_000
BLOCK = 500


class Lookups:
    """Answers from the last committed state.

    Args:
        store: The record.
    """

    def __init__(self, store: Store):
        self.store, self.dim = store, int(store.facts["dim"])

    def counted(self) -> dict[State, int]:
        """How many items are in each state."""
        found = {
            row[0]: int(row[1]) for row in self.store.rows("SELECT state, count(*) FROM items GROUP BY state")
        }
        return {state: found.get(state, 0) for state in STATES}

    def click_count(self) -> int:
        """How many clicks there are."""
        return int(self.store.rows("SELECT count(*) FROM clicks")[0][0])

    def clicks_of(self, key: int) -> list[tuple[int, str, float, bytes]]:
        """Number, query, time and embedding of an item's clicks, the oldest first."""
        return self.store.rows(
            "SELECT number, query, at, embedding FROM clicks WHERE key = ? ORDER BY number", (key,)
        )

    def clicked_row(self, number: int) -> ItemRow:
        """The item of a click."""
        found = self.store.rows(
            "SELECT items.id FROM clicks JOIN items USING (key) WHERE number = ?", (number,)
        )
        if not found:
            raise NotFoundError("No click of that number", got=number, fix="`explain` lists an item's clicks")
        return self.row(found[0][0])

    def found(self, keys: Keys, scores: Floats) -> list[list[CatalogHit]]:
        """The items at (n, k) keys, with their scores; one that has gone meanwhile is left out."""
        wanted = np.unique(keys[keys >= 0]).tolist()
        there: dict[int, Item] = {}
        for start in range(0, len(wanted), BLOCK):
            some = wanted[start : start + BLOCK]
            marks = ", ".join("?" * len(some))
            for row in self.store.rows(f"{SHOWN} WHERE key IN ({marks})", tuple(some)):
                there[row[0]] = shown(row)
        return [
            [
                CatalogHit(item.id, item.text, item.tags, item.state, float(score))
                for key, score in zip(line, line_scores, strict=True)
                if (item := there.get(int(key))) is not None
            ]
            for line, line_scores in zip(keys, scores, strict=True)
        ]

    def allowed(self, tags: Sequence[str], states: Sequence[State]) -> Keys | None:
        """Keys of the items that have all tags and one of the states; None where all items do."""
        if not tags and not states:
            return None
        where, values = _filtered(tags, states)
        rows = self.store.rows(f"SELECT key FROM items{where} ORDER BY key", values)
        return np.array([row[0] for row in rows], dtype=np.int64)

    def maybe(self, name: str) -> Item | None:
        """An item, None where there is none of that id."""
        found = self.store.rows(f"{SHOWN} WHERE id = ?", (name,))
        return shown(found[0]) if found else None

    def get(self, name: str) -> Item:
        """An item; an unknown one is a `NotFoundError`."""
        found = self.maybe(name)
        if found is None:
            raise _not_found(name)
        return found

    def listed(self, tags: Sequence[str], states: Sequence[State], after: str | None, limit: int) -> Page:
        """As `Catalog.list`."""
        if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
            raise DataError(
                "Not a place in the list", got=repr(after), expected="`next` of an earlier answer"
            )
        limit = min(max(limit, 1), MOST_LISTED)
        where, values = _filtered(tags, states, after=int(after or 0))
        rows = self.store.rows(f"{SHOWN}{where} ORDER BY key LIMIT ?", (*values, limit + 1))
        following = str(rows[limit - 1][0]) if len(rows) > limit else None
        return Page(tuple(shown(row) for row in rows[:limit]), following)

    def row(self, name: str) -> ItemRow:
        """An item with everything; an unknown one is a `NotFoundError`."""
        found = self.store.rows(f"{WHOLE} WHERE id = ?", (name,))
        if not found:
            raise _not_found(name)
        return ItemRow.of(found[0])

    def queries_of(self, key: int, without: int = -1) -> Floats:
        """(clicks, dim) embeddings of the queries that clicked an item, the oldest first."""
        rows = self.store.rows(
            "SELECT embedding FROM clicks WHERE key = ? AND number != ? ORDER BY number", (key, without)
        )
        return stacked([row[0] for row in rows], self.dim)


def _filtered(
    tags: Sequence[str], states: Sequence[State], after: int | None = None
) -> tuple[str, tuple[str | int, ...]]:
    """A WHERE clause over `items`, and its values."""
    parts: list[str] = []
    values: list[str | int] = []
    if after is not None:
        parts.append("key > ?")
        values.append(after)
    for tag in tags:
        parts.append("key IN (SELECT key FROM tags WHERE tag = ?)")
        values.append(tag)
    if states:
        unknown = [state for state in states if state not in STATES]
        if unknown:
            raise DataError("An unknown state", got=repr(unknown[0]), expected=", ".join(STATES))
        parts.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    return (" WHERE " + " AND ".join(parts) if parts else ""), tuple(values)


def _not_found(name: str) -> NotFoundError:
    return NotFoundError("No item of that id", got=repr(name), fix="`list` shows what is there")
