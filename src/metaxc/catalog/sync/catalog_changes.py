"""What was written to a catalog after a point in its history, read in blocks that each see one committed state.

Rows carry the number of the write that wrote them last, and deleted items leave their key and the number of the write
that deleted them. So the changes after a write are found by an index, and reading may stop and continue anywhere: a row
that is changed meanwhile moves to a later write, where it is read again.

A history can also be replaced: by the restored snapshot of an earlier state, a copy of the folder, a migration there
and back. Write numbers then say nothing. The catalog keeps the sum of the checksums of its rows, and so does every
synchronised table: where the two differ, `read_all_digests` and `read_rows` serve to compare row by row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metaxc.catalog.schema import VECTOR_COLUMNS, decode_item_vectors, fields_column, placeholders
from metaxc.catalog.store import Store, read_sequence
from metaxc.catalog.sync.sync_target import SyncRow
from metaxc.data.item_fields import load_fields

COLUMNS = "sequence, key, id, text, tags, state, clicks, digest"
# The index is named because SQLite's planner would rather read the whole table in the order of its keys.
CHANGED = (
    "FROM items INDEXED BY items_by_sequence WHERE (sequence, key) > (?, ?) ORDER BY sequence, key LIMIT ?"
)
DELETED = (
    "SELECT sequence, key FROM deleted INDEXED BY deleted_by_sequence WHERE (sequence, key) > (?, ?) "
    "ORDER BY sequence, key LIMIT ?"
)
COUNT = (
    "SELECT (SELECT count(*) FROM items WHERE (sequence, key) > (?, ?)) + "
    "(SELECT count(*) FROM deleted WHERE (sequence, key) > (?, ?))"
)
BLOCK = 500
"""Items looked up by one statement; SQLite limits its parameters."""


@dataclass(frozen=True)
class Changes:
    """A block of changes, in the order of the writes and of the keys within a write.

    Args:
        rows: New and changed items.
        deleted: Keys of deleted items.
        sequence: Every write up to this number is in this block or was before it.
        key: Of the write after that, the items up to this key are too.
        checksum: The sum of the checksums of all items of the catalog, in the state that this block was read from.
    """

    rows: tuple[SyncRow, ...]
    deleted: tuple[int, ...]
    sequence: int
    key: int
    checksum: str


def read_changes(store: Store, sequence: int, key: int, limit: int) -> Changes:
    """The first `limit` changes after the write `sequence` and the item `key` of the following write."""
    after = (sequence + 1, key, limit + 1)
    with store.read_snapshot(own_connection=True) as connection:
        reached, checksum = read_sequence(connection), _read_checksum(connection)
        changed = connection.execute(f"{_select(fields_column(connection))} {CHANGED}", after).fetchall()
        deleted = connection.execute(DELETED, after).fetchall()
    places = sorted([row[:2] for row in changed] + [tuple(row) for row in deleted])
    place = (reached, 0)
    if len(places) > limit:
        last = places[limit - 1]
        changed = [row for row in changed if row[:2] <= last]
        deleted = [row for row in deleted if row <= last]
        place = (last[0] - 1, last[1])
    rows = _decode_rows(changed, store.dim)
    return Changes(rows, tuple(row[1] for row in deleted), *place, checksum)


def count_changes(store: Store, sequence: int, key: int) -> int:
    """How many changes follow the write `sequence` and the item `key` of the write after it."""
    after = (sequence + 1, key)
    return int(store.fetch_all(COUNT, after + after)[0][0])


def read_all_digests(store: Store) -> tuple[int, dict[int, str]]:
    """The last write number, and the digest of every item by its key."""
    with store.read_snapshot(own_connection=True) as connection:
        found = connection.execute("SELECT key, digest FROM items ORDER BY key")
        return read_sequence(connection), {key: digest.hex() for key, digest in found}


def read_rows(store: Store, keys: Sequence[int]) -> list[SyncRow]:
    """The items with these keys; those that were deleted meanwhile are left out."""
    rows: list[SyncRow] = []
    for start in range(0, len(keys), BLOCK):
        block = keys[start : start + BLOCK]
        found = store.fetch_all(
            f"{_select(store.fields_column)} FROM items WHERE key IN ({placeholders(len(block))}) ORDER BY key",
            block,
        )
        rows += _decode_rows(found, store.dim)
    return rows


def _read_checksum(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT value FROM facts WHERE name = 'sum of items'").fetchone()[0])


def _select(fields: str) -> str:
    return f"SELECT {COLUMNS}, {fields}, {VECTOR_COLUMNS}"


def _decode_rows(found: Iterable[tuple[Any, ...]], dim: int) -> tuple[SyncRow, ...]:
    found = list(found)
    vectors = decode_item_vectors((row[9:] for row in found), dim)
    return tuple(
        SyncRow(
            key, id, text, tuple(json.loads(tags)), state, clicks, digest.hex(), vector, load_fields(fields)
        )
        for (_, key, id, text, tags, state, clicks, digest, fields, *_), vector in zip(
            found, vectors, strict=True
        )
    )
