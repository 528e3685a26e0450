"""The columns by which a catalog filters, kept up to date with its store."""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import Any

from metaxc.arrays import Keys
from metaxc.catalog.item_columns import FilteredItem, ItemColumns
from metaxc.catalog.records import Item
from metaxc.catalog.schema import fields_column
from metaxc.catalog.store import Store, read_sequence
from metaxc.data.item_fields import load_fields
from metaxc.index.vector_table import ReadWriteLock

# The index is named because SQLite's planner would rather read the whole table in the order of its keys.
CHANGED = "FROM items INDEXED BY items_by_sequence WHERE sequence > ? ORDER BY key"
DELETED = "SELECT key FROM deleted INDEXED BY deleted_by_sequence WHERE sequence > ?"


class FilterFollower:
    """Tags, states and fields of a catalog in memory, read when they are first needed. Thread-safe.

    Args:
        store: The catalog's store.
    """

    def __init__(self, store: Store):
        self.store = store
        self._columns: ItemColumns | None = None
        self._sequence = -1
        self._updating, self._lock = threading.Lock(), ReadWriteLock()

    def load(self) -> None:
        """Read what the first filter would have to wait for (`load_ms` of benchmarks/results/filters.json)."""
        self._catch_up()

    def select(self, filter: Any) -> tuple[Keys, int]:
        """Keys of the items that pass a filter, and the sequence number of the commit up to which that is known."""
        columns = self._catch_up()
        with self._lock.reading():
            return columns.select(filter), self._sequence

    def _catch_up(self) -> ItemColumns:
        """Apply what was committed since the last call."""
        if self._columns is not None and self.store.sequence == self._sequence:
            return self._columns
        with self._updating:
            # A long first read does not make other readers of the store wait.
            with self.store.read_snapshot(own_connection=self._columns is None) as connection:
                sequence, items, deleted = _read_changes(connection, self._sequence)
            if self._columns is None:
                columns = ItemColumns(items)
                self._columns, self._sequence = columns, sequence
                return columns
            with self._lock.writing():
                self._columns.remove(deleted)
                self._columns.update(items)
                self._sequence = sequence
            return self._columns


def keep_passing(filter: Any, items: dict[int, Item]) -> dict[int, Item]:
    """Those items by key that pass a filter as they are now: one may have changed since it was selected."""
    columns = ItemColumns(
        FilteredItem(key, item.tags, item.state, item.fields) for key, item in items.items()
    )
    return {key: items[key] for key in columns.select(filter).tolist()}


def _read_changes(connection: sqlite3.Connection, sequence: int) -> tuple[int, list[FilteredItem], list[int]]:
    """What was committed after `sequence`: the last sequence number, new and changed items, keys of deleted ones."""
    where, parameters = (CHANGED, (sequence,)) if sequence >= 0 else ("FROM items ORDER BY key", ())
    rows = connection.execute(f"SELECT key, tags, state, {fields_column(connection)} {where}", parameters)
    items = [
        FilteredItem(key, () if tags == "[]" else json.loads(tags), state, load_fields(fields))
        for key, tags, state, fields in rows
    ]
    deleted = [key for (key,) in connection.execute(DELETED, (max(sequence, 0),))]
    return read_sequence(connection), items, deleted
